"""How long the node is without its devices: at a start, after a kubelet restart."""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Collection

from benchmarks.bench import Bench
from benchmarks.figures import Figure, percentile
from benchmarks.nodes import GPU, MIXED, SLICE, WHOLE, Node, Sources, nvml, simulated, time_sliced

MILLISECONDS = 1e3


def measure(*, quick: bool) -> list[Figure]:
    """Starts on both drivers, a long list, kubelet restarts."""
    starts = 3 if quick else 11
    figures = []
    for source, driver in ((simulated, "simulated"), (nvml, "NVML binding on a stand-in")):
        figures += _start(f"8 GPUs, {driver}", Node(), WHOLE, [GPU], source=source, times=starts)
        figures += _start(f"56 MIG instances, {driver}", Node(slices=7), MIXED, [SLICE], source=source, times=starts)
    return [*figures, _bare_start(starts), *_restarts(5 if quick else 30)]


def _start(
    name: str, node: Node, config: str, resources: Collection[str], *, source: Sources, times: int
) -> list[Figure]:
    registered = []
    listed = []
    with Bench(node, config, source) as bench:
        for _ in range(times):
            started = bench.start(resources)
            registered.append(max(bench.kubelet.resources[one].registrations[-1].at for one in resources) - started)
            listed.append(max(bench.lists(one)[-1].at for one in resources) - started)
            bench.stop()
    note = f"median of {times} starts"
    return [
        Figure(f"start to registered: {name}", statistics.median(registered), "s", at_most=0.45, note=note),
        Figure(f"start to first list: {name}", statistics.median(listed), "s", note=note),
    ]


def _bare_start(times: int) -> Figure:
    """What no plugin in Python can be faster than: an interpreter that imports grpc and goes."""
    taken = []
    for _ in range(times):
        started = time.perf_counter()
        subprocess.run([sys.executable, "-c", "import grpc, os; os._exit(0)"], check=True)
        taken.append(time.perf_counter() - started)
    return Figure(
        "start to end: an interpreter that imports grpc", statistics.median(taken), "s", note=f"{times} starts"
    )


def _restarts(times: int) -> list[Figure]:
    """From the moment that kubelet.sock is there again to Register, and on to the list; 8 GPUs of 200 shares."""
    found: list[float] = []
    listed: list[float] = []
    with Bench(Node(), time_sliced(200)) as bench:
        bench.start([GPU])
        for _ in range(times):
            before = bench.kubelet.resources[GPU]
            bench.kubelet.restart()
            # The file's change time is when it was linked into place, in the kernel's coarse clock: up to 4 ms early.
            appeared = os.stat(bench.kubelet.registration_socket).st_ctime - time.time() + bench.now()
            first_list = bench.wait_for_lists(GPU, len(before.lists) + 1)
            register = bench.kubelet.resources[GPU].registrations[len(before.registrations)]
            found.append((register.at - appeared) * MILLISECONDS)
            listed.append((first_list.at - register.at) * MILLISECONDS)
        devices = len(bench.lists(GPU)[-1].devices)
    note = f"{times} kubelet restarts"
    return [
        Figure("new kubelet.sock to Register: p50", percentile(found, 50), "ms", note=note),
        Figure("new kubelet.sock to Register: max", max(found), "ms", at_most=50, note=note),
        Figure(f"Register to list of {devices} devices: p50", percentile(listed, 50), "ms", note=note),
    ]
