"""What the reconciler needs of its neighbours. The real ones live in packages that may not know each other."""

from collections.abc import Iterable, Mapping
from typing import Protocol

from deviceplugin.model.cdi import CdiSpec
from deviceplugin.model.held import Held
from deviceplugin.model.mps import MpsDaemon
from deviceplugin.model.offer import Offer, Withdrawn


class ResourceState(Protocol):
    """How a resource stands with the kubelet (deviceplugin.kubelet.states); times in monotonic seconds."""

    @property
    def stream_open(self) -> bool:
        """The kubelet's ListAndWatch stream is open."""

    @property
    def registered_at(self) -> float | None:
        """When it was last accepted."""

    @property
    def last_list_at(self) -> float | None:
        """When the newest list went out."""


class Link(Protocol):
    """Serves offers to the kubelet (deviceplugin.kubelet.link). No call waits for the kubelet."""

    def open(self, offer: Offer) -> None:
        """Serve a new resource and register it."""

    def answer_from(self, offer: Offer) -> None:
        """Replace what the handlers of a resource read; sends no list."""

    def send(self, name: str) -> bool:
        """Send the resource's list on its open streams; False when its content is what they have."""

    def resend(self, name: str) -> None:
        """Send the list though it did not change, so that the kubelet rewrites its checkpoint (contract C3)."""

    def register_again(self, name: str) -> None:
        """End the resource's stream and register it anew."""

    def states(self) -> Mapping[str, ResourceState]:
        """Every open resource now, by name."""

    def close(self, name: str) -> None:
        """End the resource's streams, stop its server and remove its socket."""


class Ledger(Protocol):
    """Ids handed out by Allocate (deviceplugin.kubelet.ledger)."""

    def held(self) -> Held:
        """What was handed out and is not yet known to be free."""

    def wait_idle(self, timeout_s: float) -> bool:
        """Wait until every Allocate that had begun is done; False if one is still running at the timeout."""

    def kubelet_started(self) -> None:
        """A kubelet has just started: what it does not show is not free."""

    def observe(self, read: Held, began_at: float) -> None:
        """Learn from a PodResources read that began at `began_at`."""


class CdiFiles(Protocol):
    """The CDI specifications on disk (deviceplugin.cdi). Calls touch a few small files and never raise."""

    def ensure(self, specs: Iterable[CdiSpec]) -> str:
        """Put these in place; the others of ours stay. Returns why not all are; empty when fine."""

    def remove_others(self) -> None:
        """Remove those of ours that the last `ensure` did not put in place."""

    def unwritable(self) -> str:
        """Why this container may not write specifications there, with the value to set; empty when it may."""

    def intact(self) -> bool:
        """Whether every file is still as it was written."""


class Request(Protocol):
    """A feed that can be asked to look now."""

    def request(self) -> None:
        """Look as soon as possible; requests that come together are one."""


class Paced(Request, Protocol):
    """A feed whose pace follows the need."""

    def every(self, interval_s: float) -> None:
        """Look this often."""


class VanishingWait(Protocol):
    """Tells when withdrawn devices are gone at the kubelet (deviceplugin.app.vanishing)."""

    def wait_for(self, withdrawn: Withdrawn) -> None:
        """Have Vanished posted with these once the kubelet shows none of them."""


class MpsWatch(Protocol):
    """The feed that asks MPS control daemons whether they serve."""

    def watch(self, daemons: Iterable[MpsDaemon]) -> None:
        """Ask these from now on, and no others."""
