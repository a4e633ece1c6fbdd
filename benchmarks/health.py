"""How soon the kubelet hears that a GPU is broken."""

import contextlib

from benchmarks.bench import LOOK_S, Bench
from benchmarks.figures import Figure, percentile
from benchmarks.nodes import GPU, Node, nvml, time_sliced
from tests.nvml_standin import Control

MILLISECONDS = 1e3
REPLICAS = 64
GPUS = 8


def measure(*, quick: bool) -> list[Figure]:
    """From an Xid to the list on the stream: 8 GPUs of 64 shares, the real binding on the stand-in library."""
    waits = []
    for _ in range(2 if quick else 10):
        with Bench(Node(), time_sliced(REPLICAS), nvml) as bench:
            bench.start([GPU])
            control = Control(bench.place / "faults")
            _wait_until_heard(bench, control)
            for gpu in range(GPUS - 1):
                lists = len(bench.lists(GPU))
                happened = bench.now()
                control.append(f"xid {gpu} 79")
                told = bench.wait_for_lists(GPU, lists + 1)
                assert len(told.healthy) == REPLICAS * (GPUS - 2 - gpu), f"{len(told.healthy)} healthy devices"
                waits.append((told.at - happened) * MILLISECONDS)
    note = f"{len(waits)} Xids"
    return [
        Figure("Xid to list: p50", percentile(waits, 50), "ms", note=note),
        Figure("Xid to list: p95", percentile(waits, 95), "ms", at_most=50, note=note),
    ]


def _wait_until_heard(bench: Bench, control: Control) -> None:
    """Break the last GPU as often as it takes: an event before the event set exists is nobody's."""
    lists = len(bench.lists(GPU))
    while len(bench.lists(GPU)) == lists:
        control.append(f"xid {GPUS - 1} 79")
        with contextlib.suppress(TimeoutError):
            bench.kubelet.wait_for(lambda: len(bench.lists(GPU)) > lists, LOOK_S)
