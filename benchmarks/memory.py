"""What the daemon weighs, and whether it grows."""

import time

import grpc

from benchmarks.bench import PATIENCE_S, Bench
from benchmarks.figures import Figure
from benchmarks.latency import SERVICE, allocations, channel
from benchmarks.nodes import FIVE_NAMES, FIVE_NAMES_DEVICES, Node, five_names, nvml, simulated

IDLE_S = 10.0
SHARED = FIVE_NAMES[1]
CHANGING = FIVE_NAMES[-1]
# More than the threads that a resource's server may have. The kubelet itself asks for one at a time (A3).
AT_ONCE = 16
WARM_UP_ROUNDS = 10
WARM_UP_RELOADS = 4


def measure(*, quick: bool) -> list[Figure]:
    """At start, after Allocates, after reloads; five resources with 128 devices."""
    return [*_at_start(), *_growth(500 if quick else 10_000, 20 if quick else 1_000)]


def _at_start() -> list[Figure]:
    figures = []
    for source, driver in ((simulated, "simulated"), (nvml, "NVML binding on a stand-in")):
        with Bench(Node(), five_names(), source) as bench:
            bench.start(FIVE_NAMES)
            before = bench.usage()
            time.sleep(IDLE_S)
            after = bench.usage()
        cpu = (after.cpu_seconds - before.cpu_seconds) / IDLE_S * 100
        figures += [
            Figure(f"RSS at start: {driver}", after.rss_mib, "MiB", at_most=50),
            Figure(f"PSS at start: {driver}", after.pss_mib, "MiB"),
            Figure(f"idle: {driver}", cpu, "% CPU", at_most=1),
        ]
    return figures


def _growth(allocates: int, reloads: int) -> list[Figure]:
    with Bench(Node(), five_names()) as bench:
        bench.start(FIVE_NAMES)
        assert sum(len(bench.lists(name)[-1].devices) for name in FIVE_NAMES) == FIVE_NAMES_DEVICES
        warm_up(bench)
        warm = bench.settled_usage()
        allocate(bench, allocates)
        after_allocates = bench.settled_usage()
        reload(bench, reloads // 2)
        half_way = bench.settled_usage()
        reload(bench, reloads - reloads // 2)
        after_reloads = bench.settled_usage()
    done = f"{allocates} Allocates and {reloads} reloads"
    since = f"{done} of a warm daemon"
    return [
        Figure(f"RSS after {allocates} Allocates", after_allocates.rss_mib, "MiB", at_most=50),
        Figure(f"PSS after {allocates} Allocates", after_allocates.pss_mib, "MiB"),
        Figure(f"RSS after {done}", after_reloads.rss_mib, "MiB", at_most=50),
        Figure(f"PSS after {done}", after_reloads.pss_mib, "MiB"),
        Figure("growth of RSS", after_reloads.rss_mib - warm.rss_mib, "MiB", at_most=1, note=since),
        # A leak grows by as much in either half; memory that is put to use for the first time does not.
        Figure("growth of RSS, second half of the reloads", after_reloads.rss_mib - half_way.rss_mib, "MiB"),
        Figure("new threads", after_reloads.threads - warm.threads, "", at_most=0, note=since),
        Figure("new descriptors", after_reloads.descriptors - warm.descriptors, "", at_most=0, note=since),
    ]


def warm_up(bench: Bench) -> None:
    """Let the daemon take every path once, and its server start every worker thread that it may have.

    A pool of threads starts another whenever none is free at that instant, up to its limit; so all at once.
    """
    requests = allocations([*bench.lists(SHARED)[-1].ids])[:AT_ONCE]
    with grpc.insecure_channel(f"unix:{bench.socket_of(SHARED)}") as opened:
        call = opened.unary_unary(f"{SERVICE}/Allocate", bytes, bytes)
        for _ in range(WARM_UP_ROUNDS):
            for answer in [call.future(request, wait_for_ready=True) for request in requests]:
                answer.result(PATIENCE_S)
    reload(bench, WARM_UP_RELOADS)


def allocate(bench: Bench, times: int) -> None:
    """Allocate the shares of one resource, each in its turn, `times` in all."""
    ids = bench.lists(SHARED)[-1].ids
    requests = allocations([*ids])
    with channel(bench.socket_of(SHARED)) as calls:
        call = calls("Allocate")
        for number in range(times):
            call(requests[number % len(requests)])


def reload(bench: Bench, times: int) -> None:
    """Edit the config `times` times; each edit changes one resource and is in force before the next."""
    for number in range(times):
        lists = len(bench.lists(CHANGING))
        bench.edit(five_names(11 - number % 2))
        bench.wait_for_lists(CHANGING, lists + 1)
