"""Plugin and MPS supervisor as the chart runs them: two containers of the image, each with its rendered rights."""

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from deviceplugin.config.document import dump_document
from deviceplugin.simulator import Clock, Container, Kubelet, Pod
from tests.deploy.chart import Values, only, render
from tests.driver.convert import node_text_to_description
from tests.image.sandbox import CAPABILITIES, Image, Sandbox
from tests.mps_standin import end_servers
from tests.mps_standin.handles import NAME, PROGRAM
from tests.serving.harness import TWO_T4, gpu_uuid

GPU = "nvidia.com/gpu"
FILE = "version: v1\nsharing: {mps: {resources: [{name: gpu, replicas: 2}]}}\n"
EXCLUSIVE_PROCESS, DEFAULT = "3", "0"


class Node:
    """A node with both pods of the chart, and a kubelet."""

    def __init__(self, image: Image, root: Path) -> None:
        node, programs = root / "node", root / "bin"
        places = {
            "kubelet-device-plugins-dir": root / "dp",
            "kubelet-pod-resources-dir": root / "pod-resources",
            "mps-root": root / "mps",
            "mps-shm": root / "mps/shm",
            "run": root / "run",
            "config": root / "config",
        }
        for directory in (node, programs, *places.values()):
            directory.mkdir()
        self.compute_modes = node / "node.yaml.compute-modes"
        (node / "node.yaml").write_text(dump_document(node_text_to_description(TWO_T4)))
        (programs / NAME).write_text(f'#!/bin/sh\nexec -a {NAME} /usr/bin/python3 -S {PROGRAM} "$@"\n')
        (programs / NAME).chmod(0o755)
        values: Values = {
            "config": {"map": {"default": FILE}},
            "extraEnv": [
                {"name": "GPU_DRIVER", "value": f"simulated:{node}/node.yaml"},
                {"name": "PATH", "value": f"{programs}:/usr/bin:/bin"},
            ],
        }
        manifests = render(values)
        (root / "config/config.yaml").write_text(only(manifests, "ConfigMap")["data"]["default"])
        self.kubelet = Kubelet(device_plugins_dir=root / "dp", root_dir=root, clock=Clock(scale=10), seed=7)
        self.plugin, self.supervisor = (
            Sandbox(
                image,
                only(manifests, "DaemonSet", suffix)["spec"]["template"]["spec"],
                places,
                [programs, PROGRAM.parent],
                shared=[node],
            )
            for suffix in ("-plugin", "-mps")
        )

    def wait_healthy(self, amount: int) -> None:
        """Wait until the kubelet can give out so many shares."""
        self.kubelet.wait_for(
            lambda: GPU in self.kubelet.local() and self.kubelet.local()[GPU].allocatable == amount, 30
        )

    def compute_mode(self, gpu: int) -> str:
        return (self.compute_modes / gpu_uuid(gpu)).read_text().strip()


@pytest.fixture
def node(image: Image, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    # Short, since a unix socket's path has 107 bytes.
    root = tmp_path_factory.mktemp("m")
    made = Node(image, root)
    made.kubelet.start()
    yield made
    made.kubelet.close()
    end_servers(Path("/mps"))


def end(process: "subprocess.Popen[str]") -> None:
    process.kill()
    print(process.communicate(timeout=10)[0])


def test_daemons_are_run_with_the_rights_that_the_chart_gives(node: Node) -> None:
    with ExitStack() as stack:
        supervisor = node.supervisor.start()
        stack.callback(end, supervisor)
        plugin = node.plugin.start()
        stack.callback(end, plugin)
        node.wait_healthy(4)
        assert [node.compute_mode(gpu) for gpu in (0, 1)] == [EXCLUSIVE_PROCESS] * 2
        pod = node.kubelet.admit(Pod("p", containers=(Container("main", {GPU: 1}),)))
        assert pod.phase == "Running", pod.message
        ready = node.plugin.run(*node.plugin.container["readinessProbe"]["exec"]["command"])
        assert ready.returncode == 0, ready.stderr

        status = Path(f"/proc/{supervisor.pid}/status").read_text()
        fields = dict(re.findall(r"^(\w+):\s+(.+)$", status, re.MULTILINE))
        added = node.supervisor.container["securityContext"]["capabilities"]["add"]
        rights = sum(1 << CAPABILITIES[name] for name in added)
        assert {int(fields[name], 16) for name in ("CapPrm", "CapEff", "CapBnd")} == {rights}
        refused = node.supervisor.run("sh", "-c", "echo >/x")
        assert "Read-only file system" in refused.stderr

        node.kubelet.end(pod.uid)
        os.kill(supervisor.pid, signal.SIGTERM)
        assert supervisor.wait(node.supervisor.pod["terminationGracePeriodSeconds"]) == 0
        assert [node.compute_mode(gpu) for gpu in (0, 1)] == [DEFAULT] * 2
        node.wait_healthy(0)
