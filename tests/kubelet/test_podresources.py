"""What PodResources says: real calls to the stand-in, and to servers that misbehave."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from deviceplugin.errors import KubeletError
from deviceplugin.kubelet.paths import KubeletPaths
from deviceplugin.kubelet.podresources import PodResources
from deviceplugin.kubelet.unix import target
from deviceplugin.model.held import Held
from deviceplugin.simulator import Container, Pod
from deviceplugin.stubs import podresources_v1_pb2 as pb
from tests.allocation.offers import gpu, ids_of, offer
from tests.kubelet.node import GPU, Node, pod, runs, unhealthy


def client(node: Node) -> PodResources:
    return PodResources(KubeletPaths(node.directory / "kubelet.sock", node.root).pod_resources)


def test_ids_of_running_pods_and_of_nobody_else(node: Node) -> None:
    node.registered(offer(gpu(0, 4)))
    resources = client(node)
    assert resources.list(10.0) == Held()
    first, second = node.kubelet.admit(pod("a", 2)), node.kubelet.admit(pod("b", 1))
    assert resources.list(10.0) == Held({GPU: runs(first) | runs(second)})
    node.kubelet.end(first.uid)
    assert resources.list(10.0) == Held({GPU: runs(second)})


def test_plain_init_containers_are_not_listed(node: Node) -> None:
    """Their ids stay held all the same (P2): the ledger and the checkpoint know."""
    plugin = node.registered(offer(gpu(0, 4)))
    node.kubelet.admit(Pod("p", containers=(Container("i", {GPU: 1}, "init"), Container("c", {GPU: 0}))))
    assert client(node).list(10.0).of(GPU) == frozenset()
    assert len(plugin.ledger.held().of(GPU)) == 1


def test_allocatable_is_what_the_kubelet_made_of_the_list(node: Node) -> None:
    whole = offer(gpu(0), gpu(1))
    plugin = node.registered(whole)
    assert client(node).allocatable(10.0) == Held({GPU: frozenset(ids_of(whole))})
    plugin.link.answer_from(unhealthy(whole, gpu(0).uuid))
    plugin.link.send(GPU)
    node.kubelet.wait_for(lambda: len(node.kubelet.resources[GPU].lists) == 2)
    assert client(node).allocatable(10.0) == Held({GPU: frozenset({gpu(1).uuid})})


def test_one_client_survives_kubelet_restarts(node: Node) -> None:
    node.registered(offer(gpu(0)))
    resources = client(node)
    resources.list(10.0)
    node.kubelet.stop()
    with pytest.raises(KubeletError):
        resources.list(10.0)
    node.kubelet.start()
    assert resources.list(10.0) == Held()


def test_no_socket_is_an_error_at_once(root: Path) -> None:
    begin = time.monotonic()
    with pytest.raises(KubeletError, match=rf"{root}/none: List: .*UNAVAILABLE"):
        PodResources(root / "none").list(30.0)
    assert time.monotonic() - begin < 10


class Scripted:
    """What a PodResources server answers to every List: `answer`, or an error."""

    def __init__(self) -> None:
        self.answer = b""
        self.code: grpc.StatusCode | None = None

    def list(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        if self.code is not None:
            context.abort(self.code, "rejected by rate limit")
        return self.answer


@pytest.fixture
def scripted(root: Path) -> Iterator[Scripted]:
    script = Scripted()
    handler = grpc.method_handlers_generic_handler(
        "v1.PodResourcesLister", {"List": grpc.unary_unary_rpc_method_handler(script.list)}
    )
    with ThreadPoolExecutor(2) as workers:
        server = grpc.server(workers, handlers=[handler], options=[("grpc.max_send_message_length", -1)])
        server.add_insecure_port(target(root / "s"))
        server.start()
        yield script
        server.stop(None)


def test_a_rate_limit_is_an_error_with_the_kubelets_words(root: Path, scripted: Scripted) -> None:
    scripted.code = grpc.StatusCode.RESOURCE_EXHAUSTED
    with pytest.raises(KubeletError, match=r"rejected by rate limit \(RESOURCE_EXHAUSTED\)"):
        PodResources(root / "s").list(10.0)


def test_an_id_on_two_numa_nodes_counts_once_and_a_large_answer_is_taken(root: Path, scripted: Scripted) -> None:
    ids = [f"{gpu(0).uuid}::{n}" for n in range(100_000)]
    both = [pb.ContainerDevices(resource_name=GPU, device_ids=ids) for _ in range(2)]
    answer = pb.ListPodResourcesResponse(
        pod_resources=[pb.PodResources(name="p", containers=[pb.ContainerResources(name="c", devices=both)])]
    )
    scripted.answer = answer.SerializeToString()
    assert len(scripted.answer) > 4 * 1024 * 1024
    assert PodResources(root / "s").list(10.0) == Held({GPU: frozenset(ids)})


def test_what_is_no_answer_is_an_error(root: Path, scripted: Scripted) -> None:
    scripted.answer = b"\xff"
    with pytest.raises(KubeletError):
        PodResources(root / "s").list(10.0)


def test_an_unlisted_device_stays_in_the_answer(node: Node) -> None:
    """Vanished ids are still shown for their holder (P3), so the ledger is not the only witness."""
    plugin = node.registered(offer(gpu(0), gpu(1)))
    held = runs(node.kubelet.admit(pod()))
    kept = replace(offer(gpu(0), gpu(1)), devices=tuple(d for d in offer(gpu(0), gpu(1)).devices if d.id in held))
    plugin.link.answer_from(kept)
    plugin.link.send(GPU)
    node.kubelet.wait_for(lambda: len(node.kubelet.resources[GPU].lists) == 2)
    assert client(node).list(10.0).of(GPU) == held
