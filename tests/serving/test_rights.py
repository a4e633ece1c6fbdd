"""A config that needs more than the container has (design 8, Privileges; decision 0703), on both drivers.

At start it ends the process with failOnInitError, and is left out without it; a reload is refused whole; what happens
to the node later refuses and ends nothing. The value to set is named each time.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from tests.serving.harness import MIG_NODE, TWO_T4, Node, gpu_uuid, t4s

GPU = "nvidia.com/gpu"
MAY_NOT_LIST = "fail nvmlDeviceGetMigDeviceHandleByIndex 4"
MAY_LIST = "fail nvmlDeviceGetMigDeviceHandleByIndex 0"
WAITS = ("--fail-on-init-error=false",)

PLAIN = "version: v1\n"
MIG = "version: v1\nflags: {migStrategy: mixed}\n"
CDI = "version: v1\nflags: {plugin: {deviceListStrategy: [cdi-cri]}}\n"


def mps(*gpus: int, replicas: int = 2) -> str:
    entry = f"{{name: gpu, devices: {list(gpus)}, replicas: {replicas}}}"
    return f"version: v1\nflags: {{mpsRoot: /run/nvidia/mps}}\nsharing: {{mps: {{resources: [{entry}]}}}}\n"


def lack_nothing(_: Node) -> None:
    pass


def lack_mps_root(node: Node) -> None:
    node.mps_root.rmdir()


def lack_cdi(node: Node) -> None:
    """As on the container's own root, which is read-only: nothing may be made there."""
    node.cdi_root.touch()


@dataclass(frozen=True)
class Right:
    """A value of the chart, a file that needs it, and a node whose container lacks it."""

    value: str
    file: str
    node: str
    take_away: Callable[[Node], None]
    faults: tuple[str, ...] = ()
    served_without: int = 1

    def start(self, driver: str, file: str, *args: str) -> Node:
        made = Node(self.node, file, driver=driver, faults=self.faults, args=args)
        self.take_away(made)
        made.kubelet.start()
        return made.start()


RIGHTS = (
    Right("privileges.mig", MIG, MIG_NODE, lack_nothing, (MAY_NOT_LIST,)),
    Right("mps.enabled", mps(1), TWO_T4, lack_mps_root),
    Right("cdi.enabled", CDI, TWO_T4, lack_cdi, served_without=0),
)
each_right = pytest.mark.parametrize("right", RIGHTS, ids=[one.value for one in RIGHTS])


def refusal(document: dict[str, Any]) -> str:
    """Why the newest file is refused; empty when it is in force."""
    refused = document["config"]["refused"]
    return "\n".join(refused["problems"]) if refused else ""


@each_right
def test_with_fail_on_init_error_it_ends_the_start_and_names_the_value(right: Right, driver: str) -> None:
    with right.start(driver, right.file) as node:
        assert node.wait_exit() == 1
        assert "it needs more than this container has" in node.log
        assert right.value in node.log
        assert not node.kubelet.registrations


@each_right
def test_without_it_the_rest_is_served_and_readiness_names_the_value(right: Right, driver: str) -> None:
    with right.start(driver, right.file, *WAITS) as node:
        node.wait_status(lambda document: right.value in json.dumps(document["ready"]))
        node.wait_listed(GPU)
        assert len(node.healthy()) == right.served_without
        assert node.status()["live"]["ok"]


@each_right
def test_an_edit_that_needs_it_is_refused_whole_until_a_good_one_comes(right: Right, driver: str) -> None:
    with right.start(driver, PLAIN) as node:
        node.wait_ready()
        node.wait_listed(GPU)
        before, lists = node.healthy(), len(node.kubelet.resources[GPU].lists)
        node.write_config(right.file)
        document = node.wait_status(refusal)
        assert right.value in refusal(document)
        node.wait_log("config refused, the last good one stays in force")
        assert document["config"]["in_force"] == PLAIN
        assert document["ready"]["ok"], "what was good goes on"
        assert (node.healthy(), len(node.kubelet.resources[GPU].lists)) == (before, lists)

        node.write_config(PLAIN + "# good again\n")
        node.wait_status(lambda document: not refusal(document))


@each_right
def test_what_lacks_it_already_holds_up_no_other_edit(right: Right, driver: str) -> None:
    with right.start(driver, right.file, *WAITS) as node:
        node.wait_status(lambda document: right.value in json.dumps(document["ready"]))
        node.write_config(right.file + "health: {pollInterval: 5s}\n")
        document = node.wait_status(lambda document: "pollInterval" in (document["config"]["in_force"] or ""))
        assert not refusal(document)
        node.write_config(PLAIN)
        node.wait_status(lambda document: document["ready"]["ok"])


def test_an_edit_that_adds_to_what_lacks_a_right_is_refused(driver: str) -> None:
    with Node(t4s(3), mps(1), driver=driver, args=WAITS) as node:
        lack_mps_root(node)
        node.run()
        node.wait_status(lambda document: "mps.enabled" in json.dumps(document["ready"]))
        node.write_config(mps(1, replicas=4))
        node.wait_status(lambda document: "replicas: 4" in document["config"]["in_force"])
        node.write_config(mps(1, 2))
        problem = refusal(node.wait_status(refusal))
        assert "GPU 2" in problem
        assert "GPU 1" not in problem, "it lacked the right before the edit"


def test_a_daemon_that_does_not_answer_is_no_right_that_is_lacking(driver: str) -> None:
    with Node(TWO_T4, PLAIN, driver=driver) as node:
        node.run()
        node.write_config(mps(1))
        node.wait_status(lambda document: "pipe missing" in json.dumps(document["waiting"]))
        assert not refusal(node.status())
        assert node.status()["ready"]["ok"]


def test_what_happens_to_the_node_later_ends_and_refuses_nothing(driver: str) -> None:
    """MIG is enabled where it can't be listed, with failOnInitError true: the rest is served, and edits are taken."""
    whole = "\n".join(line for line in MIG_NODE.splitlines() if not line.startswith("mig ")).replace(" mig=1", "")
    with Node(whole + "\n", MIG, driver=driver, faults=[MAY_NOT_LIST]) as node:
        node.run()
        node.wait_ready()
        node.set_node(MIG_NODE)
        node.wait_list(lambda ids: ids == (gpu_uuid(0),))
        node.wait_status(lambda document: "privileges.mig" in json.dumps(document["ready"]))
        node.write_config(MIG + "health: {pollInterval: 5s}\n")
        node.wait_status(lambda document: "pollInterval" in document["config"]["in_force"])
        node.inject(MAY_LIST)
        node.wait_ready()


def test_without_mig_strategy_a_gpu_with_mig_is_offered_whole_without_the_right(driver: str) -> None:
    """As NVIDIA's plugin does, which does not list instances then (design 8, MIG)."""
    with Node(MIG_NODE, PLAIN, driver=driver, faults=[MAY_NOT_LIST]) as node:
        node.run()
        node.wait_ready()
        assert node.healthy() == {gpu_uuid(0), gpu_uuid(1)}
