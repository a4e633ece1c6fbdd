"""The service over a real socket: calls, streams, lists, and what too much of anything does."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import grpc
import pytest

from deviceplugin.allocation.answer import Answer, DeviceFile, Mount
from deviceplugin.errors import AllocationError
from deviceplugin.kubelet.endpoint import MAX_RECEIVED_BYTES, Endpoint
from deviceplugin.kubelet.feed import MAX_STREAMS
from deviceplugin.kubelet.ledger import Ledger
from deviceplugin.kubelet.service import ResourceService, write_answer
from deviceplugin.model.links import LinkScores
from deviceplugin.model.offer import Offer
from deviceplugin.model.plan import Device, Unit
from deviceplugin.stubs import deviceplugin_v1beta1_pb2 as pb
from tests.allocation.offers import gpu, ids_of, mig, offer
from tests.kubelet.node import Client, Watching, eventually, unhealthy

Serve = Callable[[Offer], tuple[ResourceService, Client]]


@pytest.fixture
def ledger() -> Ledger:
    return Ledger(time.monotonic)


@pytest.fixture
def serve(root: Path, ledger: Ledger) -> Iterator[Serve]:
    """Serves an offer, without a kubelet; everything ends with the test."""
    services: list[ResourceService] = []
    endpoints: list[Endpoint] = []
    clients: list[Client] = []

    def start(an_offer: Offer) -> tuple[ResourceService, Client]:
        services.append(ResourceService(an_offer, ledger, monotonic=time.monotonic))
        endpoints.append(Endpoint.open(root, an_offer.name, services[-1].handler()))
        clients.append(Client(endpoints[-1].path))
        return services[-1], clients[-1]

    yield start
    for client in clients:
        client.channel.close()
    for service in services:
        service.close()
    for endpoint in endpoints:
        endpoint.stop(1.0)
        assert endpoint.stopped(5.0)


def refusal(call: Callable[[], object]) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as caught:
        call()
    assert isinstance(caught.value, grpc.Call)
    return caught.value.code(), caught.value.details() or ""


def visible(answer: pb.AllocateResponse) -> list[str]:
    return [container.envs["NVIDIA_VISIBLE_DEVICES"] for container in answer.container_responses]


def test_options(serve: Serve) -> None:
    _, client = serve(offer(gpu(0)))
    options = client.stub.GetDevicePluginOptions(pb.Empty())
    assert (options.get_preferred_allocation_available, options.pre_start_required) == (True, False)
    assert client.stub.PreStartContainer(pb.PreStartContainerRequest()) == pb.PreStartContainerResponse()


def test_each_container_gets_an_answer(serve: Serve) -> None:
    _, client = serve(offer(gpu(0), gpu(1), gpu(2)))
    answer = client.allocate([gpu(0).uuid], [gpu(2).uuid, gpu(1).uuid])
    assert visible(answer) == [gpu(0).uuid, f"{gpu(2).uuid},{gpu(1).uuid}"]
    assert visible(client.allocate([])) == [""]
    assert client.allocate() == pb.AllocateResponse()


def test_every_part_of_an_answer_reaches_the_wire() -> None:
    answer = Answer(
        envs={"E": "1"},
        mounts=(Mount("/in", "/host", True), Mount("/dev/shm", "/shm", False)),
        devices=(DeviceFile("/dev/nvidia0", "/driver/dev/nvidia0", "rw"),),
        annotations={"a": "b"},
        cdi_devices=("vendor/class=x", "vendor/class=y"),
    )
    response = pb.ContainerAllocateResponse()
    write_answer(answer, response)
    assert response == pb.ContainerAllocateResponse(
        envs={"E": "1"},
        mounts=[
            pb.Mount(container_path="/in", host_path="/host", read_only=True),
            pb.Mount(container_path="/dev/shm", host_path="/shm"),
        ],
        devices=[pb.DeviceSpec(container_path="/dev/nvidia0", host_path="/driver/dev/nvidia0", permissions="rw")],
        annotations={"a": "b"},
        cdi_devices=[pb.CDIDevice(name="vendor/class=x"), pb.CDIDevice(name="vendor/class=y")],
    )


def test_one_bad_container_refuses_all_and_leaves_no_trace(serve: Serve, ledger: Ledger) -> None:
    _, client = serve(offer(gpu(0), gpu(1)))
    assert refusal(lambda: client.allocate([gpu(0).uuid], ["GPU-x"])) == (
        grpc.StatusCode.UNKNOWN,
        'invalid allocation request for "nvidia.com/gpu": invalid request: unknown device: GPU-x',
    )
    assert ledger.held().ids == {}
    assert ledger.running == 0


def test_what_was_handed_out_is_in_the_ledger(serve: Serve, ledger: Ledger) -> None:
    _, client = serve(offer(gpu(0), gpu(1)))
    client.allocate([gpu(1).uuid])
    client.allocate([gpu(1).uuid])  # a pod that was rejected later gave it back without telling (A26)
    assert ledger.held().of("nvidia.com/gpu") == {gpu(1).uuid}


def test_a_gpu_is_not_given_out_under_two_resources(serve: Serve) -> None:
    _, whole = serve(offer(gpu(0), gpu(1)))
    _, shared = serve(offer(gpu(0, 2), gpu(1, 2), name="nvidia.com/gpu.shared"))
    whole.allocate([gpu(0).uuid])
    code, text = refusal(lambda: shared.allocate([f"{gpu(0).uuid}::1"]))
    assert code is grpc.StatusCode.UNKNOWN
    assert f'overlaps {gpu(0).uuid}, handed out as "nvidia.com/gpu"' in text
    assert visible(shared.allocate([f"{gpu(1).uuid}::1"])) == [gpu(1).uuid]


def test_ten_thousand_ids_of_one_gpu(serve: Serve) -> None:
    many = offer(gpu(0, 10_000))
    _, client = serve(many)
    client.stub.GetDevicePluginOptions(pb.Empty())
    begin = time.process_time()
    assert visible(client.allocate(ids_of(many))) == [gpu(0).uuid]
    assert time.process_time() - begin < 1.0


def test_answers_come_from_the_newest_offer(serve: Serve) -> None:
    service, client = serve(offer(gpu(0)))
    service.answer_from(replace(offer(gpu(0)), refused={gpu(0).uuid: "GPU 0 becomes time-sliced"}))
    assert refusal(lambda: client.allocate([gpu(0).uuid]))[1].endswith("GPU 0 becomes time-sliced")


def test_other_links_are_preferred_by_at_once_and_send_no_list(serve: Serve) -> None:
    before = offer(*(gpu(index) for index in range(3)))
    service, client = serve(before)
    uuids = ids_of(before)
    assert client.preferred(uuids, [], 2) == uuids[:2]
    linked = LinkScores(tuple(uuids), ((0, 0, 0), (0, 0, 400), (0, 400, 0)))
    service.answer_from(replace(before, resource=replace(before.resource, link_scores=linked)))
    assert not service.send()
    assert client.preferred(uuids, [], 2) == uuids[1:]


def test_preferred_is_exact_or_empty(serve: Serve) -> None:
    shared = offer(gpu(0, 2), gpu(1, 2))
    _, client = serve(shared)
    assert len(client.preferred(ids_of(shared), [], 3)) == 3
    assert client.preferred(ids_of(shared), [], 5) == []


class BrokenOffer(Offer):
    """An offer that no code of ours can read."""

    @cached_property
    def device_by_id(self) -> Mapping[str, Device]:
        raise ZeroDivisionError


def test_preferred_is_never_an_error(serve: Serve) -> None:
    """It would fail the pod (A10), even where the fault is ours."""
    whole = offer(gpu(0))
    _, client = serve(BrokenOffer(whole.resource, whole.devices))
    assert client.preferred([gpu(0).uuid], [], 1) == []


def test_a_request_beyond_grpcs_usual_limit_is_taken_and_one_beyond_ours_harms_nobody(serve: Serve) -> None:
    _, client = serve(offer(gpu(0, 2)))
    four_mib = ["x" * 1000] * 5000
    assert client.preferred([*four_mib, f"{gpu(0).uuid}::0"], [], 1) == [f"{gpu(0).uuid}::0"]
    too_large = ["x" * (MAX_RECEIVED_BYTES // 16)] * 17
    assert refusal(lambda: client.preferred(too_large, [], 1))[0] is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert visible(client.allocate([f"{gpu(0).uuid}::0"])) == [gpu(0).uuid]


def test_a_stream_gets_the_list_at_once_and_then_on_change_only(serve: Serve) -> None:
    whole = offer(gpu(0), gpu(1))
    service, client = serve(whole)
    watching = Watching(client)
    eventually(lambda: len(watching.lists) == 1)
    assert service.send() is False
    service.answer_from(replace(whole, refused={gpu(0).uuid: "waits"}))
    assert service.send() is False
    service.answer_from(unhealthy(whole, gpu(1).uuid))
    assert len(watching.lists) == 1
    assert service.send() is True
    eventually(lambda: len(watching.lists) == 2)
    assert watching.health() == {gpu(0).uuid: "Healthy", gpu(1).uuid: "Unhealthy"}
    assert service.streams.lists_sent == 2


def test_every_stream_gets_every_list(serve: Serve) -> None:
    """NVIDIA's plugin tells one of two (golden health/two-streams)."""
    whole = offer(gpu(0))
    service, client = serve(whole)
    streams = [Watching(client), Watching(client)]
    eventually(lambda: all(len(stream.lists) == 1 for stream in streams))
    service.answer_from(unhealthy(whole, gpu(0).uuid))
    service.send()
    eventually(lambda: all(stream.health() == {gpu(0).uuid: "Unhealthy"} for stream in streams))


def test_a_new_stream_gets_the_list_that_was_sent_not_one_still_to_be_sent(serve: Serve) -> None:
    """A withdrawal waits for the Allocates that run before its list goes out (L17)."""
    service, client = serve(offer(gpu(0), gpu(1)))
    service.answer_from(offer(gpu(0)))
    watching = Watching(client)
    eventually(lambda: watching.lists)
    assert set(watching.health()) == {gpu(0).uuid, gpu(1).uuid}
    service.settle(False)
    assert len(watching.lists) == 1


def test_the_end_of_settling_sends_draining_devices_as_what_they_are(serve: Serve) -> None:
    whole = offer(gpu(0), gpu(1))
    service, client = serve(replace(unhealthy(whole, gpu(0).uuid), draining=frozenset({gpu(0).uuid})))
    watching = Watching(client)
    eventually(lambda: watching.lists)
    assert watching.health()[gpu(0).uuid] == "Healthy"
    assert service.settle(False) is True
    eventually(lambda: len(watching.lists) == 2)
    assert watching.health()[gpu(0).uuid] == "Unhealthy"
    assert service.settle(False) is False


def test_too_many_streams_are_refused_and_starve_nobody(serve: Serve) -> None:
    service, client = serve(offer(gpu(0)))
    streams = [Watching(client) for _ in range(MAX_STREAMS)]
    eventually(lambda: all(stream.lists for stream in streams))
    beyond = [Watching(client) for _ in range(20)]
    assert all(stream.ended.wait(10) for stream in beyond)
    assert {stream.code for stream in beyond} == {grpc.StatusCode.RESOURCE_EXHAUSTED}
    with ThreadPoolExecutor(8) as many:
        answers = list(many.map(lambda _: visible(client.allocate([gpu(0).uuid])), range(100)))
    assert answers == [[gpu(0).uuid]] * 100
    streams[0].call.cancel()
    eventually(lambda: len(service.streams.open_serials) == MAX_STREAMS - 1)
    again = Watching(client)
    eventually(lambda: again.lists)


def test_streams_end_when_they_are_told_to_and_later_ones_are_served(serve: Serve) -> None:
    service, client = serve(offer(gpu(0)))
    watching = Watching(client)
    eventually(lambda: watching.lists)
    service.end_streams()
    assert watching.ended.wait(10)
    assert watching.code is grpc.StatusCode.OK
    eventually(lambda: not service.streams.open_serials)
    later = Watching(client)
    eventually(lambda: later.lists)
    service.close()
    assert later.ended.wait(10)
    assert Watching(client).ended.wait(10)


class HeldUpOffer(Offer):
    """An offer in which an Allocate stays until `release` is set."""

    def __init__(self, like: Offer) -> None:
        super().__init__(like.resource, like.devices)
        self.__dict__.update(entered=threading.Event(), release=threading.Event())  # the dataclass is frozen

    entered: ClassVar[threading.Event]
    release: ClassVar[threading.Event]

    @cached_property
    def unit_by_uuid(self) -> Mapping[str, Unit]:
        self.entered.set()
        self.release.wait(10)
        return {unit.uuid: unit for unit in self.resource.units}


def test_a_withdrawal_waits_for_the_allocate_that_runs(serve: Serve, ledger: Ledger) -> None:
    """Refuse, wait for the running Allocate, look at what is held, then send: the id stays listed (L17)."""
    slow = HeldUpOffer(offer(gpu(0), gpu(1)))
    service, client = serve(slow)
    with ThreadPoolExecutor(1) as caller:
        running = caller.submit(client.allocate, [gpu(0).uuid])
        assert slow.entered.wait(10)
        service.answer_from(replace(offer(gpu(1)), refused={gpu(0).uuid: "removed"}))
        assert ledger.running == 1
        assert ledger.wait_idle(0.02) is False
        assert refusal(lambda: client.allocate([gpu(0).uuid]))[1].endswith("removed")
        slow.release.set()
        assert ledger.wait_idle(10) is True
        assert visible(running.result()) == [gpu(0).uuid]
    assert ledger.held().of("nvidia.com/gpu") == {gpu(0).uuid}


def test_siblings_on_one_gpu_do_not_disturb_each_other(serve: Serve, ledger: Ledger) -> None:
    _, small = serve(offer(mig(0, 1), name="nvidia.com/mig-1g.5gb"))
    _, large = serve(offer(mig(0, 2), name="nvidia.com/mig-3g.20gb"))
    _, whole = serve(offer(gpu(0)))
    small.allocate([mig(0, 1).uuid])
    large.allocate([mig(0, 2).uuid])
    assert "overlaps" in refusal(lambda: whole.allocate([gpu(0).uuid]))[1]
    with pytest.raises(AllocationError):
        ledger.hand_out("nvidia.com/gpu", {gpu(0).uuid: gpu(0)})
