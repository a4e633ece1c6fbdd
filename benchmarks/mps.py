"""How soon the kubelet hears that an MPS control daemon has died, and that it is back."""

import os
import signal
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from benchmarks.figures import Figure, percentile
from benchmarks.nodes import GPU
from deviceplugin.simulator import Clock, Kubelet, ListRecord
from tests.serving.harness import Node, t4s
from tests.serving.supervisor import Supervisor

MILLISECONDS = 1e3
GPUS, SHARES = 4, 4
CONFIG = f"version: v1\nsharing: {{mps: {{resources: [{{name: {GPU}, replicas: {SHARES}}}]}}}}\n"
# A daemon is started again after 1 s at first, after a longer pause when it dies again soon.
PATIENCE_S = 30.0


def measure(*, quick: bool) -> list[Figure]:
    """From SIGKILL to Unhealthy, and from the start of the next daemon to Healthy."""
    times = [_die_and_return(node, supervisor, gpu) for node, supervisor, gpu in _killable(1 if quick else 8)]
    gone, back, away = ([seconds * MILLISECONDS for seconds in column] for column in zip(*times, strict=True))
    note = f"{len(gone)} daemons killed"
    return [
        Figure("MPS daemon killed to Unhealthy: p50", percentile(gone, 50), "ms", note=note),
        Figure("MPS daemon killed to Unhealthy: p95", percentile(gone, 95), "ms", at_most=1000, note=note),
        Figure("MPS daemon started to Healthy: p50", percentile(back, 50), "ms", note=note),
        Figure("MPS daemon started to Healthy: p95", percentile(back, 95), "ms", at_most=2000, note=note),
        Figure("MPS daemon killed to Healthy: p50", percentile(away, 50), "ms", note="with the pause before the start"),
    ]


def _killable(times: int) -> Iterator[tuple[Node, Supervisor, int]]:
    """GPUs whose daemon serves; each once for each node."""
    for _ in range(times):
        with (
            Node(t4s(GPUS), CONFIG, args=("--mps-root=/run/nvidia/mps",), kubelet=_kubelet, mps=True) as node,
            Supervisor(node) as supervisor,
        ):
            node.run(GPU)
            for gpu in range(GPUS):
                node.kubelet.wait_for(partial(_all_healthy, node), PATIENCE_S)
                yield node, supervisor, gpu


def _all_healthy(node: Node) -> bool:
    return len(node.healthy(GPU)) == GPUS * SHARES


def _die_and_return(node: Node, supervisor: Supervisor, gpu: int) -> tuple[float, float, float]:
    """Seconds from the kill to Unhealthy, from the next start to Healthy, from the kill to Healthy."""
    lists = len(node.kubelet.resources[GPU].lists)
    pid, began = supervisor.wait_serving(gpu)
    killed = node.kubelet.clock.now()
    os.kill(pid, signal.SIGKILL)
    bad = _next(node, lists, (GPUS - 1) * SHARES)
    good = _next(node, lists, GPUS * SHARES)
    _, ticks = supervisor.wait_serving(gpu, other_than=(pid, began))
    since_boot = time.clock_gettime(time.CLOCK_BOOTTIME) - node.kubelet.clock.now()
    started = ticks / os.sysconf("SC_CLK_TCK") - since_boot
    return bad.at - killed, good.at - started, good.at - killed


def _next(node: Node, after: int, healthy: int) -> ListRecord:
    """The first list after so many that has so many healthy devices."""

    def found() -> list[ListRecord]:
        return [one for one in node.kubelet.resources[GPU].lists[after:] if len(one.healthy) == healthy]

    node.kubelet.wait_for(found, PATIENCE_S)
    return found()[0]


def _kubelet(root: Path) -> Kubelet:
    """In real seconds, so that times can be subtracted."""
    return Kubelet(device_plugins_dir=root / "device-plugins", root_dir=root, clock=Clock(scale=1))
