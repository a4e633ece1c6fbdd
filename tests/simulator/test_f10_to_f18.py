"""F10 to F18 of the contract's section 7: mistakes of naive fakes and naive plugins, each planted.

Every check passes on the stand-in as it is and fails on the stand-in with one naive part in its place.
"""

from __future__ import annotations

import contextlib
import shutil
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from deviceplugin.simulator import Container, HeldDeviceDropped, Kubelet, KubeletPanic, Parts, Pod
from deviceplugin.simulator.admission import PodWorker
from deviceplugin.simulator.allocation import AllocationError, Allocator
from deviceplugin.simulator.connection import PluginConnection
from deviceplugin.simulator.devicemanager import DeviceManager
from deviceplugin.simulator.podresources import PodResources
from deviceplugin.simulator.pods import ContainerState, PodState
from deviceplugin.simulator.registration import ConnectionTable
from deviceplugin.stubs import podresources_v1_pb2 as pr
from tests.simulator.naive_plugin import RESOURCE, device
from tests.simulator.node import Node, holds, in_thread, only_the_naive_one_fails, pod

Check = Callable[..., None]
Nodes = Callable[[], Node]
INIT = Pod("init", containers=(Container("i", {RESOURCE: 1}, "init"), Container("c")))

# -- F10 -------------------------------------------------------------------------------------------------------


class FreesAtTheEnd(Kubelet):
    def end(self, uid: str) -> None:
        super().end(uid)
        self._running().manager.free_ended_pods()


class FreesInitIds(PodWorker):
    def start_pod(self, pod: PodState) -> None:
        super().start_pod(pod)
        for container in pod.spec.containers:
            if container.kind == "init":
                self.manager.records.get(pod.uid, {}).pop(container.name, None)
        self.manager.restore()


def a_plugin_that_takes_unlisted_ids_for_free_is_caught(node: Node, **settings: Any) -> None:
    """A12, A13: ids of a finished init container stay held; ids of an ended pod too, until something prunes."""
    kubelet = node.kubelet(**settings)
    node.registered(kubelet, ["a"])
    admitted = kubelet.admit(INIT)
    assert kubelet.local()[RESOURCE].allocated == {"a"}
    kubelet.end(admitted.uid)
    assert kubelet.local()[RESOURCE].allocated == {"a"}
    holds(kubelet.admit(pod()))


@pytest.mark.parametrize("settings", [{"kind": FreesAtTheEnd}, {"parts": Parts(worker=FreesInitIds)}])
def test_f10_lazy_freeing(nodes: Nodes, settings: dict[str, Any]) -> None:
    only_the_naive_one_fails(a_plugin_that_takes_unlisted_ids_for_free_is_caught, nodes, **settings)


# -- F11 -------------------------------------------------------------------------------------------------------


class LosesPatience(ConnectionTable):
    class connection_type(PluginConnection):
        allocate_seconds = 60.0


class InParallel(PodWorker):
    def admit(self, pod: PodState) -> bool:
        self.one_at_a_time = threading.Lock()
        return super().admit(pod)


def a_plugin_that_hangs_is_caught(node: Node, **settings: Any) -> None:
    """A3, A21: it hangs the node, for as long as it likes."""
    kubelet = node.kubelet(**settings)
    plugin = node.registered(kubelet, ["a", "b"])
    plugin.block()
    threads = [in_thread(lambda n=name: kubelet.admit(pod(n))) for name in ("p", "q")]  # type: ignore[misc]
    try:
        assert plugin.allocating.acquire(timeout=10)
        kubelet.clock.advance(3600)
        assert not plugin.allocating.acquire(timeout=0.1)
        assert kubelet.resources[RESOURCE].finished("Allocate") == ()
        assert {p.phase for p in kubelet.pods()} == {"Pending"}
    finally:
        plugin.release()
        for thread in threads:
            thread.join(10)


@pytest.mark.parametrize("parts", [Parts(table=LosesPatience), Parts(worker=InParallel)])
def test_f11_serial_and_patient(nodes: Nodes, parts: Parts) -> None:
    only_the_naive_one_fails(a_plugin_that_hangs_is_caught, nodes, parts=parts)


# -- F12 -------------------------------------------------------------------------------------------------------


class AdmitsAgain(PodWorker):
    def admit(self, pod: PodState) -> bool:
        if super().admit(pod):
            return True
        pod.phase, pod.reason, pod.message = "Pending", "", ""
        return super().admit(pod)


class FailsThePod(PodWorker):
    def start_container(self, pod: PodState, state: ContainerState) -> bool:
        started = super().start_container(pod, state)
        if not started:
            self.reject(pod, state.reason, state.message)
        return started


def a_plugin_that_counts_on_a_second_try_is_caught(node: Node, **settings: Any) -> None:
    """A20, A23: a failed admission is for good, a failed start is not."""
    kubelet = node.kubelet(**settings)
    plugin = node.registered(kubelet, ["a"], allocate_error="wait")
    assert kubelet.admit(pod()).phase == "Failed"
    assert plugin.seen.count("Allocate") == 1
    plugin.allocate_error = ""
    again = node.registered(kubelet, ["a"], endpoint="b.sock", pre_start=True, pre_start_error="wait")
    admitted = kubelet.admit(pod("q"))
    again.pre_start_error = ""
    kubelet.retry_starts()
    holds(kubelet.pod(admitted.uid))


@pytest.mark.parametrize("worker", [AdmitsAgain, FailsThePod])
def test_f12_what_is_tried_again(nodes: Nodes, worker: type[PodWorker]) -> None:
    only_the_naive_one_fails(a_plugin_that_counts_on_a_second_try_is_caught, nodes, parts=Parts(worker=worker))


# -- F13 -------------------------------------------------------------------------------------------------------


def removes_nothing(directory: Path) -> None:
    (directory / "kubelet.sock").unlink(missing_ok=True)


def removes_everything(directory: Path) -> None:
    for entry in directory.iterdir():
        if entry.is_dir():
            shutil.rmtree(entry)
        else:
            entry.unlink()


class WaitsForThePlugin(PodWorker):
    def readmit(self, pod: PodState) -> None:
        self.manager.sources_ready = False
        with contextlib.suppress(AllocationError):
            if any(self.manager.healthy.values()):
                super().readmit(pod)


class FinishedIsRunning(DeviceManager):
    def load(self) -> None:
        super().load()
        self.running_at_start = frozenset((p.uid, c) for p in self.pods.active() for c in p.containers)


class KeepsTheCapacity(DeviceManager):
    def load(self) -> None:
        super().load()
        for resource, ids in self.allocated.items():
            self.healthy[resource] = set(ids)


def a_plugin_that_sleeps_through_a_restart_is_caught(node: Node, **settings: Any) -> None:
    """S2, S7, A29, S6: its socket is gone, capacity is 0, a pod with a finished init container has failed."""
    kubelet = node.kubelet(**settings)
    plugin = node.registered(kubelet, ["a", "b"])
    (node.directory / "keep").mkdir()
    running, finished = kubelet.admit(pod()), kubelet.admit(INIT)
    kubelet.restart()
    assert not plugin.socket.exists()
    assert (node.directory / "keep").is_dir()
    assert kubelet.local()[RESOURCE].capacity == 0
    assert kubelet.local()[RESOURCE].allocated >= holds(running)
    assert [kubelet.pod(p.uid).phase for p in (running, finished)] == ["Running", "Failed"]


@pytest.mark.parametrize(
    "parts",
    [
        Parts(remove_sockets=removes_nothing),
        Parts(remove_sockets=removes_everything),
        Parts(worker=WaitsForThePlugin),
        Parts(manager=FinishedIsRunning),
        Parts(manager=KeepsTheCapacity),
    ],
)
def test_f13_kubelet_restart(nodes: Nodes, parts: Parts) -> None:
    only_the_naive_one_fails(a_plugin_that_sleeps_through_a_restart_is_caught, nodes, parts=parts)


# -- F14 -------------------------------------------------------------------------------------------------------


class CompleteAtOnce(PodResources):
    def listed(self) -> Iterable[PodState]:
        return self.manager.pods.active()


class ListsInit(PodResources):
    def describe(self, pod: PodState) -> pr.PodResources:
        described = super().describe(pod)
        described.containers.extend(pr.ContainerResources(name=c.name) for c in pod.spec.containers if c.kind == "init")
        return described


class MergesNuma(PodResources):
    def describe(self, pod: PodState) -> pr.PodResources:
        described = super().describe(pod)
        for container in described.containers:
            merged = {d.device_ids[0]: d for d in container.devices}
            del container.devices[:]
            container.devices.extend(merged.values())
        return described


class Subtracts(PodResources):
    def allocatable(self) -> list[pr.ContainerDevices]:
        return [d for d in super().allocatable() if d.device_ids[0] not in self.manager.allocated[d.resource_name]]


def a_plugin_that_takes_a_short_list_for_the_whole_is_caught(node: Node, **settings: Any) -> None:
    """P2 to P5: no init containers, one entry per NUMA node, allocated ids are allocatable, empty after a restart."""
    kubelet = node.kubelet(**settings)
    node.registered(kubelet, [device("a", numa=[0, 1])])
    containers = (Container("i", {RESOURCE: 1}, "init"), Container("c", {RESOURCE: 1}))
    holds(kubelet.admit(Pod("p", containers=containers)))
    with node.pod_resources() as stub:
        [shown] = stub.List().pod_resources
        assert [(c.name, len(c.devices)) for c in shown.containers] == [("c", 2)]
        assert len(stub.GetAllocatableResources().devices) == 2
        kubelet.stop()
    kubelet.start(runtime_ready=False)
    with node.pod_resources() as stub:
        assert list(stub.List().pod_resources) == []


@pytest.mark.parametrize("pod_resources", [CompleteAtOnce, ListsInit, MergesNuma, Subtracts])
def test_f14_pod_resources(nodes: Nodes, pod_resources: type[PodResources]) -> None:
    parts = Parts(pod_resources=pod_resources)
    only_the_naive_one_fails(a_plugin_that_takes_a_short_list_for_the_whole_is_caught, nodes, parts=parts)


# -- F15 -------------------------------------------------------------------------------------------------------


class LinksEqualIds(Allocator):
    def choose(self, pod: PodState, container: str, resource: str, wanted: int, reusable: set[str]) -> set[str]:
        in_use = set().union(*self.manager.allocated.values())
        if len(self.manager.healthy[resource] - in_use) < wanted:
            raise AllocationError("in use under another name")
        return super().choose(pod, container, resource, wanted, reusable)


def a_plugin_that_lists_one_device_under_two_names_is_caught(node: Node, **settings: Any) -> None:
    """L21: both are given out."""
    kubelet = node.kubelet(**settings)
    for name in ("e.com/one", "e.com/two"):
        node.registered(kubelet, ["gpu"], name)
    assert [holds(kubelet.admit(pod(n, resource=f"e.com/{n}")), f"e.com/{n}") for n in ("one", "two")] == [
        {"gpu"},
        {"gpu"},
    ]


def test_f15_resources_are_not_linked(nodes: Nodes) -> None:
    parts = Parts(allocator=LinksEqualIds)
    only_the_naive_one_fails(a_plugin_that_lists_one_device_under_two_names_is_caught, nodes, parts=parts)


# -- F16 -------------------------------------------------------------------------------------------------------


class SaysUnhealthy(DeviceManager):
    def _health(self, resource: str, device_id: str) -> str:
        gone = device_id not in self.devices.get(resource, {}) or self.endpoints[resource].stopped_at is not None
        return "Unhealthy" if gone else super()._health(resource, device_id)


@pytest.mark.parametrize("how", ["vanished", "dead"])
def test_f16_health_of_what_is_gone(nodes: Nodes, how: str) -> None:
    def a_plugin_that_counts_on_pod_status_is_caught(node: Node, **settings: Any) -> None:
        """H2, L16: a vanished id, or a dead plugin, shows Healthy."""
        kubelet = node.kubelet(abort_on_drop=False, **settings)
        plugin = node.registered(kubelet, ["a"])
        admitted = kubelet.admit(pod())
        if how == "vanished":
            node.push(kubelet, plugin, [])
        else:
            plugin.stop()
            kubelet.wait_for(lambda: kubelet.local()[RESOURCE].stopped)
        assert kubelet.pod_health(admitted.uid) == {"c": {RESOURCE: {"a": "Healthy"}}}

    only_the_naive_one_fails(a_plugin_that_counts_on_pod_status_is_caught, nodes, parts=Parts(manager=SaysUnhealthy))


# -- F17 -------------------------------------------------------------------------------------------------------


class CountsOnly(Allocator):
    def choose(self, pod: PodState, container: str, resource: str, wanted: int, reusable: set[str]) -> set[str]:
        used = len(self.manager.allocated.get(resource, ()))
        if len(self.manager.healthy[resource]) < used + wanted:
            raise AllocationError(f"requested number of devices unavailable for {resource}")
        return super().choose(pod, container, resource, wanted, reusable)


def a_plugin_that_renumbers_is_caught(node: Node, **settings: Any) -> None:
    """Section 6, A31: under new ids one GPU of two looks free though its old id is held: both go out once more."""
    kubelet = node.kubelet(abort_on_drop=False, **settings)
    plugin = node.registered(kubelet, ["gpu-0", "gpu-1"])
    first = holds(kubelet.admit(pod()))
    node.push(kubelet, plugin, ["0", "1"])
    second = holds(kubelet.admit(pod("q", 2)))
    assert second == {"0", "1"}
    assert next(iter(first)).removeprefix("gpu-") in second
    assert [fault.statement for fault in kubelet.faults] == ["L16"]


def test_f17_by_id_not_by_count(nodes: Nodes) -> None:
    only_the_naive_one_fails(a_plugin_that_renumbers_is_caught, nodes, parts=Parts(allocator=CountsOnly))


# -- F18 -------------------------------------------------------------------------------------------------------


class NeverPanics(DeviceManager):
    def _find_drops(self, resource: str) -> None:
        """Looks away."""

    def record(self, uid: str, container: str, resource: str, ids: Iterable[str], response: bytes) -> None:
        known = self.devices[resource]
        super().record(uid, container, resource, [i for i in ids if i in known], response)


def a_plugin_that_drops_a_held_id_is_caught(node: Node, **settings: Any) -> None:
    """L16."""
    kubelet = node.kubelet(**settings)
    plugin = node.registered(kubelet, ["a", "b"])
    kubelet.admit(pod(count=2))
    with pytest.raises(HeldDeviceDropped):
        node.push(kubelet, plugin, ["a"])
    assert kubelet.take_panic() is not None


def a_plugin_that_drops_an_id_in_flight_is_caught(node: Node, **settings: Any) -> None:
    """L17."""
    kubelet = node.kubelet(**settings)
    plugin = node.registered(kubelet, ["a"])
    plugin.block()
    pending = kubelet.submit(pod())
    assert plugin.allocating.acquire(timeout=10)
    node.push(kubelet, plugin, [])
    plugin.release()
    with pytest.raises(KubeletPanic, match="L17"):
        pending.result(10)
    assert kubelet.take_panic() is not None


@pytest.mark.parametrize(
    "check", [a_plugin_that_drops_a_held_id_is_caught, a_plugin_that_drops_an_id_in_flight_is_caught]
)
def test_f18_panics(nodes: Nodes, check: Check) -> None:
    only_the_naive_one_fails(check, nodes, parts=Parts(manager=NeverPanics))
