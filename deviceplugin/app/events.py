"""What can happen to the reconciler. Whoever notices something puts one of these into its queue and does no more."""

from collections.abc import Mapping
from dataclasses import dataclass

from deviceplugin.errors import ConfigError, DriverError
from deviceplugin.kubelet.unix import Identity
from deviceplugin.model.health import DriverEvent, Probe
from deviceplugin.model.held import Held
from deviceplugin.model.mps import MpsDaemon
from deviceplugin.model.node import Snapshot
from deviceplugin.model.offer import Withdrawn
from deviceplugin.mps.state import KeeperState


@dataclass(frozen=True, slots=True)
class FileRead:
    """The config file has other content than the last time, or was asked for again (SIGHUP).

    Attributes:
        data: its bytes; None when it can't be read.
        problem: why it can't be read; None when it can.
    """

    data: bytes | None
    problem: ConfigError | None


@dataclass(frozen=True, slots=True)
class SnapshotTaken:
    """The driver answered.

    Attributes:
        probe: a closer look, right after.
    """

    snapshot: Snapshot
    probe: Probe


@dataclass(frozen=True, slots=True)
class DriverDown:
    """The driver as a whole did not answer.

    Attributes:
        nvidia_device_present: whether the PCI bus has an NVIDIA display device: a node that needs a driver.
    """

    error: DriverError
    nvidia_device_present: bool


@dataclass(frozen=True, slots=True)
class DriverReported:
    """The driver reported something by itself; everything since the last of these, in order."""

    events: tuple[DriverEvent, ...]


@dataclass(frozen=True, slots=True)
class Released:
    """An operator has asked for the driver: it is let go of."""


@dataclass(frozen=True, slots=True)
class TakenUp:
    """The driver is used again.

    Attributes:
        was_reset: the operator said that every GPU was reset meanwhile.
    """

    was_reset: bool


@dataclass(frozen=True, slots=True)
class HeldRead:
    """What pods hold was read, or could not be.

    Attributes:
        listed: PodResources' answer; None if it gave none.
        checkpointed: the checkpoint's entries; None if unreadable.
        began_at: monotonic seconds before the reads.
        problem: why PodResources gave no answer, and the checkpoint's problem if it could not be read either.
        allocatable: the ids that the kubelet counts as healthy, by resource (contract P4, R15); None if unknown.
        kubelet: the PodResources socket that was there: another one is another kubelet's (P1); None if there was none.
    """

    listed: Held | None
    checkpointed: Held | None
    began_at: float
    problem: str
    allocatable: Held | None = None
    kubelet: Identity | None = None


@dataclass(frozen=True, slots=True)
class KubeletCame:
    """A kubelet has started; for a while its silence about what is held proves nothing (contract P5)."""


@dataclass(frozen=True, slots=True)
class Vanished:
    """The kubelet no longer counts on what was withdrawn, or was waited for in vain.

    Attributes:
        withdrawn: the very object that was to be waited for: the same ids may have been withdrawn again since.
    """

    withdrawn: Withdrawn


@dataclass(frozen=True, slots=True)
class MpsAsked:
    """A control daemon was asked whether it serves, and its word is another than the last time.

    Attributes:
        problem: why its shares are out of service; empty when it answers with the right limits.
    """

    daemon: MpsDaemon
    problem: str


@dataclass(frozen=True, slots=True)
class MpsKept:
    """What the MPS supervisor says that it does, by the GPU's UUID; for people, nothing is decided by it."""

    keepers: Mapping[str, KeeperState]


@dataclass(frozen=True, slots=True)
class MpsRootSeen:
    """What the MPS root shows, when it differs from the last look.

    Attributes:
        problem: why it can't be looked into: it is not mounted; empty when it is there.
        owned: UUIDs of the GPUs that the MPS supervisor has and has not given back: their compute mode is MPS's.
    """

    problem: str
    owned: frozenset[str]


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed: something is due."""


@dataclass(frozen=True, slots=True)
class Stop:
    """End the loop."""


Event = (
    FileRead
    | SnapshotTaken
    | DriverDown
    | DriverReported
    | Released
    | TakenUp
    | HeldRead
    | KubeletCame
    | Vanished
    | MpsAsked
    | MpsKept
    | MpsRootSeen
    | Tick
    | Stop
)
