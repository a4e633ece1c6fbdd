"""How long the kubelet waits for an answer, beside what grpcio itself takes in the same minute."""

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc

from benchmarks.bench import Bench
from benchmarks.figures import Figure, percentile
from benchmarks.nodes import CDI, DEVICE_SPECS, GPU, Node, time_sliced
from deviceplugin.stubs import deviceplugin_v1beta1_pb2 as pb

SERVICE = "/v1beta1.DevicePlugin"
REPLICAS = 200
BLOCK = 25
WARM_UP = 100
MICROSECONDS = 1e6

Call = Callable[[bytes], bytes]


def measure(*, quick: bool) -> list[Figure]:
    """Allocate of one share, as each strategy answers it, and GetPreferredAllocation of 4 in 128; 8 GPUs of 200."""
    calls = 400 if quick else 1600  # no id twice: a repeat is a case of its own (contract A26)
    node = Node()
    ids = [f"{gpu.uuid}::{replica}" for replica in range(REPLICAS) for gpu in node.snapshot().gpus]
    allocate = allocations(ids[:calls])
    preferred = [preference(ids[start : start + 128], 4) for start in range(calls // 2)]
    figures = []
    with _calls(node, "") as (plugin, bare):
        figures += _beside("Allocate, 1 share", plugin("Allocate"), bare("Allocate"), allocate, at_most=1.15)
        method = "GetPreferredAllocation"
        figures += _beside("Preferred, 4 of 128", plugin(method), bare(method), preferred)
    for name, flags in (("device specs", DEVICE_SPECS), ("CDI annotations and field", CDI)):
        with _calls(node, flags) as (plugin, bare):
            figures += _beside(f"Allocate, {name}", plugin("Allocate"), bare("Allocate"), allocate)
    return figures


@contextmanager
def _calls(node: Node, flags: str) -> Iterator[tuple[Callable[[str], Call], Callable[[str], Call]]]:
    """The calls of a daemon with these flags that shares every GPU, and of the echo server."""
    with Bench(node, time_sliced(REPLICAS) + flags) as bench:
        bench.start([GPU])
        with echo(bench.place / "echo.sock") as bare, channel(bench.socket_of(GPU)) as plugin:
            yield plugin, bare


def allocations(ids: list[str]) -> list[bytes]:
    """An AllocateRequest for each id, on the wire."""
    return [
        pb.AllocateRequest(
            container_requests=[pb.ContainerAllocateRequest(devices_ids=[device_id])]
        ).SerializeToString()
        for device_id in ids
    ]


def preference(available: list[str], size: int) -> bytes:
    """A PreferredAllocationRequest, on the wire."""
    request = pb.ContainerPreferredAllocationRequest(available_deviceIDs=available, allocation_size=size)
    return pb.PreferredAllocationRequest(container_requests=[request]).SerializeToString()


@dataclass(frozen=True, slots=True)
class Turns:
    """What the same requests took, in seconds, and how the two compared.

    Attributes:
        plugin, bare: of each request.
        ratios: of the medians of each turn.
    """

    plugin: list[float]
    bare: list[float]
    ratios: list[float]


def take_turns(plugin: Call, bare: Call, requests: list[bytes]) -> Turns:
    """Both answer the same requests, in turns of a few, so that whatever slows the machine slows both.

    The last WARM_UP requests come first and do not count.
    """
    requests, warm_up = requests[:-WARM_UP], requests[-WARM_UP:]
    for request in warm_up:
        bare(request)
        plugin(request)
    turns = Turns([], [], [])
    for start in range(0, len(requests), BLOCK):
        turn = requests[start : start + BLOCK]
        of_bare = [_timed(bare, request) for request in turn]
        of_plugin = [_timed(plugin, request) for request in turn]
        turns.ratios.append(statistics.median(of_plugin) / statistics.median(of_bare))
        turns.bare.extend(of_bare)
        turns.plugin.extend(of_plugin)
    return turns


def _beside(
    name: str, plugin: Call, bare: Call, requests: list[bytes], *, at_most: float | None = None
) -> list[Figure]:
    turns = take_turns(plugin, bare, requests)
    note = f"{len(turns.plugin)} calls"
    p50, p99, bare50, bare99 = (
        percentile(samples, percent) * MICROSECONDS for samples in (turns.plugin, turns.bare) for percent in (50, 99)
    )
    return [
        Figure(f"{name}: p50", p50, "us", note=note),
        Figure(f"{name}: p99", p99, "us", note=note),
        Figure(f"{name}: echo p50", bare50, "us", note=note),
        Figure(f"{name}: echo p99", bare99, "us", note=note),
        Figure(
            f"{name}: p50 / echo", statistics.median(turns.ratios), "x", at_most, f"median of {len(turns.ratios)} turns"
        ),
        Figure(f"{name}: p99 / echo", p99 / bare99, "x", note=note),
    ]


def _timed(call: Call, request: bytes) -> float:
    started = time.perf_counter()
    call(request)
    return time.perf_counter() - started


@contextmanager
def channel(socket: Path) -> Iterator[Callable[[str], Call]]:
    """Calls by method name on a socket; requests and answers are bytes, so that a client costs the same everywhere."""
    with grpc.insecure_channel(f"unix:{socket}") as opened:

        def calls(method: str) -> Call:
            call = opened.unary_unary(f"{SERVICE}/{method}", bytes, bytes)
            # Waiting until the server is there is part of the first call, which belongs to the warm-up.
            return lambda request: call(request, wait_for_ready=True)

        yield calls


@contextmanager
def echo(socket: Path) -> Iterator[Callable[[str], Call]]:
    """Calls on a bare echo server in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.echo", str(socket)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        assert server.stdout.readline() == "ready\n", "the echo server did not start"
        try:
            with channel(socket) as calls:
                yield calls
        finally:
            server.stdin.close()
