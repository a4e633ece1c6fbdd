"""Kill, hang, refuse, edit, leave, hold, release and restart in any order: what MPS promises holds after each.

A share is Healthy exactly when the daemon of its GPU answers with the limits that the share was planned with; no daemon
is replaced by what does not concern it (pid and start time); compute modes end where they began.
"""

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import pytest

from deviceplugin.model.computemode import ComputeMode
from deviceplugin.simulator import AdmittedPod
from tests.serving.harness import DRIVERS, TWO_T4, Node, gpu_uuid
from tests.serving.supervisor import Supervisor

NAMES = ("nvidia.com/a", "nvidia.com/b")
SEEDS = (1, 2, 3)
STEPS = 9
# Starts that fail back off to a minute.
SETTLE_S = 75
BEFORE = (ComputeMode.DEFAULT, ComputeMode.PROHIBITED)
WORDS = ("kill", "hang", "refuse", "edit", "edit", "leave", "hold", "hold", "release", "restart", "end", "touch")


@dataclass(frozen=True, slots=True)
class Terms:
    """What the config says of a GPU."""

    kind: str = "mps"
    replicas: int = 4


@dataclass(slots=True)
class Group:
    """What is known of a GPU.

    Attributes:
        terms: as in the config now.
        hangs, refuses: its daemons do.
        down: none runs, since the last one has ended and the next ones refuse to start.
        pod: holds a share.
        held_on: by which terms that was given out.
        daemon: pid and start time of the one that runs.
        touched: whether its daemon may be another one after this step.
    """

    gpu: int
    terms: Terms = Terms()
    hangs: bool = False
    refuses: bool = False
    down: bool = False
    pod: AdmittedPod | None = None
    held_on: Terms = Terms()
    daemon: tuple[int, int] = (0, 0)
    touched: bool = True

    @property
    def name(self) -> str:
        return NAMES[self.gpu]

    @property
    def waits(self) -> bool:
        return self.pod is not None and self.held_on != self.terms

    @property
    def runs_on(self) -> Terms:
        """The terms of the daemon that there is, or should be."""
        return self.held_on if self.waits else self.terms

    @property
    def by_mps(self) -> bool:
        return self.runs_on.kind == "mps"

    def healthy(self) -> frozenset[str]:
        if self.waits or (self.by_mps and (self.hangs or self.down)):
            return frozenset()
        return frozenset(f"{gpu_uuid(self.gpu)}::{n}" for n in range(self.terms.replicas))

    def replaced(self) -> None:
        """Its daemon ends, for another one or for good."""
        self.touched = True
        self.down = self.refuses


def config(groups: list[Group]) -> str:
    entries = {
        kind: "".join(
            f"    - {{name: nvidia.com/gpu, devices: [{one.gpu}], rename: {one.name}, "
            f"replicas: {one.terms.replicas}}}\n"
            for one in groups
            if one.terms.kind == kind
        )
        for kind in ("mps", "timeSlicing")
    }
    sections = "".join(f"  {kind}:\n    resources:\n{lines}" for kind, lines in entries.items() if lines)
    return f"version: v1\nsharing:\n{sections}"


class Story:
    """A node with its supervisor, and what happens to them."""

    def __init__(self, node: Node, supervisor: Supervisor, groups: list[Group], seed: int) -> None:
        self.node, self.supervisor, self.groups = node, supervisor, groups
        self.random = random.Random(seed)  # noqa: S311 -- a story, not a secret
        self.told: list[str] = []

    def steps(self) -> Iterator[str]:
        while len(self.told) < STEPS:
            one = self.random.choice(self.groups)
            word = self.random.choice(WORDS)
            if getattr(self, word)(one):
                self.told.append(f"{word} {one.name}")
                yield self.told[-1]

    def kill(self, one: Group) -> bool:
        if one.hangs or one.down or not one.by_mps:
            return False
        os.kill(one.daemon[0], signal.SIGKILL)
        one.replaced()
        if not one.refuses:
            self.supervisor.wait_serving(one.gpu, one.name, other_than=one.daemon)
        return True

    def hang(self, one: Group) -> bool:
        if one.refuses:
            return False  # whether it is ended before it answers again would be a matter of luck
        one.hangs = self.toggle("hang", one, one.hangs)
        one.touched = True
        return True

    def refuse(self, one: Group) -> bool:
        if one.hangs:
            return False
        one.refuses = self.toggle("refuse", one, one.refuses)
        one.touched = one.down
        one.down = one.down and one.refuses
        return True

    def toggle(self, fault: str, one: Group, on: bool) -> bool:
        (self.node.mps_faults.clear if on else self.node.mps_faults.set)(fault, one.name)
        return not on

    def edit(self, one: Group) -> bool:
        return self.change(one, replace(one.terms, replicas=6 - one.terms.replicas))

    def leave(self, one: Group) -> bool:
        return self.change(one, replace(one.terms, kind="timeSlicing" if one.terms.kind == "mps" else "mps"))

    def change(self, one: Group, terms: Terms) -> bool:
        if one.pod is not None and one.held_on.kind == terms.kind == "timeSlicing":
            return False  # nothing of a held share depends on the replicas there: nothing waits
        one.terms = terms
        if one.pod is None:
            one.replaced()
        self.node.write_config(config(self.groups))
        return True

    def hold(self, one: Group) -> bool:
        if one.pod is not None or not one.healthy():
            return False
        one.pod, one.held_on = self.node.pod(f"pod-{len(self.told)}", {one.name: 1}), one.terms
        assert one.pod.containers["main"].options is not None, one.pod.message
        return True

    def release(self, one: Group) -> bool:
        if one.pod is None:
            return False
        waited = one.waits
        self.node.kubelet.end(one.pod.uid)
        one.pod = None
        if waited:
            one.replaced()
        return True

    def restart(self, one: Group) -> bool:
        self.supervisor.stop(signal.SIGKILL)
        self.supervisor.start()
        return True

    def end(self, one: Group) -> bool:
        self.stop()
        for every in self.groups:
            every.replaced()
        self.supervisor.start()
        return True

    def stop(self) -> None:
        self.supervisor.wait_started()
        assert self.supervisor.stop() == 0
        assert self.modes() == list(BEFORE)

    def touch(self, one: Group) -> bool:
        self.node.write_config(config(self.groups) + f"# {len(self.told)}\n")
        return True

    def modes(self) -> list[int]:
        return [self.supervisor.compute_mode(one.gpu) for one in self.groups]

    def settled(self) -> bool:
        lists = self.node.kubelet.resources
        return all(lists[one.name].lists and self.node.healthy(one.name) == one.healthy() for one in self.groups)

    def check(self) -> None:
        self.node.kubelet.wait_for(self.settled, SETTLE_S)
        for one in self.groups:
            if not one.by_mps:
                self.supervisor.wait(partial(self.has_left, one), SETTLE_S)
                one.daemon = (0, 0)
            elif not one.hangs and not one.down:
                limits = f"{100 // one.runs_on.replicas}.0"
                self.supervisor.wait(partial(self.answers, one, limits), SETTLE_S)
                now = self.supervisor.wait_serving(one.gpu, one.name)
                assert one.touched or now == one.daemon, f"the daemon of {one.name} was replaced"
                assert self.supervisor.compute_mode(one.gpu) == ComputeMode.EXCLUSIVE_PROCESS
                one.daemon, one.touched = now, False

    def has_left(self, one: Group) -> bool:
        mode = self.supervisor.compute_mode(one.gpu)
        return self.supervisor.daemon(one.gpu, one.name) == (0, 0) and mode == BEFORE[one.gpu]

    def answers(self, one: Group, percentage: str) -> bool:
        try:
            return self.supervisor.ask("get_default_active_thread_percentage", one.gpu, one.name) == percentage
        except AssertionError:
            return False


def set_modes(node: Node) -> None:
    """The compute modes before MPS had the GPUs."""
    program = (
        "import sys; from deviceplugin.driver.computemode import open_compute_modes as open; "
        "from deviceplugin.model.computemode import ComputeMode as Mode; "
        "modes = open(sys.argv[1], container_driver_root='/driver-root'); "
        "[modes.set(uuid, Mode(int(mode))) for uuid, mode in zip(sys.argv[2::2], sys.argv[3::2])]"
    )
    words = [word for gpu, mode in enumerate(BEFORE) for word in (gpu_uuid(gpu), str(int(mode)))]
    spec = node.flags()[0].removeprefix("--driver=")
    subprocess.run([sys.executable, "-c", program, spec, *words], env=node.environ(), check=True)


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("seed", SEEDS)
def test_any_order(driver: str, seed: int) -> None:
    groups = [Group(0), Group(1)]
    args = ("--mps-root=/run/nvidia/mps",)
    with Node(TWO_T4, config(groups), driver=driver, args=args, mps=True) as node:
        set_modes(node)
        with Supervisor(node) as supervisor:
            node.run(*NAMES)
            story = Story(node, supervisor, groups, seed)
            story.check()
            for step in story.steps():
                try:
                    story.check()
                except Exception as error:
                    raise AssertionError(f"after {story.told}, last {step}: {groups}") from error
            story.stop()
