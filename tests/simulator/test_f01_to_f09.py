"""F1 to F9 of the contract's section 7: mistakes of naive fakes and naive plugins, each planted.

Every check passes on the stand-in as it is and fails on the stand-in with one naive part in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import pytest

from deviceplugin.simulator import Clock, Container, Kubelet, Parts, Pod
from deviceplugin.simulator.admission import PodWorker
from deviceplugin.simulator.allocation import AllocationError, Allocator
from deviceplugin.simulator.connection import PluginConnection, PluginError
from deviceplugin.simulator.devicemanager import DeviceManager
from deviceplugin.simulator.nodestatus import NodeStatus
from deviceplugin.simulator.pods import PodState, RunOptions
from deviceplugin.simulator.registration import ConnectionTable, Registrar
from deviceplugin.stubs import deviceplugin_v1beta1_pb2 as pb
from tests.simulator.naive_plugin import RESOURCE, device
from tests.simulator.node import SOON, Node, holds, only_the_naive_one_fails, pod, refusal, streams_settled

Check = Callable[..., None]
Nodes = Callable[[], Node]
T = TypeVar("T")

# -- F1 --------------------------------------------------------------------------------------------------------


class AnswersFirst(Registrar):
    def accept(self, table: ConnectionTable, request: pb.RegisterRequest, caller_alive: Callable[[], bool]) -> None:
        """Leaves the dial for later."""


class TrustsTheRequest(ConnectionTable):
    def options_for(
        self, request: pb.RegisterRequest, connection: PluginConnection, caller_alive: Callable[[], bool]
    ) -> pb.DevicePluginOptions:
        return request.options


def a_plugin_that_registers_before_it_serves_is_caught(node: Node, **settings: Any) -> None:
    """R6, R7."""
    node.kubelet(clock=Clock(scale=50), **settings)
    assert "failed to dial" in refusal(lambda: node.plugin().register(endpoint="not-yet.sock"))[1]


def a_plugin_that_sends_other_options_than_it_answers_is_caught(node: Node, **settings: Any) -> None:
    """R8, R9."""
    kubelet = node.kubelet(**settings)
    plugin = node.plugin(["a"])
    plugin.pre_start = True
    plugin.register(options=pb.DevicePluginOptions(pre_start_required=False))
    kubelet.wait_for(lambda: kubelet.resources[RESOURCE].lists)
    holds(kubelet.admit(pod()))
    assert "PreStartContainer" in plugin.seen


@pytest.mark.parametrize(
    ("check", "parts"),
    [
        (a_plugin_that_registers_before_it_serves_is_caught, Parts(registrar=AnswersFirst)),
        (a_plugin_that_sends_other_options_than_it_answers_is_caught, Parts(table=TrustsTheRequest)),
    ],
)
def test_f01_dial_and_options_before_the_answer(nodes: Nodes, check: Check, parts: Parts) -> None:
    only_the_naive_one_fails(check, nodes, parts=parts)


# -- F2 --------------------------------------------------------------------------------------------------------


class ClosesTheOldStream(ConnectionTable):
    def connect(self, request: pb.RegisterRequest, caller_alive: Callable[[], bool]) -> None:
        if (old := self.by_name.get(request.resource_name)) is not None:
            old.close()
        super().connect(request, caller_alive)


class EndsOnlyTheOld(ConnectionTable):
    def stream_ended(self, connection: PluginConnection) -> None:
        if self.by_name.get(connection.resource) is connection:
            super().stream_ended(connection)


class KeepsTheOldClient(ConnectionTable):
    def connect(self, request: pb.RegisterRequest, caller_alive: Callable[[], bool]) -> None:
        old = self.by_name.get(request.resource_name)
        try:
            super().connect(request, caller_alive)
        except PluginError:
            if old is not None:
                self.by_name[request.resource_name] = old
            raise


def the_old_stream_is_consumed(node: Node, **settings: Any) -> None:
    """R11."""
    kubelet = node.kubelet(**settings)
    old = node.registered(kubelet, ["a"])
    node.registered(kubelet, ["b"], endpoint="new.sock")
    node.push(kubelet, old, ["c"], timeout=SOON)


def a_plugin_that_overlaps_with_its_successor_is_caught(node: Node, **settings: Any) -> None:
    """R12: the new process has to register again."""
    kubelet = node.kubelet(**settings)
    old = node.registered(kubelet, ["a"])
    node.registered(kubelet, ["a"], endpoint="new.sock")
    old.stop()
    kubelet.wait_for(lambda: kubelet.local()[RESOURCE].stopped, timeout=SOON)


def a_failed_registration_makes_a_zombie(node: Node, **settings: Any) -> None:
    """R13."""
    kubelet = node.kubelet(**settings)
    old = node.registered(kubelet, ["a"])
    new = node.plugin(["a"], endpoint="new.sock")
    new.options_error = "no"
    refusal(new.register)
    old.stop()
    streams_settled()
    assert kubelet.local()[RESOURCE].healthy == {"a"}


@pytest.mark.parametrize(
    ("check", "table"),
    [
        (the_old_stream_is_consumed, ClosesTheOldStream),
        (a_plugin_that_overlaps_with_its_successor_is_caught, EndsOnlyTheOld),
        (a_failed_registration_makes_a_zombie, KeepsTheOldClient),
    ],
)
def test_f02_two_streams_for_one_name(nodes: Nodes, check: Check, table: type[ConnectionTable]) -> None:
    only_the_naive_one_fails(check, nodes, parts=Parts(table=table))


# -- F3 --------------------------------------------------------------------------------------------------------


class DialsAgain(ConnectionTable):
    def stream_ended(self, connection: PluginConnection) -> None:
        self._consume_once_more(connection)

    def _consume_once_more(self, connection: PluginConnection) -> None:
        for message in connection.lists():
            self.manager.apply_list(connection, message)


class DeletesAtOnce(DeviceManager):
    def disconnected(self, resource: str) -> None:
        super().disconnected(resource)
        self.endpoints.pop(resource)


class RemovesTheKey(NodeStatus):
    def compute(self, manager: DeviceManager) -> dict[str, tuple[int, int]]:
        return manager.capacity()[0]


def a_plugin_that_waits_to_be_dialled_again_is_caught(node: Node, **settings: Any) -> None:
    """L7, L9, L10: its resource stops, is (N,0) for 5 minutes, then 0/0; the key stays."""
    kubelet = node.kubelet(**settings)
    plugin = node.registered(kubelet, ["a"])
    kubelet.tick()
    plugin.end_streams()
    kubelet.wait_for(lambda: kubelet.local()[RESOURCE].stopped, timeout=SOON)
    kubelet.tick()
    assert kubelet.node_status() == {RESOURCE: (1, 0)}
    kubelet.clock.advance(300.1)
    kubelet.tick()
    assert kubelet.node_status() == {RESOURCE: (0, 0)}
    assert plugin.seen.count("ListAndWatch") == 1


@pytest.mark.parametrize(
    "parts", [Parts(table=DialsAgain), Parts(manager=DeletesAtOnce), Parts(node_status=RemovesTheKey)]
)
def test_f03_after_a_stream_ended(nodes: Nodes, parts: Parts) -> None:
    only_the_naive_one_fails(a_plugin_that_waits_to_be_dialled_again_is_caught, nodes, parts=parts)


# -- F4 --------------------------------------------------------------------------------------------------------


class MergesLists(DeviceManager):
    def _replace(self, resource: str, message: pb.ListAndWatchResponse) -> None:
        merged = self.devices.get(resource, {}) | {d.ID: d for d in message.devices}
        super()._replace(resource, pb.ListAndWatchResponse(devices=merged.values()))


class RefusesOddIds(DeviceManager):
    def _replace(self, resource: str, message: pb.ListAndWatchResponse) -> None:
        good = {d.ID: d for d in message.devices if 0 < len(d.ID) <= 63}
        super()._replace(resource, pb.ListAndWatchResponse(devices=good.values()))


class Unlimited(ConnectionTable):
    class connection_type(PluginConnection):
        message_limit = -1


def lists_are_taken_as_they_are(node: Node, **settings: Any) -> None:
    """L1, L3, L4."""
    kubelet = node.kubelet(**settings)
    plugin = node.registered(kubelet, ["gone"])
    node.push(kubelet, plugin, ["", "x" * 300, "twice", device("twice", "Unhealthy")])
    local = kubelet.local()[RESOURCE]
    assert local.healthy == {"", "x" * 300, "twice"}
    assert local.unhealthy == {"twice"}


def a_plugin_that_sends_too_much_is_caught(node: Node, **settings: Any) -> None:
    """L7, R10."""
    kubelet = node.kubelet(**settings)
    node.registered(kubelet, ["a"]).push([f"{n:01000d}" for n in range(4300)])
    kubelet.wait_for(lambda: kubelet.local()[RESOURCE].stopped, timeout=SOON)


@pytest.mark.parametrize(
    ("check", "parts"),
    [
        (lists_are_taken_as_they_are, Parts(manager=MergesLists)),
        (lists_are_taken_as_they_are, Parts(manager=RefusesOddIds)),
        (a_plugin_that_sends_too_much_is_caught, Parts(table=Unlimited)),
    ],
)
def test_f04_full_replacement_and_limits(nodes: Nodes, check: Check, parts: Parts) -> None:
    only_the_naive_one_fails(check, nodes, parts=parts)


# -- F5 --------------------------------------------------------------------------------------------------------


class PublishesAtOnce(Kubelet):
    def fits(self, pod: Pod) -> bool:
        self.tick()
        return super().fits(pod)


def a_plugin_that_shrinks_without_warning_is_caught(node: Node, **settings: Any) -> None:
    """L11, section 6: the pod bound in the window fails."""
    kubelet = node.kubelet(**settings)
    plugin = node.registered(kubelet, ["a", "b"])
    kubelet.tick()
    node.push(kubelet, plugin, ["a"])
    wanted = pod(count=2)
    assert kubelet.fits(wanted)
    assert kubelet.admit(wanted).phase == "Failed"


def test_f05_node_status_lags(nodes: Nodes) -> None:
    only_the_naive_one_fails(a_plugin_that_shrinks_without_warning_is_caught, nodes, kind=PublishesAtOnce)


# -- F6 --------------------------------------------------------------------------------------------------------


class Sorted(Allocator):
    def shuffled(self, items: Iterable[T]) -> list[T]:
        return sorted(items)  # type: ignore[type-var]


def first_id_and(name: str) -> Callable[[list[str]], list[pb.ContainerAllocateResponse]]:
    """Responses with the first id of the request and `name`."""
    return lambda ids: [pb.ContainerAllocateResponse(envs={"FIRST": ids[0], "BY": name})]


def a_plugin_that_depends_on_order_is_caught(node: Node, **settings: Any) -> None:
    """A2, A11, A17: it names its variable after the first id, and both resources set one variable."""
    kubelet = node.kubelet(**settings)
    for name in ("e.com/one", "e.com/two"):
        node.registered(kubelet, ["a", "b", "c"], name, responses=first_id_and(name))
    seen = []
    for turn in range(10):
        admitted = kubelet.admit(Pod(f"p{turn}", containers=(Container("c", {"e.com/one": 3, "e.com/two": 3}),)))
        options = admitted.containers["c"].options
        assert options is not None
        seen.append(options.envs)
        kubelet.end(admitted.uid)
    assert len({envs["FIRST"] for envs in seen}) > 1
    assert len({envs["BY"] for envs in seen}) > 1


def test_f06_nothing_is_sorted(nodes: Nodes) -> None:
    only_the_naive_one_fails(a_plugin_that_depends_on_order_is_caught, nodes, parts=Parts(allocator=Sorted))


# -- F7 --------------------------------------------------------------------------------------------------------


class AllocatesAtStart(PodWorker):
    def allocate_pod(self, pod: PodState) -> None:
        """Leaves it to the container start."""


class AllocatesPerPod(PodWorker):
    def allocate_pod(self, pod: PodState) -> None:
        wanted = sum(c.limits.get(RESOURCE, 0) for c in pod.spec.containers)
        self.allocator.allocate_container(pod, Container(pod.spec.containers[0].name, {RESOURCE: wanted}), {})


def one_allocate_per_container_inside_admission(node: Node, **settings: Any) -> None:
    """A1, A2: so a plugin that refuses fails the pod for good (A20)."""
    kubelet = node.kubelet(**settings)
    plugin = node.registered(kubelet, ["a", "b"])
    two = Pod("p", containers=(Container("c", {RESOURCE: 1}), Container("d", {RESOURCE: 1})))
    kubelet.end(kubelet.admit(two).uid)
    assert [len(call.ids) for call in kubelet.resources[RESOURCE].calls("Allocate")] == [1, 1]
    plugin.allocate_error = "no"
    assert kubelet.admit(two).reason == "UnexpectedAdmissionError"


@pytest.mark.parametrize("worker", [AllocatesAtStart, AllocatesPerPod])
def test_f07_when_allocate_is_called(nodes: Nodes, worker: type[PodWorker]) -> None:
    only_the_naive_one_fails(one_allocate_per_container_inside_admission, nodes, parts=Parts(worker=worker))


# -- F8 --------------------------------------------------------------------------------------------------------


class TrustsTheAnswer(Allocator):
    def choose(self, pod: PodState, container: str, resource: str, wanted: int, reusable: set[str]) -> set[str]:
        with self.manager.journal.changed:
            healthy = self.manager.healthy[resource]
            return self.preferred(resource, set(healthy), reusable, wanted) & healthy


class IgnoresErrors(Allocator):
    def preferred(self, resource: str, available: set[str], must: set[str], total: int) -> set[str]:
        try:
            return super().preferred(resource, available, must, total)
        except AllocationError:
            return set()


class ForgetsTheMusts(Allocator):
    def preferred(self, resource: str, available: set[str], must: set[str], total: int) -> set[str]:
        return super().preferred(resource, available, set(), total)


class AsksForTheRest(Allocator):
    def preferred(self, resource: str, available: set[str], must: set[str], total: int) -> set[str]:
        return super().preferred(resource, available, must, total - len(must))


def preferred_is_a_wish(node: Node, **settings: Any) -> None:
    """A8 to A10: a plugin that answers nonsense, or an error, is caught."""
    kubelet = node.kubelet(**settings)
    asked: list[tuple[int, int]] = []

    def nonsense(request: pb.ContainerPreferredAllocationRequest) -> list[str]:
        asked.append((len(request.must_include_deviceIDs), request.allocation_size))
        return ["a", "nobody", "b", "c"]

    plugin = node.registered(kubelet, ["a", "b", "c"], preferred_answer=nonsense)
    containers = (Container("i", {RESOURCE: 1}, "init"), Container("c", {RESOURCE: 2}))
    admitted = kubelet.admit(Pod("p", containers=containers))
    assert [len(call.ids) for call in kubelet.resources[RESOURCE].calls("Allocate")] == [1, 2]
    assert holds(admitted) < {"a", "b", "c"}
    assert asked == [(0, 1), (1, 2)]
    plugin.preferred_error = "never do this"
    assert kubelet.admit(pod()).phase == "Failed"


@pytest.mark.parametrize("allocator", [TrustsTheAnswer, IgnoresErrors, ForgetsTheMusts, AsksForTheRest])
def test_f08_the_preferred_answer(nodes: Nodes, allocator: type[Allocator]) -> None:
    only_the_naive_one_fails(preferred_is_a_wish, nodes, parts=Parts(allocator=allocator))


# -- F9 --------------------------------------------------------------------------------------------------------


class AllocatesAgain(Allocator):
    def run_options(self, pod: PodState, container: Container) -> RunOptions | None:
        if pod.containers[container.name].starts:
            self.manager.records.pop(pod.uid, None)
            self.manager.restore()
        return super().run_options(pod, container)


class DropsTheCache(DeviceManager):
    def disconnected(self, resource: str) -> None:
        super().disconnected(resource)
        self.records.clear()


def a_plugin_that_answers_each_start_differently_is_caught(node: Node, **settings: Any) -> None:
    """A16, A27: the first answer is used for ever, over restarts of the container, the plugin and the kubelet."""
    kubelet = node.kubelet(**settings)
    plugin = node.registered(kubelet, ["a"])
    admitted = kubelet.admit(pod())
    first = admitted.containers["c"].options
    plugin.responses = lambda ids: [pb.ContainerAllocateResponse(envs={"OTHER": "1"})]

    def starts_as_before() -> bool:
        again = kubelet.restart_container(admitted.uid, "c")
        return (again.status, again.options) == ("running", first)

    assert starts_as_before()
    plugin.stop()
    kubelet.wait_for(lambda: kubelet.local()[RESOURCE].stopped)
    assert starts_as_before()
    kubelet.restart()
    assert starts_as_before()
    assert len(kubelet.resources[RESOURCE].calls("Allocate")) == 1


@pytest.mark.parametrize("parts", [Parts(allocator=AllocatesAgain), Parts(manager=DropsTheCache)])
def test_f09_the_cached_response(nodes: Nodes, parts: Parts) -> None:
    only_the_naive_one_fails(a_plugin_that_answers_each_start_differently_is_caught, nodes, parts=parts)
