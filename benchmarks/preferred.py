"""How long the kubelet waits to hear which devices are preferred, the cost of the call itself included."""

from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.bench import Bench
from benchmarks.figures import Figure, percentile
from benchmarks.latency import BLOCK, WARM_UP, Call, channel, echo, preference, take_turns
from benchmarks.nodes import GPU, WHOLE, Node, time_sliced

METHOD = "GetPreferredAllocation"
REPLICAS = 200
MILLISECONDS = 1e3


def measure(*, quick: bool) -> list[Figure]:
    """Whole GPUs of 8 and of 16, and shares of 8 GPUs of 200; every device is available each time.

    Recorded of NVIDIA's plugin: 1.5 to 1.9 ms for 4 of 8 whole GPUs; 3.7 to 5.6 and 12 to 18 ms for 4 and 16 of 1600
    shares; 23 to 28 s for 3 of 16 whole GPUs.
    """
    calls = WARM_UP + (4 if quick else 20) * BLOCK
    figures: list[Figure] = []
    with _calls(Node(), WHOLE) as (plugin, bare):
        request = preference(_gpus(8), 4)
        figures += _figures("Preferred, 4 of 8 GPUs", plugin, bare, [request] * calls, at_most=0.8)
    with _calls(Node(), time_sliced(REPLICAS)) as (plugin, bare):
        shares = [f"{uuid}::{replica}" for uuid in _gpus(8) for replica in range(REPLICAS)]
        for size, at_most in ((4, 1.0), (16, 1.5)):
            request = preference(shares, size)
            figures += _figures(f"Preferred, {size} of 1600 shares", plugin, bare, [request] * calls, at_most=at_most)
    with _calls(Node(gpus=16), WHOLE) as (plugin, bare):
        figures += _every_size_of_sixteen(plugin, bare, quick=quick)
    return figures


def _every_size_of_sixteen(plugin: Call, bare: Call, *, quick: bool) -> Iterator[Figure]:
    """3 of 16 for itself, and the size that takes longest."""
    calls = WARM_UP + (1 if quick else 4) * BLOCK
    medians = {}
    for size in range(1, 17):
        turns = take_turns(plugin, bare, [preference(_gpus(16), size)] * calls)
        medians[size] = percentile(turns.plugin, 50) * MILLISECONDS
    note = f"{calls - WARM_UP} calls"
    slowest = max(medians, key=medians.__getitem__)
    yield Figure("Preferred, 3 of 16 GPUs: p50", medians[3], "ms", 10, note)
    yield Figure("Preferred, of 16 GPUs, slowest size: p50", medians[slowest], "ms", 10, f"{slowest} GPUs; {note} each")


def _gpus(count: int) -> list[str]:
    return [gpu.uuid or "" for gpu in Node(gpus=count).snapshot().gpus]


@contextmanager
def _calls(node: Node, config: str) -> Iterator[tuple[Call, Call]]:
    """The method of a daemon on the node, and of the echo server."""
    with Bench(node, config) as bench:
        bench.start([GPU])
        with echo(bench.place / "echo.sock") as bare, channel(bench.socket_of(GPU)) as plugin:
            yield plugin(METHOD), bare(METHOD)


def _figures(name: str, plugin: Call, bare: Call, requests: list[bytes], *, at_most: float) -> Iterator[Figure]:
    turns = take_turns(plugin, bare, requests)
    note = f"{len(turns.plugin)} calls"
    yield Figure(f"{name}: p50", percentile(turns.plugin, 50) * MILLISECONDS, "ms", at_most, note)
    yield Figure(f"{name}: p99", percentile(turns.plugin, 99) * MILLISECONDS, "ms", note=note)
    yield Figure(f"{name}: echo p50", percentile(turns.bare, 50) * MILLISECONDS, "ms", note=note)
