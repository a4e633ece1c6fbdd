"""Admission: A1 to A14, A20, A21."""

from __future__ import annotations

from typing import Any

import pytest

from deviceplugin.simulator import Container, KubeletStopped, Pod, SimulatorError
from deviceplugin.stubs import deviceplugin_v1beta1_pb2 as pb
from tests.simulator.naive_plugin import RESOURCE, device
from tests.simulator.node import Node, holds, in_thread, pod, rejected

ONE, TWO = "e.com/one", "e.com/two"


def test_one_allocate_per_container_and_resource(node: Node) -> None:
    """A2: init containers first; one container request with ids only."""
    kubelet = node.kubelet()
    node.registered(kubelet, [f"a{n}" for n in range(4)], ONE)
    node.registered(kubelet, [f"b{n}" for n in range(4)], TWO)
    admitted = kubelet.admit(
        Pod(
            "p",
            containers=(
                Container("app", {ONE: 1, TWO: 2}),
                Container("init", {ONE: 1}, "init"),
                Container("side", {TWO: 1}, "sidecar"),
            ),
        )
    )
    assert admitted.phase == "Running", admitted.message
    calls = [(r.resource, len(r.ids)) for r in kubelet.rpcs if r.method == "Allocate" and r.phase == "begin"]
    assert calls[:2] == [(ONE, 1), (TWO, 1)]
    assert sorted(calls[2:]) == [(ONE, 1), (TWO, 2)]


def test_orders_are_random_and_repeatable(node: Node) -> None:
    """A2, A11, A17: resources and ids in the order of a seeded shuffle."""
    kubelet = node.kubelet()
    ids = [f"i{n}" for n in range(8)]
    node.registered(kubelet, ids, ONE)
    node.registered(kubelet, ids, TWO)
    orders: set[tuple[str, ...]] = set()
    firsts: set[str] = set()
    for turn in range(12):
        before = len(kubelet.rpcs)
        kubelet.end(kubelet.admit(Pod(f"p{turn}", containers=(Container("c", {ONE: 8, TWO: 8}),))).uid)
        calls = [r for r in kubelet.rpcs[before:] if r.method == "Allocate" and r.phase == "begin"]
        firsts.add(calls[0].resource)
        orders.update(r.ids for r in calls)
    assert firsts == {ONE, TWO}
    assert len(orders) > 12


def test_gate_in_its_order(node: Node) -> None:
    """A4, A5, A6: unknown resource, no healthy device (limit 0 too), too few."""
    kubelet = node.kubelet()
    unknown = kubelet.admit(pod("u"))
    assert (unknown.phase, unknown.containers["c"].options) == ("Running", None)  # A5: without the device
    plugin = node.registered(kubelet, [device("a", "Unhealthy"), device("b", "Unhealthy")])
    text = f"no healthy devices present; cannot allocate unhealthy devices {RESOURCE}"
    rejected(kubelet.admit(pod("z", 0)), text)
    rejected(kubelet.admit(pod("o", 1)), text)
    node.push(kubelet, plugin, ["a", device("b", "Unhealthy")])
    rejected(
        kubelet.admit(pod("t", 2)),
        f"requested number of devices unavailable for {RESOURCE}. Requested: 2, Available: 1",
    )
    assert kubelet.admit(pod("z", 0)).phase == "Running"
    assert "Allocate" not in plugin.seen


def test_unregistered_but_known(node: Node) -> None:
    """A4, A5, A25: deleted while held, the resource is known and unregistered; its holder can't restart meanwhile."""
    kubelet = node.kubelet(abort_on_drop=False)
    plugin = node.registered(kubelet, ["a", "b"])
    holder = kubelet.admit(pod())
    plugin.stop()
    kubelet.wait_for(lambda: kubelet.local()[RESOURCE].stopped)
    assert kubelet.restart_container(holder.uid, "c").status == "running"
    kubelet.clock.advance(301)
    kubelet.tick()
    rejected(kubelet.admit(pod("q")), f"cannot allocate unregistered device {RESOURCE}")
    waiting = kubelet.restart_container(holder.uid, "c")
    assert waiting.message == f"endpoint not found in cache for a registered resource: {RESOURCE}"
    again = node.plugin(["other"])  # A25: any ids will do
    node.register(kubelet, again)
    assert kubelet.retry_starts() == 1
    assert kubelet.pod(holder.uid).containers["c"].status == "running"


def test_unknown_resource_with_a_key_in_node_status(node: Node) -> None:
    """A5: then the predicates see it: `OutOf<resource>`."""
    kubelet = node.kubelet()
    node.registered(kubelet, ["a"]).stop()
    kubelet.wait_for(lambda: kubelet.local()[RESOURCE].stopped)
    kubelet.clock.advance(301)
    kubelet.tick()
    failed = kubelet.admit(pod())
    assert (failed.phase, failed.reason) == ("Failed", f"OutOf{RESOURCE}")
    assert [e.reason for e in kubelet.events] == [f"OutOf{RESOURCE}"]


def prefer(*ids: str, asked: list[Any] | None = None) -> Any:
    """A preferred answer that is always `ids`; requests go to `asked`."""

    def answer(request: pb.ContainerPreferredAllocationRequest) -> list[str]:
        if asked is not None:
            must, size = set(request.must_include_deviceIDs), request.allocation_size
            asked.append((set(request.available_deviceIDs), must, size))
        return list(ids)

    return answer


def test_preferred_is_a_wish(node: Node) -> None:
    """A10: unknown ids, duplicates, too few, too many, none."""
    kubelet = node.kubelet()
    ids = ["a", "b", "c", "d"]
    plugin = node.registered(kubelet, ids, preferred_answer=prefer("c", "c", "nobody"))
    for number, (answer, least) in enumerate(
        [(("c", "c", "nobody"), {"c"}), ((), set()), (("a", "b", "c"), None), (("a", "d"), {"a", "d"})]
    ):
        plugin.preferred_answer = prefer(*answer)
        admitted = kubelet.admit(pod(f"p{number}", 2))
        got = holds(admitted)
        assert len(got) == 2
        assert got >= least if least is not None else got <= {"a", "b", "c"}
        kubelet.end(admitted.uid)


def test_preferred_error_fails_the_pod(node: Node) -> None:
    """A10."""
    kubelet = node.kubelet()
    node.registered(kubelet, preferred_error="boom")
    rejected(
        kubelet.admit(pod()),
        "device plugin GetPreferredAllocation rpc failed with err: rpc error: code = Internal desc = boom",
    )


def test_preferred_is_asked_even_when_all_are_needed(node: Node) -> None:
    """A9: without hint or NUMA info."""
    kubelet = node.kubelet()
    asked: list[Any] = []
    node.registered(kubelet, ["a", "b"], preferred_answer=prefer(asked=asked))
    assert holds(kubelet.admit(pod(count=2))) == {"a", "b"}
    assert asked == [({"a", "b"}, set(), 2)]


@pytest.mark.parametrize(
    ("count", "asked"),
    [
        (1, [({"a0", "a1"}, set(), 1)]),  # A8: fewer than the aligned ones: among these
        (2, []),  # A9: exactly the aligned ones: not asked
        (3, [({"a0", "a1", "b0", "n"}, {"a0", "a1"}, 3)]),  # A8: more: all aligned are musts, size is the total
    ],
)
def test_preferred_with_a_numa_hint(node: Node, count: int, asked: list[Any]) -> None:
    """A7, A8, A9."""
    kubelet = node.kubelet()
    seen: list[Any] = []
    devices = [device("a0", numa=[0]), device("a1", numa=[0, 1]), device("b0", numa=[1]), device("n")]
    node.registered(kubelet, devices, preferred_answer=prefer("n", asked=seen))
    got = holds(kubelet.admit(pod(count=count, numa_hint=frozenset({0}))))
    assert seen == asked
    assert len(got) == count
    assert got <= {"a0", "a1"} if count < 3 else got == {"a0", "a1", "n"}


def test_must_include_are_reused_init_ids(node: Node) -> None:
    """A7, A8, A12: the app container gets its init container's id first, and asks for the rest with it as a must."""
    kubelet = node.kubelet()
    asked: list[Any] = []
    node.registered(kubelet, ["a", "b", "c"], preferred_answer=prefer(asked=asked))
    containers = (Container("i", {RESOURCE: 1}, "init"), Container("c", {RESOURCE: 2}))
    admitted = kubelet.admit(Pod("p", containers=containers))
    init_ids = admitted.containers["i"].device_ids[RESOURCE]
    assert init_ids < admitted.containers["c"].device_ids[RESOURCE]
    assert asked[1] == ({"a", "b", "c"}, set(init_ids), 2)


def test_plain_init_ids_are_held_for_the_pods_life_and_sidecars_are_not_reused(node: Node) -> None:
    """A12, A9: reuse that satisfies everything asks nobody."""
    kubelet = node.kubelet()
    asked: list[Any] = []
    node.registered(kubelet, ["a", "b", "c", "d"], preferred_answer=prefer(asked=asked))
    containers = (
        Container("i", {RESOURCE: 2}, "init"),
        Container("s", {RESOURCE: 1}, "sidecar"),
        Container("c", {RESOURCE: 1}),
    )
    admitted = kubelet.admit(Pod("p", containers=containers))
    parts = {name: set(view.device_ids[RESOURCE]) for name, view in admitted.containers.items()}
    assert parts["s"] < parts["i"]
    assert parts["c"] < parts["i"]
    assert not parts["s"] & parts["c"]
    assert len(asked) == 1
    assert kubelet.local()[RESOURCE].allocated == parts["i"]
    rejected(kubelet.admit(pod("q", 3)), "requested number of devices unavailable")


def test_ids_are_freed_lazily(node: Node) -> None:
    """A13: not at the end of the pod, but at the next admission that wants a known device."""
    kubelet = node.kubelet()
    node.registered(kubelet, ["a"])
    first = kubelet.admit(pod())
    kubelet.terminate(first.uid)
    rejected(kubelet.admit(pod("r")), "requested number of devices unavailable")  # a terminating pod still holds
    kubelet.end(first.uid)
    kubelet.admit(Pod("without", containers=(Container("c"),)))
    assert kubelet.local()[RESOURCE].allocated == {"a"}
    assert holds(kubelet.admit(pod("q"))) == {"a"}
    with pytest.raises(SimulatorError):
        kubelet.restart_container(first.uid, "c")


def test_admission_is_serial_and_waits_for_ever(node: Node) -> None:
    """A3, A21: a hung Allocate holds up every other admission; an hour does not end it."""
    kubelet = node.kubelet()
    plugin = node.registered(kubelet, ["a", "b"])
    plugin.block()
    first, second = kubelet.submit(pod("p")), kubelet.submit(pod("q"))
    assert plugin.allocating.acquire(timeout=10)
    kubelet.clock.advance(3600)
    other = in_thread(lambda: kubelet.admit(pod("r", 0)))
    assert not plugin.allocating.acquire(timeout=0.05)
    assert not first.done()
    assert len(kubelet.resources[RESOURCE].calls("Allocate")) == 1
    plugin.release()
    assert holds(first.result(10)) | holds(second.result(10)) == {"a", "b"}
    other.join(10)


def test_a_list_call_during_allocate_loses_the_ids(node: Node) -> None:
    """A14: with a pod just ended and another holding one of two, both ids count as free and are given out again."""
    kubelet = node.kubelet()
    plugin = node.registered(kubelet, ["a", "b"])
    ended = kubelet.admit(pod("ended"))
    plugin.block()
    racing = kubelet.submit(pod("racing"))
    assert plugin.allocating.acquire(timeout=10)
    assert plugin.allocating.acquire(timeout=10)
    assert kubelet.local()[RESOURCE].allocated == {"a", "b"}
    kubelet.end(ended.uid)
    with node.pod_resources() as stub:
        stub.List()
    assert kubelet.local()[RESOURCE].allocated == frozenset()
    plugin.release()
    mine = holds(racing.result(10))
    assert kubelet.local()[RESOURCE].allocated == frozenset()
    assert holds(kubelet.admit(pod("double", 2))) > mine


def test_a_rejected_pod_is_never_retried(node: Node) -> None:
    """A20: whatever the plugin does later."""
    kubelet = node.kubelet()
    plugin = node.registered(kubelet, ["a"], allocate_error="no")
    failed = kubelet.admit(pod())
    plugin.allocate_error = ""
    kubelet.clock.advance(600)
    kubelet.retry_starts()
    kubelet.restart()
    assert kubelet.pod(failed.uid) == failed
    assert [(e.pod_uid, e.reason) for e in kubelet.events] == [(failed.uid, "UnexpectedAdmissionError")]
    assert plugin.seen.count("Allocate") == 1


def test_the_kubelet_may_stop_during_an_allocate(node: Node) -> None:
    """S4, A27: the pod stays bound; the next process admits it."""
    kubelet = node.kubelet()
    plugin = node.registered(kubelet, ["a"])
    plugin.block()
    pending = kubelet.submit(pod())
    assert plugin.allocating.acquire(timeout=10)
    kubelet.stop()
    with pytest.raises(KubeletStopped):
        pending.result(10)
    assert kubelet.pods()[0].phase == "Pending"
    plugin.stop()
    kubelet.start()
    rejected(kubelet.pods()[0], "no healthy devices present")


def test_the_scheduler_sees_the_pushed_status_only(node: Node) -> None:
    """L11, section 6: between a list and the next push a pod is bound that the node can't run."""
    kubelet = node.kubelet()
    plugin = node.registered(kubelet, ["a", "b"])
    assert not kubelet.fits(pod())
    kubelet.tick()
    assert kubelet.fits(pod(count=2))
    assert not kubelet.fits(pod(count=3))
    node.push(kubelet, plugin, ["a"])
    assert kubelet.fits(pod(count=2))
    rejected(kubelet.admit(pod(count=2)), "requested number of devices unavailable")


def test_a_pod_must_make_sense(node: Node) -> None:
    """Names of containers are unique, counts are not negative, the runtime is ready."""
    kubelet = node.kubelet(start=False)
    with pytest.raises(KubeletStopped):
        kubelet.admit(pod())
    kubelet.start(runtime_ready=False)
    with pytest.raises(KubeletStopped):
        kubelet.admit(pod())
    kubelet.runtime_ready()
    with pytest.raises(SimulatorError):
        kubelet.admit(Pod("p", containers=(Container("c"), Container("c"))))
    with pytest.raises(SimulatorError):
        kubelet.admit(pod(count=-1))
