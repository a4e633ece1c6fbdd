"""Lists and node status: L1 to L20, S7, H1 to H5."""

from __future__ import annotations

import threading

import pytest

from deviceplugin.simulator import Clock, Container, HeldDeviceDropped, KubeletPanic, Pod
from tests.simulator.naive_plugin import RESOURCE, device
from tests.simulator.node import Node, holds, in_thread, pod


def test_a_list_replaces_everything(node: Node) -> None:
    """L1, L8."""
    kubelet = node.kubelet()
    plugin = node.registered(kubelet, ["a", "b"])
    node.push(kubelet, plugin, ["c", device("d", "Unhealthy")])
    local = kubelet.local()[RESOURCE]
    assert (set(local.healthy), set(local.unhealthy)) == ({"c"}, {"d"})
    assert (local.capacity, local.allocatable) == (2, 1)


@pytest.mark.parametrize("health", ["healthy", "", "HEALTHY", " Healthy", "Unknown"])
def test_health_is_one_exact_word(node: Node, health: str) -> None:
    """L2."""
    kubelet = node.kubelet()
    node.registered(kubelet, [device("a", health)])
    assert kubelet.local()[RESOURCE].unhealthy == {"a"}


def test_duplicates_and_odd_ids(node: Node) -> None:
    """L3, L4."""
    kubelet = node.kubelet()
    plugin = node.registered(kubelet, ["a", "a", "", "x" * 300])
    assert kubelet.local()[RESOURCE].healthy == {"a", "", "x" * 300}
    node.push(kubelet, plugin, ["a", device("a", "Unhealthy")])
    local = kubelet.local()[RESOURCE]
    assert (local.capacity, local.allocatable) == (2, 1)


def test_empty_list(node: Node) -> None:
    """L5, L6: absent before the first list, 0/0 with an empty one."""
    kubelet = node.kubelet()
    kubelet.tick()
    assert RESOURCE not in kubelet.node_status()
    node.registered(kubelet, [])
    kubelet.tick()
    assert kubelet.node_status()[RESOURCE] == (0, 0)
    assert not kubelet.local()[RESOURCE].stopped


def test_old_ids_stay_unhealthy_until_the_first_new_list(node: Node) -> None:
    """L6, L7: after the stream ended, and after a new registration, until its list comes."""
    kubelet = node.kubelet()
    plugin = node.registered(kubelet, ["a", "b"])
    plugin.stop()
    kubelet.wait_for(lambda: kubelet.local()[RESOURCE].stopped)
    assert kubelet.local()[RESOURCE].unhealthy == {"a", "b"}
    again = node.plugin(["a", "b", "c"])
    node.register(kubelet, again)
    assert kubelet.local()[RESOURCE].healthy == {"a", "b", "c"}


def test_a_list_over_4_mib_kills_the_stream(node: Node) -> None:
    """L7, R10."""
    kubelet = node.kubelet()
    plugin = node.registered(kubelet, ["a"])
    plugin.push([f"{n:0100d}" for n in range(45_000)])
    kubelet.wait_for(lambda: kubelet.local()[RESOURCE].stopped)
    assert "ResourceExhausted" in str(kubelet.resources[RESOURCE].finished("ListAndWatch")[0].error)
    assert kubelet.local()[RESOURCE].unhealthy == {"a"}


def test_the_kubelet_never_dials_again(node: Node) -> None:
    """L7: not even when the plugin serves on, for as long as you like."""
    kubelet = node.kubelet()
    plugin = node.registered(kubelet, ["a"])
    plugin.end_streams()
    kubelet.wait_for(lambda: kubelet.local()[RESOURCE].stopped)
    kubelet.clock.advance(200)
    kubelet.tick()
    assert plugin.seen.count("ListAndWatch") == 1
    assert len(kubelet.resources[RESOURCE].calls("ListAndWatch")) == 1


def test_grace_and_deletion(node: Node) -> None:
    """L9, L10: (N,0) for strictly more than 5 minutes, tested on a tick only; then 0/0 and the key stays."""
    kubelet = node.kubelet()
    plugin = node.registered(kubelet, ["a", "b"])
    kubelet.tick()
    plugin.stop()
    kubelet.wait_for(lambda: kubelet.local()[RESOURCE].stopped)
    kubelet.clock.advance(300)
    kubelet.tick()
    assert kubelet.node_status()[RESOURCE] == (2, 0)
    kubelet.clock.advance(0.001)
    assert RESOURCE in kubelet.local()
    kubelet.tick()
    assert RESOURCE not in kubelet.local()
    assert kubelet.node_status()[RESOURCE] == (0, 0)
    kubelet.restart()
    kubelet.tick()
    assert kubelet.node_status()[RESOURCE] == (0, 0)


def test_status_is_pushed_on_ticks_only_and_only_if_changed(node: Node) -> None:
    """L11, L12."""
    kubelet = node.kubelet()
    plugin = node.registered(kubelet, ["a"])
    assert kubelet.node_status() == {}
    assert kubelet.tick()
    assert not kubelet.tick()
    node.push(kubelet, plugin, [])
    node.push(kubelet, plugin, ["a"])
    assert not kubelet.tick()
    assert [s.resources for s in kubelet.status_history] == [{RESOURCE: (1, 1)}]
    kubelet.clock.advance(450)
    assert kubelet.tick()


def test_automatic_ticks_keep_their_period(node: Node) -> None:
    """L11: the fast push after a start, then 10.0 to 10.4 s after the last one, on the kubelet's clock."""
    kubelet = node.kubelet(automatic=True, start=False)
    kubelet.start()
    kubelet.clock.advance(0.1)
    kubelet.wait_for(lambda: len(kubelet.status_history) == 1)
    node.registered(kubelet, ["a"])
    kubelet.clock.advance(9.9)
    assert kubelet.node_status() == {}
    kubelet.clock.advance(0.6)
    kubelet.wait_for(lambda: kubelet.node_status() == {RESOURCE: (1, 1)})


def test_every_list_writes_the_checkpoint(node: Node) -> None:
    """L13."""
    kubelet = node.kubelet()
    plugin = node.registered(kubelet, ["a"])
    before = kubelet.checkpoint_writes
    node.push(kubelet, plugin, ["a"])
    node.push(kubelet, plugin, ["a"])
    assert kubelet.checkpoint_writes == before + 2


def test_a_held_id_stays_held(node: Node) -> None:
    """L14, L15: Unhealthy or dropped, its holder keeps it, the container restarts, new pods get others."""
    kubelet = node.kubelet(abort_on_drop=False)
    plugin = node.registered(kubelet, ["a"])
    first = kubelet.admit(pod())
    node.push(kubelet, plugin, [device("a", "Unhealthy"), "b"])
    assert kubelet.restart_container(first.uid, "c").status == "running"
    assert kubelet.pod_health(first.uid) == {"c": {RESOURCE: {"a": "Unhealthy"}}}
    assert "previously allocated devices are no longer healthy" in str(kubelet.resize(first.uid))
    assert holds(kubelet.admit(pod("q"))) == {"b"}
    node.push(kubelet, plugin, ["b"])
    assert kubelet.pod_health(first.uid) == {"c": {RESOURCE: {"a": "Healthy"}}}  # L16, H2
    assert kubelet.local()[RESOURCE].allocated == {"a", "b"}
    assert [(f.statement, f.ids) for f in kubelet.faults] == [("L16", ("a",))]


def test_dropping_the_id_of_an_ended_pod_is_no_fault(node: Node) -> None:
    """L16: "held" ends with the pod, though the kubelet frees its table later (A13)."""
    kubelet = node.kubelet()
    plugin = node.registered(kubelet, ["a", "b"])
    kubelet.end(kubelet.admit(pod(count=2)).uid)
    node.push(kubelet, plugin, [])
    assert kubelet.faults == ()


def test_l16_aborts_the_test(node: Node) -> None:
    """F18: every further use raises, and so does close."""
    kubelet = node.kubelet()
    plugin = node.registered(kubelet, ["a"])
    admitted = kubelet.admit(pod())
    plugin.push(["b"])
    with pytest.raises(HeldDeviceDropped, match=r"drops a, held by .*\(L16\)"):
        kubelet.wait_for(lambda: False)
    for use in (kubelet.tick, kubelet.local, kubelet.node_status, lambda: kubelet.end(admitted.uid), kubelet.close):
        with pytest.raises(HeldDeviceDropped):
            use()
    assert kubelet.take_panic() is not None
    kubelet.close()


def test_l17_panic(node: Node) -> None:
    """L17: an Allocate that returns after a list without its id is a panic."""
    kubelet = node.kubelet(abort_on_drop=False)
    plugin = node.registered(kubelet, ["a"])
    plugin.block()
    raised: list[BaseException] = []

    def admit() -> None:
        try:
            kubelet.admit(pod())
        except KubeletPanic as panic:
            raised.append(panic)

    thread = in_thread(admit)
    assert plugin.allocating.acquire(timeout=10)
    node.push(kubelet, plugin, [])
    assert not kubelet.faults
    plugin.release()
    thread.join(10)
    assert [f.statement for f in kubelet.faults] == ["L17"]
    assert "(L17)" in str(raised[0])
    assert "(L17)" in str(kubelet.take_panic())


def test_l18_panic(node: Node) -> None:
    """L18: hints with a held id absent from a NUMA-aware list; without NUMA info, or with policy none, nothing."""
    kubelet = node.kubelet(abort_on_drop=False, topology_manager=True)
    plugin = node.registered(kubelet, ["a"])
    admitted = kubelet.admit(pod())
    node.push(kubelet, plugin, ["b"])
    assert kubelet.resize(admitted.uid) is not None
    node.push(kubelet, plugin, [device("b", numa=[0])])
    with pytest.raises(KubeletPanic, match="L18"):
        kubelet.resize(admitted.uid)
    assert kubelet.take_panic() is not None


def test_health_refresh_goes_by_id_alone(node: Node) -> None:
    """H4, H5, L21: one id under two resources may refresh the wrong pod; both are given out without a check."""
    kubelet = node.kubelet(seed=3)
    one = node.registered(kubelet, ["x"], "e.com/one")
    node.registered(kubelet, ["x"], "e.com/two")
    pods = [kubelet.admit(pod(name, resource=f"e.com/{name}")) for name in ("one", "two")]
    assert [holds(p, f"e.com/{p.name}") for p in pods] == [{"x"}, {"x"}]
    for turn in range(12):
        node.push(kubelet, one, [device("x", "Healthy" if turn % 2 else "Unhealthy")])
    assert set(kubelet.health_refreshes) == {p.uid for p in pods}
    refreshed = len(kubelet.health_refreshes)
    one.stop()
    kubelet.wait_for(lambda: kubelet.local()["e.com/one"].stopped)
    assert len(kubelet.health_refreshes) == refreshed


def test_pod_health_of_app_containers_only(node: Node) -> None:
    """H1, H2: and a dead plugin shows the last value."""
    kubelet = node.kubelet()
    plugin = node.registered(kubelet, ["a", "b"])
    containers = (Container("i", {RESOURCE: 1}, "init"), Container("s", {RESOURCE: 1}, "sidecar"), Container("c"))
    admitted = kubelet.admit(Pod("p", containers=(*containers, Container("d", {RESOURCE: 1}))))
    assert admitted.phase == "Running", admitted.message
    assert set(kubelet.pod_health(admitted.uid)) == {"d"}
    plugin.stop()
    kubelet.wait_for(lambda: kubelet.local()[RESOURCE].stopped)
    assert set(kubelet.pod_health(admitted.uid)["d"][RESOURCE].values()) == {"Healthy"}


def test_the_clock_scales_and_stands_still() -> None:
    """Section 7: one clock for all constants."""
    still, fast = Clock(scale=0), Clock(scale=1000)
    condition = threading.Condition()
    assert still.now() == still.now() == 0
    still.advance(5)
    assert still.now() == 5
    with condition:
        assert not fast.wait_until(condition, lambda: False, 10)
        assert fast.now() >= 10
        assert still.wait_until(condition, lambda: True, None)
    with pytest.raises(ValueError, match="backwards"):
        still.advance(-1)
