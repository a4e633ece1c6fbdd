"""Any history of edits, pods, kubelet restarts, lost GPUs and MIG layouts, and what must hold after each step."""

import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import ClassVar

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from deviceplugin.config.model import MigStrategy, SelectIndex
from deviceplugin.model.health import HealthReport
from deviceplugin.model.held import KUBELET_SETTLING_S
from deviceplugin.model.plan import Device, Health
from deviceplugin.planning.build import build
from deviceplugin.simulator import AdmittedPod
from tests.planning.nodes import A100, LOST, config, entry, gpu, mig_uuid, node, uuid
from tests.serving.moments import never_offered_twice
from tests.soak.world import BAD, World, pod

CONFIGS = tuple(
    config(*shared, strategy=strategy)
    for strategy in (MigStrategy.NONE, MigStrategy.MIXED)
    for shared in (
        (),
        (entry(2),),
        (entry(4),),
        (entry(2, SelectIndex(0)),),
        (entry(2, SelectIndex(0), rename="nvidia.com/a"), entry(2, SelectIndex(1), rename="nvidia.com/b", number=1)),
        (entry(2, SelectIndex(1), rename="nvidia.com/a"), entry(2, SelectIndex(0), rename="nvidia.com/b", number=1)),
        (entry(3, name="nvidia.com/mig-3g.20gb"),),
    )
)
SNAPSHOTS = (
    node(gpu(0), gpu(1)),
    node(gpu(0), gpu(1), gpu(2)),
    node(gpu(0), replace(gpu(1), failure=LOST)),
    node(gpu(0, A100, "3g.20gb", "3g.20gb"), gpu(1)),
    node(gpu(0, A100, "3g.20gb"), gpu(1)),
)
GPU_OF = {mig_uuid(0, slot): uuid(0) for slot in range(2)}
NAMES = ("nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/a", "nvidia.com/b", "nvidia.com/mig-3g.20gb")

config_numbers = st.integers(0, len(CONFIGS) - 1)
# Which of those that there are at the moment; taken modulo their number.
choices = st.integers(0, 11)
STEPS_EACH = 40
# A restart takes longer than all other steps together; and pods want to come and go in between.
STEPS_BETWEEN_RESTARTS = 6


class Histories(RuleBasedStateMachine):
    """One node from its start to its end. A subclass may have another world."""

    world_class: ClassVar[type[World]] = World
    occurred: ClassVar[Counter[str]] = Counter()

    @initialize(config=config_numbers)
    def begin(self, config: int) -> None:
        """A start on a node of two GPUs."""
        self.config = config
        self.world = self.world_class(CONFIGS, SNAPSHOTS[0], config)
        self.pods = 0
        self.since_restart = 0
        # What ran when a checkpoint was lost: neither the kubelet nor, in the end, we know of it (A31).
        self.orphans: frozenset[str] = frozenset()
        self.lost_at = float("inf")

    # What happens.

    @rule(config=config_numbers)
    def edit(self, config: int) -> None:
        """A good file: what it leaves as it is, is not touched."""
        self._count("edit")
        before, untouched = self.world.reconciler.state, self._touched()
        self.world.edit(str(config).encode())
        self.config = config
        after = self.world.reconciler.state
        assert before.plan is not None
        assert after.plan is not None
        for name in NAMES:
            planned = before.plan.resource(name)
            in_force = planned is not None and before.offers[name].devices == planned.devices
            if in_force and after.plan.resource(name) == planned:
                self._count("unchanged resource")
                assert self._touched()[name] == untouched[name], f"{name} was touched"

    @rule()
    def bad_edit(self) -> None:
        """A bad file: nothing whatever changes."""
        self._count("bad edit")
        before, untouched = self.world.offered(), self._touched()
        self.world.edit(BAD)
        assert self.world.offered() == before, "a bad file changed something"
        assert self._touched() == untouched, "a bad file touched something"

    @rule(choice=choices, count=st.sampled_from([1, 1, 2]))
    def admit(self, choice: int, count: int) -> None:
        """A pod comes; one for which devices are free that are to be given out must run."""
        if names := self._admitting():
            name = names[choice % len(names)]
            must_run = self._must_run(name, count)
            self._judge(self.world.admit(pod(self._next_pod(), name, count)), must_run)

    @rule(choice=choices, config=config_numbers)
    def edit_during_allocate(self, choice: int, config: int) -> None:
        """A pod comes, and the file changes while its Allocate is under way."""
        if names := self._admitting():
            self._count("edit during an Allocate")
            name = names[choice % len(names)]
            must_run = self._must_run(name, 1)
            admitted = self.world.edit_during_allocate(str(config).encode(), pod(self._next_pod(), name))
            self.config = config
            self._judge(admitted, must_run)

    @rule(choice=choices)
    def end(self, choice: int) -> None:
        """A pod ends."""
        if running := sorted(self.world.running()):
            self._count("pod ends")
            self.world.kubelet.end(running[choice % len(running)])

    @rule(number=st.integers(0, len(SNAPSHOTS) - 1))
    def inventory(self, number: int) -> None:
        """GPUs come, go and are lost; a MIG layout changes."""
        self._count("inventory")
        self.world.look(SNAPSHOTS[number])

    @rule(seconds=st.sampled_from([3.0, 20.0, 100.0]))
    def time_passes(self, seconds: float) -> None:
        """What is held is read, what was retired closes."""
        self._count("time")
        self.world.pass_time(seconds)

    @precondition(lambda self: self.since_restart >= STEPS_BETWEEN_RESTARTS)
    @rule()
    def restart(self) -> None:
        """The kubelet restarts; every pod goes on running."""
        self._count("kubelet restart")
        self.since_restart = 0
        running = self.world.running().keys()
        self.world.restart_kubelet(keep_checkpoint=True)
        assert running <= self.world.running().keys(), "a pod did not survive a kubelet restart"

    @precondition(lambda self: self.since_restart >= STEPS_BETWEEN_RESTARTS and self.lost_at == float("inf"))
    @rule()
    def lose_checkpoint(self) -> None:
        """It restarts without its checkpoint (A31); from then on it may give out what pods use."""
        self._count("checkpoint lost")
        self.since_restart = 0
        self.orphans, self.lost_at = frozenset(self.world.running()), self.world.clock()
        self.world.restart_kubelet(keep_checkpoint=False)

    # What must hold.

    @invariant()
    def no_device_is_healthy_in_two_resources(self) -> None:
        """D7, L21, over GPUs and their MIG instances, at every list that the kubelet ever had."""
        never_offered_twice(self.world.kubelet, NAMES, GPU_OF)

    @invariant()
    def no_held_id_is_missing(self) -> None:
        """L16 to L18. The stand-in has aborted if it knew of the pod; of those of a lost checkpoint it does not."""
        self.since_restart += 1
        assert self.world.kubelet.faults == ()
        forgotten = self.world.clock() - self.lost_at > KUBELET_SETTLING_S
        local = self.world.kubelet.local()
        for uid, running in self.world.running().items():
            if forgotten and uid in self.orphans:
                continue
            for name in NAMES:
                if held := running.ids(name):
                    missing = held - local[name].healthy - local[name].unhealthy
                    assert not missing, f"a held id is missing from {name}: {missing}"

    def teardown(self) -> None:
        """The end of it; of one that failed, too."""
        if not hasattr(self, "world"):
            return
        try:
            if sys.exc_info()[0] is None:
                self._end_all()
        finally:
            self.world.close()

    def _end_all(self) -> None:
        """With nothing held the node ends up as a fresh start with the same config."""
        for uid in self.world.running():
            self.world.kubelet.end(uid)
        for _ in range(3):
            self.world.pass_time(100.0)
        state = self.world.reconciler.state
        assert not state.waiting, f"waits for pods that have ended: {state.waiting}"
        plan = build(self.world.snapshot, CONFIGS[self.config], HealthReport())
        offered = {name: _on_the_wire(offer.devices) for name, offer in state.offers.items() if offer.devices}
        planned = {one.name: _on_the_wire(one.devices) for one in plan.resources if one.devices}
        assert offered == planned, "not what a fresh start would offer"

    # Helpers.

    def _count(self, event: str) -> None:
        self.occurred[event] += 1

    def _next_pod(self) -> str:
        self.pods += 1
        return f"p{self.pods}"

    def _admitting(self) -> list[str]:
        """Resources that the kubelet knows and shows a healthy device of."""
        return sorted(name for name, one in self.world.kubelet.local().items() if one.healthy)

    def _must_run(self, name: str, count: int) -> bool:
        """Whether a correct plugin serves a pod whatever devices the kubelet picks."""
        local, offer = self.world.kubelet.local()[name], self.world.reconciler.state.offers.get(name)
        free = local.healthy - local.allocated
        known = self.lost_at == float("inf")
        return known and offer is not None and len(free) >= count and not free & offer.refused.keys()

    def _judge(self, admitted: AdmittedPod, must_run: bool) -> None:
        self._count("pod runs" if admitted.phase == "Running" else "pod fails")
        if must_run:
            assert admitted.phase == "Running", f"a pod failed that could have run: {admitted.message}"

    def _touched(self) -> dict[str, tuple[int, int]]:
        """How many lists and registrations the kubelet had of each resource."""
        histories = {name: self.world.kubelet.resources[name] for name in NAMES}
        return {name: (len(one.lists), len(one.registrations)) for name, one in histories.items()}


def _on_the_wire(devices: Iterable[Device]) -> tuple[tuple[str, Health, int | None], ...]:
    """What the kubelet sees of a list: no reasons, which tell how a verdict came about."""
    return tuple((device.id, device.health, device.numa_node) for device in devices)


def run(machine: type[Histories], steps: int, *, random: bool = False, shrink: bool = True) -> None:
    """Run that many steps, in histories of `STEPS_EACH`; raises what the first bad one raised.

    Args:
        random: other histories each time.
        shrink: look for the shortest history that fails.
    """
    phases = (Phase.generate, Phase.shrink) if shrink else (Phase.generate,)
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=max(1, steps // STEPS_EACH),
            stateful_step_count=STEPS_EACH,
            deadline=None,
            database=None,
            derandomize=not random,
            phases=phases,
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        ),
    )
