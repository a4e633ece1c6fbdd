"""Every rendering and every static manifest runs: its variables, mounts and rights are enough to get ready."""

import os
import signal
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.deploy.chart import cases, render, static_manifests
from tests.image.node import PLUGIN, Node
from tests.image.sandbox import Image
from tests.mps_standin import end_servers

# Others differ from these in what no container sees: affinity, runtime class, size of a mount, the ConfigMap's name.
RENDERINGS = {
    *(
        "no-values",
        "time-slicing",
        "mig-mixed",
        "mig-in-file",
        "mps",
        "cpu-manager",
        "cdi",
        "volume-mounts",
        "microk8s",
    ),
}
MANIFESTS = static_manifests() | {name: render(values) for name, values in cases().items() if name in RENDERINGS}


def test_renderings_are_there() -> None:
    assert MANIFESTS.keys() >= RENDERINGS


@pytest.mark.parametrize("name", MANIFESTS)
def test_it_gets_ready(name: str, image: Image, tmp_path_factory: pytest.TempPathFactory) -> None:
    node = Node(image, tmp_path_factory.mktemp("r"), MANIFESTS[name])
    with ExitStack() as stack:
        stack.callback(end_servers, Path("/mps"))
        stack.callback(node.kubelet.close)
        processes = [stack.enter_context(sandbox.running()) for sandbox in node.sandboxes.values()]
        plugin = node.sandboxes[PLUGIN]
        node.kubelet.wait_for(lambda: sum(local.allocatable for local in node.kubelet.local().values()) > 1, 30)
        ready, live = plugin.probe("readiness"), plugin.probe("liveness")
        assert (ready.returncode, live.returncode) == (0, 0), ready.stderr + live.stderr
        for process in processes:
            os.kill(process.pid, signal.SIGTERM)
        assert [process.wait(20) for process in processes] == [0] * len(processes)
