"""From NVIDIA's plugin to ours and back, on a node whose pods run on: the same ids, no pod lost (drop-in.md 1 and 8.2).

NVIDIA's is a stand-in that knows nothing of ours: it serves the ids that theirs lists at the socket that theirs has.
"""

import contextlib
from collections.abc import Iterator

import pytest

from tests.serving.harness import TWO_T4, Node, gpu_uuid
from tests.simulator.naive_plugin import NaivePlugin

GPU = "nvidia.com/gpu"
WHOLE = (None, [gpu_uuid(0), gpu_uuid(1)])
SHARED = (
    "version: v1\nsharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 3}]}}\n",
    [f"{gpu_uuid(gpu)}::{replica}" for gpu in range(2) for replica in range(3)],
)


@contextlib.contextmanager
def nvidias(node: Node, ids: list[str], *, killed: bool) -> Iterator[NaivePlugin]:
    """NVIDIA's plugin on the node; it removes its socket when it stops, unless it is killed."""
    plugin = NaivePlugin(node.kubelet.registration_socket.parent, ids, GPU)
    plugin.endpoint = "nvidia-gpu.sock"
    plugin.serve().register()
    try:
        yield plugin
    finally:
        left_behind = plugin.socket.with_suffix(".left")
        left_behind.hardlink_to(plugin.socket)
        plugin.stop()
        plugin.socket.unlink(missing_ok=True)
        if killed:
            left_behind.rename(plugin.socket)
        else:
            left_behind.unlink()


def wait_allocatable(node: Node, amount: int) -> None:
    def reached() -> bool:
        found = node.kubelet.local().get(GPU)
        return found is not None and found.allocatable == amount

    node.kubelet.wait_for(reached, 15)


def all_run(node: Node) -> bool:
    return all(pod.phase == "Running" for pod in node.kubelet.pods())


def held(node: Node) -> list[str]:
    return sorted(device_id for pod in node.kubelet.pods() for device_id in pod.ids(GPU))


@pytest.mark.parametrize("killed", [False, True], ids=["it stops", "it is killed"])
@pytest.mark.parametrize(("config", "ids"), [WHOLE, SHARED], ids=["whole", "shared"])
def test_there_and_back_with_pods_that_hold(driver: str, config: str | None, ids: list[str], killed: bool) -> None:
    with Node(TWO_T4, config, driver=driver) as node:
        node.kubelet.start()
        with nvidias(node, ids, killed=killed):
            wait_allocatable(node, len(ids))
            first = node.pod("under-theirs", {GPU: 1})
            assert first.phase == "Running"

        node.start()
        node.wait_ready()
        wait_allocatable(node, len(ids))
        assert node.listed() == tuple(sorted(ids))
        assert node.healthy() == frozenset(ids), "what a pod holds as well: it is planned as it is"
        assert node.status()["resources"][0]["held"] == sorted(first.ids(GPU))
        second = node.pod("under-ours", {GPU: 1})
        assert second.phase == "Running"
        assert len(set(held(node))) == 2
        assert node.stop() == 0
        assert node.sockets() == {}

        with nvidias(node, ids, killed=killed):
            wait_allocatable(node, len(ids))
            assert all_run(node)
            rest = len(ids) - len(held(node))
            assert [node.pod(f"back-{n}", {GPU: 1}).phase for n in range(rest)] == ["Running"] * rest
            assert held(node) == sorted(ids), "each id once"
        assert all_run(node)
