"""Mistakes planted in the product: the histories must find each of them, and say what is wrong (issue 5, Proof)."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace

import pytest

from deviceplugin.app.events import FileRead
from deviceplugin.app.reconciler import Reconciler
from deviceplugin.config.model import Config
from deviceplugin.errors import KubeletError
from deviceplugin.kubelet.held_sources import HeldSources
from deviceplugin.kubelet.lifecycle import Lifecycle
from deviceplugin.kubelet.link import KubeletStarted, LinkEvent
from deviceplugin.kubelet.service import ResourceService
from deviceplugin.kubelet.unix import Identity
from deviceplugin.model.health import HealthReport
from deviceplugin.model.held import Held
from deviceplugin.model.ids import replica_id
from deviceplugin.model.node import Snapshot
from deviceplugin.model.offer import Offer
from deviceplugin.model.plan import Plan, Unit
from deviceplugin.simulator.journal import SimulatorError
from tests.kubelet.node import eventually
from tests.soak.histories import CONFIGS, Histories, run
from tests.soak.world import BAD, AccountableLink, SlowLedger, World

# Each is found within a fraction of these.
STEPS = 2000


class Hasty(World):
    """What does not come about soon never does."""

    patience_s = 2.0


class ForgetsWhatItHandedOut(Hasty):
    """It knows of a pod only once PodResources has been read (A14, P6)."""

    class ledger_class(SlowLedger):
        def held(self) -> Held:
            return Held()


class NeverFrees(Hasty):
    """What was handed out stays held for ever."""

    class ledger_class(SlowLedger):
        def observe(self, read: Held, began_at: float) -> None:
            pass


class ListsBeforeTheAllocateIsOver(Hasty):
    """L17."""

    class ledger_class(SlowLedger):
        def wait_idle(self, timeout_s: float) -> bool:
            return True


class TrustsAnEmptyPodResources(Hasty):
    """P5, A31: it reads nothing else, and takes no notice of a kubelet's start."""

    class ledger_class(SlowLedger):
        def kubelet_started(self) -> None:
            pass

    class sources_class(HeldSources):
        def kubelet(self) -> Identity | None:
            return None

        def checkpoint(self) -> Held:
            raise KubeletError("not looked at")

    def _hear(self, event: LinkEvent) -> None:
        if not isinstance(event, KubeletStarted):
            super()._hear(event)


class SendsWhatTheKubeletHas(Hasty):
    """Each edit sends each list, changed or not."""

    class reconciler_class(Reconciler):
        def _learn_file(self, event: FileRead) -> None:
            for name in self.state.offers:
                self._link.resend(name)
            super()._learn_file(event)


class RegistersAgain(Hasty):
    """Each edit starts over with the kubelet."""

    def edit(self, data: bytes) -> None:
        before = self._registrations()
        for name in self.offered():
            self.link.register_again(name)
        eventually(lambda: all(self._registrations()[name] > before[name] for name in self.offered()), self.patience_s)
        super().edit(data)


class TakesABadFileForAnEmptyOne(Hasty):
    """Nothing is shared any more."""

    def parse(self, data: bytes) -> Config:
        return CONFIGS[0] if data == BAD else super().parse(data)


class OffersUnderTwoNames(Hasty):
    """D7, L21."""

    class reconciler_class(Reconciler):
        def _plan(self, config: Config, snapshot: Snapshot, report: HealthReport) -> Plan | None:
            plan = super()._plan(config, snapshot, report)
            if plan is None or len(plan.resources) != 1:
                return plan
            (only,) = plan.resources
            return replace(plan, resources=(only, replace(only, name="nvidia.com/b")))


@dataclass(frozen=True, slots=True)
class RenumberedUnit(Unit):
    """Its replicas are numbered from their count on."""

    def device_ids(self) -> Iterator[str]:
        """See `Unit`."""
        if self.replicas == 0:
            yield self.uuid
        for replica in range(self.replicas, 2 * self.replicas):
            yield replica_id(self.uuid, replica)


class RenumbersReplicas(Hasty):
    """Contract section 6: two replicas more, and all have other ids. None that is held goes: those stay listed."""

    class reconciler_class(Reconciler):
        def _plan(self, config: Config, snapshot: Snapshot, report: HealthReport) -> Plan | None:
            plan = super()._plan(config, snapshot, report)
            if plan is None:
                return None
            resources = tuple(
                replace(
                    one,
                    units=tuple(
                        RenumberedUnit(**{field.name: getattr(unit, field.name) for field in fields(Unit)})
                        for unit in one.units
                    ),
                )
                for one in plan.resources
            )
            return replace(plan, resources=resources)


class StaysAtItsOldSocket(Hasty):
    """S2: a kubelet that starts deletes ours; asking it to dial what is not there gets nobody registered."""

    class link_class(AccountableLink):
        def open(self, offer: Offer) -> None:
            service = ResourceService(offer, self._ledger, streams_changed=self._wake, monotonic=self._monotonic)
            with self._changed:
                self._open[offer.name] = Rooted(
                    service, self._kubelet_socket, wake=self._wake, notify=self._notify, now=self._monotonic()
                )
            self._wake()


class Rooted(Lifecycle):
    """It takes no notice when its socket is gone."""

    def _leave_lost_socket(self, now: float) -> None:
        pass


@pytest.mark.parametrize(
    ("world", "found"),
    [
        (ForgetsWhatItHandedOut, "a list drops|nil device"),  # while its Allocate runs or right after
        (NeverFrees, "waits for pods that have ended"),
        (ListsBeforeTheAllocateIsOver, "nil device"),
        (TrustsAnEmptyPodResources, "a held id is missing"),
        (SendsWhatTheKubeletHas, "touched"),
        (RegistersAgain, "touched"),
        (TakesABadFileForAnEmptyOne, "a bad file changed something"),
        (OffersUnderTwoNames, "under"),
        (RenumbersReplicas, "not what a fresh start would offer"),
        (StaysAtItsOldSocket, "not in time"),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_the_histories_find(world: type[World], found: str) -> None:
    machine = type(world.__name__, (Histories,), {"world_class": world, "occurred": Counter()})
    with pytest.raises((AssertionError, SimulatorError), match=found):
        run(machine, STEPS, shrink=False)
