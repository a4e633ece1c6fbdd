"""PodResources: P1 to P7, L19."""

from __future__ import annotations

import stat

import grpc

from deviceplugin.simulator import Container, Pod
from deviceplugin.stubs import podresources_v1_pb2 as pr
from tests.simulator.naive_plugin import RESOURCE, device
from tests.simulator.node import Node, holds, pod, refusal


def entries(container: pr.ContainerResources) -> list[tuple[str, tuple[str, ...], tuple[int, ...]]]:
    """(resource, ids, NUMA nodes) of each entry, sorted."""
    return sorted(
        (d.resource_name, tuple(d.device_ids), tuple(n.ID for n in d.topology.nodes)) for d in container.devices
    )


def test_list_shows_active_pods_without_plain_init_containers(node: Node) -> None:
    """P2, P3: pods without devices too; one entry per id and NUMA node."""
    kubelet = node.kubelet()
    node.registered(kubelet, [device("a", numa=[0, 1]), device("b")])
    kubelet.admit(Pod("bare", "ns", (Container("x"),)))
    containers = (Container("i", {RESOURCE: 1}, "init"), Container("s", kind="sidecar"), Container("c", {RESOURCE: 2}))
    admitted = kubelet.admit(Pod("p", containers=containers))
    assert holds(admitted) == {"a", "b"}
    with node.pod_resources() as stub:
        bare, full = stub.List().pod_resources
        assert (bare.name, bare.namespace, [c.name for c in bare.containers]) == ("bare", "ns", ["x"])
        assert [c.name for c in full.containers] == ["s", "c"]
        assert entries(full.containers[1]) == [
            (RESOURCE, ("a",), (0,)),
            (RESOURCE, ("a",), (1,)),
            (RESOURCE, ("b",), ()),
        ]
        assert (
            not full.containers[1]
            .devices[[d.device_ids[0] for d in full.containers[1].devices].index("b")]
            .HasField("topology")
        )
        kubelet.end(admitted.uid)
        assert [p.name for p in stub.List().pod_resources] == ["bare"]
        assert kubelet.local().get(RESOURCE) is not None
        assert kubelet.held() == {}  # P6, A13: List pruned it


def test_vanished_ids_are_still_shown(node: Node) -> None:
    """P3."""
    kubelet = node.kubelet(abort_on_drop=False)
    plugin = node.registered(kubelet, ["a"])
    kubelet.admit(pod())
    node.push(kubelet, plugin, [])
    with node.pod_resources() as stub:
        assert entries(stub.List().pod_resources[0].containers[0]) == [(RESOURCE, ("a",), ())]


def test_get_allocatable(node: Node) -> None:
    """P4, L19: healthy ones, allocated or not; topology without nodes makes a device vanish."""
    kubelet = node.kubelet()
    with node.pod_resources() as stub:
        assert list(stub.GetAllocatableResources().devices) == []
        node.registered(
            kubelet,
            [device("a"), device("b", "Unhealthy"), device("n", numa=[0, 1]), device("v", numa=[])],
        )
        kubelet.admit(pod(count=3))
        found = sorted(
            (d.device_ids[0], [n.ID for n in d.topology.nodes]) for d in stub.GetAllocatableResources().devices
        )
    assert found == [("a", []), ("n", [0]), ("n", [1])]


def test_get(node: Node) -> None:
    """P4: one active pod, or an error; Get does not prune (A14)."""
    kubelet = node.kubelet()
    node.registered(kubelet, ["a"])
    admitted = kubelet.admit(pod("p"))
    with node.pod_resources() as stub:
        assert stub.Get("p").pod_resources.name == "p"
        kubelet.end(admitted.uid)
        assert refusal(lambda: stub.Get("p"))[0] is grpc.StatusCode.UNKNOWN
        assert refusal(lambda: stub.Get("p", "elsewhere"))[0] is grpc.StatusCode.UNKNOWN
        assert kubelet.local()[RESOURCE].allocated == {"a"}


def test_list_grows_pod_by_pod_after_a_restart(node: Node) -> None:
    """P5: served before the checkpoint is read and before any pod is known; then pod by pod, oldest first."""
    kubelet = node.kubelet()
    node.registered(kubelet, ["a", "b"])
    pods = [kubelet.admit(pod(name)) for name in ("p", "q")]
    kubelet.stop()
    kubelet.start(runtime_ready=False)
    with node.pod_resources() as stub:
        assert list(stub.List().pod_resources) == []
        kubelet.runtime_ready(readmit=False)
        assert list(stub.List().pod_resources) == []
        for number in (1, 2):
            again = kubelet.readmit_next()
            assert again is not None
            assert again.uid == pods[number - 1].uid
            listed = stub.List().pod_resources
            assert [p.name for p in listed] == ["p", "q"][:number]
            assert entries(listed[-1].containers[0])
        assert kubelet.readmit_next() is None
    assert kubelet.local()[RESOURCE].allocated == {"a", "b"}


def test_ids_show_after_allocate_only(node: Node) -> None:
    """P6, P7: the pod is visible during its Allocate, its ids are not; nothing deadlocks."""
    kubelet = node.kubelet()
    plugin = node.registered(kubelet, ["a"])
    plugin.block()
    pending = kubelet.submit(pod())
    assert plugin.allocating.acquire(timeout=10)
    with node.pod_resources() as stub:
        assert entries(stub.List().pod_resources[0].containers[0]) == []
        assert stub.Get("p").pod_resources.name == "p"
        assert len(stub.GetAllocatableResources().devices) == 1
        plugin.release()
        holds(pending.result(10))
        assert len(entries(stub.List().pod_resources[0].containers[0])) == 1


def test_a_rejected_pod_vanishes(node: Node) -> None:
    """P6."""
    kubelet = node.kubelet()
    node.registered(kubelet, ["a"])
    kubelet.admit(Pod("p", containers=(Container("c", {RESOURCE: 1}), Container("d", {RESOURCE: 1}))))
    assert kubelet.held() != {}
    with node.pod_resources() as stub:
        assert list(stub.List().pod_resources) == []
    assert kubelet.held() == {}


def test_rate_limit(node: Node) -> None:
    """P1: burst 10, then 100 per second of the kubelet's clock, shared by all methods and clients."""
    kubelet = node.kubelet()
    with node.pod_resources() as stub, node.pod_resources() as other:
        for _ in range(5):
            stub.List()
            other.GetAllocatableResources()
        assert refusal(stub.List) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit")
        assert refusal(lambda: other.Get("p"))[0] is grpc.StatusCode.RESOURCE_EXHAUSTED
        kubelet.clock.advance(0.02)
        stub.List()
        stub.List()
        assert refusal(stub.List)[0] is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_directory_mode_and_replacement(node: Node) -> None:
    """P1: 0750, and a new socket in the place of the old one at each start."""
    kubelet = node.kubelet()
    path = kubelet.pod_resources_socket
    assert stat.S_IMODE(path.parent.stat().st_mode) & 0o027 == 0
    inode = path.stat().st_ino
    kubelet.stop()
    assert path.is_socket()
    kubelet.start()
    assert path.stat().st_ino != inode or path.is_socket()
    with node.pod_resources() as stub:
        stub.List()
    assert [p.name for p in path.parent.iterdir() if not p.name.startswith(".")] == ["kubelet.sock"]
