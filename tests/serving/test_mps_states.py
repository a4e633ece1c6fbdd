"""Kill, hang, edit, hold, release and restart in any order: what MPS promises holds after each.

A share is Healthy exactly when the daemon of its GPU answers with the limits that the share was planned with; no daemon
is replaced by what does not concern it (pid and start time); compute modes end where they began.
"""

import os
import random
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import pytest

from deviceplugin.simulator import AdmittedPod
from tests.serving.harness import DRIVERS, TWO_T4, Node, gpu_uuid
from tests.serving.supervisor import Supervisor

NAMES = ("nvidia.com/a", "nvidia.com/b")
SEEDS = (1, 2)
STEPS = 8
SETTLE_S = 40


@dataclass(slots=True)
class Group:
    """What is known of a GPU.

    Attributes:
        replicas: as the config says now.
        held_on: replicas of the config by which its pod's share was given out; 0 without a pod.
        touched: whether its daemon may be another one after this step.
    """

    gpu: int
    replicas: int = 4
    hangs: bool = False
    pod: AdmittedPod | None = None
    held_on: int = 0
    daemon: tuple[int, int] = (0, 0)
    touched: bool = True

    @property
    def name(self) -> str:
        return NAMES[self.gpu]

    @property
    def waits(self) -> bool:
        return self.pod is not None and self.held_on != self.replicas

    def healthy(self) -> frozenset[str]:
        if self.hangs or self.waits:
            return frozenset()
        return frozenset(f"{gpu_uuid(self.gpu)}::{n}" for n in range(self.replicas))


def config(groups: list[Group]) -> str:
    entries = "".join(
        f"    - {{name: nvidia.com/gpu, devices: [{one.gpu}], rename: {one.name}, replicas: {one.replicas}}}\n"
        for one in groups
    )
    return f"version: v1\nsharing:\n  mps:\n    resources:\n{entries}"


class Story:
    """A node with its supervisor, and what happens to them."""

    def __init__(self, node: Node, supervisor: Supervisor, groups: list[Group], seed: int) -> None:
        self.node, self.supervisor, self.groups = node, supervisor, groups
        self.random = random.Random(seed)  # noqa: S311 -- a story, not a secret
        self.told: list[str] = []

    def steps(self) -> Iterator[str]:
        while len(self.told) < STEPS:
            one = self.random.choice(self.groups)
            word = self.random.choice(("kill", "hang", "edit", "edit", "hold", "hold", "release", "restart", "touch"))
            if getattr(self, word)(one):
                self.told.append(f"{word} {one.name}")
                yield self.told[-1]

    def kill(self, one: Group) -> bool:
        if one.hangs:
            return False
        os.kill(one.daemon[0], signal.SIGKILL)
        self.node.kubelet.wait_for(lambda: not self.node.healthy(one.name), SETTLE_S)
        self.supervisor.wait_serving(one.gpu, one.name, other_than=one.daemon)
        one.touched = True
        return True

    def hang(self, one: Group) -> bool:
        one.hangs = not one.hangs
        (self.node.mps_faults.set if one.hangs else self.node.mps_faults.clear)("hang", one.name)
        one.touched = True
        return True

    def edit(self, one: Group) -> bool:
        one.replicas = 6 - one.replicas
        one.touched = one.pod is None
        self.node.write_config(config(self.groups))
        return True

    def hold(self, one: Group) -> bool:
        if one.pod is not None or not one.healthy():
            return False
        one.pod, one.held_on = self.node.pod(f"pod-{len(self.told)}", {one.name: 1}), one.replicas
        assert one.pod.containers["main"].options is not None, one.pod.message
        return True

    def release(self, one: Group) -> bool:
        if one.pod is None:
            return False
        one.touched = one.waits
        self.node.kubelet.end(one.pod.uid)
        one.pod, one.held_on = None, 0
        return True

    def restart(self, one: Group) -> bool:
        self.supervisor.stop(signal.SIGKILL)
        self.supervisor.start()
        return True

    def touch(self, one: Group) -> bool:
        self.node.write_config(config(self.groups) + f"# {len(self.told)}\n")
        return True

    def settled(self) -> bool:
        lists = self.node.kubelet.resources
        return all(lists[one.name].lists and self.node.healthy(one.name) == one.healthy() for one in self.groups)

    def check(self) -> None:
        self.node.kubelet.wait_for(self.settled, SETTLE_S)
        for one in self.groups:
            if one.hangs:
                continue
            replicas = one.held_on if one.waits else one.replicas
            limits = f"{100 // replicas}.0"
            self.supervisor.wait(partial(self.answers, one, limits), SETTLE_S)
            now = self.supervisor.wait_serving(one.gpu, one.name)
            assert one.touched or now == one.daemon, f"the daemon of {one.name} was replaced"
            one.daemon, one.touched = now, False

    def answers(self, one: Group, percentage: str) -> bool:
        try:
            return self.supervisor.ask("get_default_active_thread_percentage", one.gpu, one.name) == percentage
        except AssertionError:
            return False


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("seed", SEEDS)
def test_any_order(driver: str, seed: int) -> None:
    groups = [Group(0), Group(1)]
    args = ("--mps-root=/run/nvidia/mps",)
    with (
        Node(TWO_T4, config(groups), driver=driver, args=args, mps=True) as node,
        Supervisor(node) as supervisor,
    ):
        node.run(*NAMES)
        story = Story(node, supervisor, groups, seed)
        story.check()
        for step in story.steps():
            try:
                story.check()
            except Exception as error:
                raise AssertionError(f"after {story.told}, last {step}: {groups}") from error
        node.mps_faults.clear("hang", NAMES[0])
        node.mps_faults.clear("hang", NAMES[1])
        assert supervisor.stop() == 0
        assert [supervisor.compute_mode(gpu) for gpu in (0, 1)] == [0, 0]
