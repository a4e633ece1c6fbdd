"""What the daemon weighs, and whether it grows."""

import time

from benchmarks.bench import Bench
from benchmarks.figures import Figure
from benchmarks.latency import allocations, channel
from benchmarks.nodes import FIVE_NAMES, FIVE_NAMES_DEVICES, Node, five_names, nvml, simulated

IDLE_S = 10.0
SHARED = FIVE_NAMES[1]
CHANGING = FIVE_NAMES[-1]
# After these every worker thread of the server exists and every path of a reload has been taken.
WARM_UP_ALLOCATES = 200
WARM_UP_RELOADS = 20


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
        allocate(bench, WARM_UP_ALLOCATES)
        reload(bench, WARM_UP_RELOADS)
        warm = bench.settled_usage()
        allocate(bench, allocates)
        after_allocates = bench.settled_usage()
        reload(bench, reloads // 2)
        half_way = bench.settled_usage()
        reload(bench, reloads - reloads // 2)
        after_reloads = bench.settled_usage()
    done = f"{allocates} Allocates and {reloads} reloads"
    since = f"{done} after the first {WARM_UP_ALLOCATES} and {WARM_UP_RELOADS}"
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


def allocate(bench: Bench, times: int) -> None:
    """Allocate the shares of one resource, each in its turn, `times` in all."""
    ids = bench.lists(SHARED)[-1].ids
    requests = allocations(list(ids))
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
