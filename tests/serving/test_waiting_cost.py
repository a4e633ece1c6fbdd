"""Waiting for a kubelet costs next to nothing (issue, item 5: capped back-off, under 1 % CPU)."""

import time
from pathlib import Path

from tests.serving.harness import Node, t4s

FIVE = "version: v1\nsharing:\n  timeSlicing:\n    resources:\n" + "".join(
    f"    - {{name: nvidia.com/gpu, devices: [{i}], rename: r{i}, replicas: 25}}\n" for i in range(5)
)
# 0.4 to 0.9 % with five resources in the first minute, less later; a busy machine makes the same work count for more.
LIMIT = 0.02
FIRST_HASTE_S = 2.0
MEASURED_S = 3.0


def share_of_a_cpu(node: Node) -> float:
    """How much of one CPU the daemon uses, threads included, once the haste of the first moments is over."""
    time.sleep(FIRST_HASTE_S)
    before = _cpu_s(node)
    time.sleep(MEASURED_S)
    return (_cpu_s(node) - before) / MEASURED_S


def _cpu_s(node: Node) -> float:
    assert node.process is not None
    threads = Path(f"/proc/{node.process.pid}/task").iterdir()
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9


def test_waiting_for_a_kubelet_costs_next_to_nothing() -> None:
    with Node(t4s(5), FIVE) as node:
        directory = node.kubelet.registration_socket.parent
        if directory.exists():
            directory.rmdir()
        node.start()
        node.wait_log("No such file or directory")
        assert share_of_a_cpu(node) < LIMIT
        directory.mkdir()
        node.wait_log("there is none")
        assert share_of_a_cpu(node) < LIMIT
        lines = len(node.log_lines)
        node.kubelet.start()
        node.wait_listed(*(f"nvidia.com/r{i}" for i in range(5)))
        assert lines < 30, "waiting is said once, not at each look"
