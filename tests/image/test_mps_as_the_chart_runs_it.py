"""Plugin and MPS supervisor as the chart runs them: two containers of the image, each with its rendered rights."""

import os
import re
import signal
from contextlib import ExitStack
from pathlib import Path

import pytest

from deviceplugin.simulator import Container, Pod
from tests.deploy.chart import render
from tests.image.node import PLUGIN, Node
from tests.image.sandbox import CAPABILITIES, Image
from tests.mps_standin import end_servers
from tests.serving.harness import gpu_uuid

GPU = "nvidia.com/gpu"
FILE = "version: v1\nsharing: {mps: {resources: [{name: gpu, replicas: 2}]}}\n"
EXCLUSIVE_PROCESS, DEFAULT = "3", "0"


def test_daemons_are_run_with_the_rights_that_the_chart_gives(
    image: Image, tmp_path_factory: pytest.TempPathFactory
) -> None:
    node = Node(image, tmp_path_factory.mktemp("m"), render({"config": {"map": {"default": FILE}}}))
    of_plugin, of_supervisor = node.sandboxes[PLUGIN], node.sandboxes["mps-control-daemon-ctr"]

    def wait_healthy(amount: int) -> None:
        node.kubelet.wait_for(
            lambda: GPU in node.kubelet.local() and node.kubelet.local()[GPU].allocatable == amount, 30
        )

    def compute_modes() -> list[str]:
        return [(node.compute_modes / gpu_uuid(gpu)).read_text().strip() for gpu in (0, 1)]

    with ExitStack() as stack:
        stack.callback(end_servers, Path("/mps"))
        stack.callback(node.kubelet.close)
        supervisor = stack.enter_context(of_supervisor.running())
        stack.enter_context(of_plugin.running())
        wait_healthy(4)
        assert compute_modes() == [EXCLUSIVE_PROCESS] * 2
        pod = node.kubelet.admit(Pod("p", containers=(Container("main", {GPU: 1}),)))
        assert pod.phase == "Running", pod.message

        status = Path(f"/proc/{supervisor.pid}/status").read_text()
        fields = dict(re.findall(r"^(\w+):\s+(.+)$", status, re.MULTILINE))
        added = of_supervisor.container["securityContext"]["capabilities"]["add"]
        rights = sum(1 << CAPABILITIES[name] for name in added)
        assert {int(fields[name], 16) for name in ("CapPrm", "CapEff", "CapBnd")} == {rights}
        refused = of_supervisor.run("sh", "-c", "echo >/x")
        assert "Read-only file system" in refused.stderr

        node.kubelet.end(pod.uid)
        os.kill(supervisor.pid, signal.SIGTERM)
        assert supervisor.wait(of_supervisor.pod["terminationGracePeriodSeconds"]) == 0
        assert compute_modes() == [DEFAULT] * 2
        wait_healthy(0)
