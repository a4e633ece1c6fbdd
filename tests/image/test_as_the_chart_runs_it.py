"""The image as the chart runs it: no capability, a read-only root, the chart's mounts and variables, and a kubelet."""

import os
import platform
import re
import shlex
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from deviceplugin.config.document import dump_document
from deviceplugin.config.memory import parse_memory_mib
from deviceplugin.simulator import Clock, Container, Kubelet, Pod
from tests.deploy.chart import notes, only, plugin_container, plugin_pod, render
from tests.driver.convert import node_text_to_description
from tests.image.cgroup import MemoryLimit
from tests.image.sandbox import Image, Sandbox
from tests.serving.harness import TWO_T4
from tests.tools import SKIPPED

FILE = (
    "version: v1\nsharing: {timeSlicing: {resources: [{name: gpu, replicas: 2, rename: gpu.shared, devices: [1]}]}}\n"
)
MIB = 1024 * 1024
LIMIT_BYTES = parse_memory_mib(plugin_container()["resources"]["limits"]["memory"]) * MIB
REQUEST_BYTES = parse_memory_mib(plugin_container()["resources"]["requests"]["memory"]) * MIB
MORE_THAN_ALLOWED = f"print(len(bytearray({2 * LIMIT_BYTES})))"
# add_key needs no right, and no runtime's profile allows it.
ADD_KEY = {"x86_64": 248, "aarch64": 217}[platform.machine()]
A_CALL_THAT_IS_NOT_ALLOWED = f"""
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
print(libc.syscall({ADD_KEY}, 0, 0, 0, 0, 0), os.strerror(ctypes.get_errno()))
"""


class Running:
    """A plugin in its container, and the kubelet beside it."""

    def __init__(self, image: Image, root: Path, memory: MemoryLimit | None) -> None:
        self.root = root
        node = root / "node"
        node.mkdir()
        (node / "node.yaml").write_text(dump_document(node_text_to_description(TWO_T4)))
        values: dict[str, Any] = {
            "config": {"map": {"default": FILE}},
            "extraEnv": [{"name": "GPU_DRIVER", "value": f"simulated:{node}/node.yaml"}],
        }
        self.file = root / "config"
        self.file.mkdir()
        self.write(only(render(values), "ConfigMap")["data"]["default"])
        run = root / "run"
        run.mkdir()
        self.kubelet = Kubelet(device_plugins_dir=root / "dp", root_dir=root, clock=Clock(scale=10), seed=7)
        self.kubelet.start()
        places = {
            "kubelet-device-plugins-dir": root / "dp",
            "kubelet-pod-resources-dir": root / "pod-resources",
            "run": run,
            "config": self.file,
        }
        self.sandbox = Sandbox(image, plugin_pod(values), places, [node], memory)
        self.process = self.sandbox.start()
        self.log: list[str] = []
        self.reader = threading.Thread(target=self._read, name="log", daemon=True)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout:
            self.log += self.process.stdout

    def write(self, text: str) -> None:
        """Give the ConfigMap another content, as the kubelet does: a new directory, swapped in by a link."""
        versions = [path for path in self.file.iterdir() if path.name.startswith("..v")]
        new = self.file / f"..v{len(versions)}"
        new.mkdir()
        (new / "config.yaml").write_text(text)
        link = self.file / "..data.new"
        link.symlink_to(new.name)
        link.rename(self.file / "..data")
        if not versions:
            (self.file / "config.yaml").symlink_to("..data/config.yaml")

    def wait_amounts(self, **amounts: int) -> None:
        """Wait until the kubelet can give out so many of each `nvidia.com/` resource, `_` for a dot."""
        want = {f"nvidia.com/{name.replace('_', '.')}": amount for name, amount in amounts.items()}
        self.kubelet.wait_for(
            lambda: want == {name: local.allocatable for name, local in self.kubelet.local().items()}, 30
        )


@pytest.fixture
def memory(request: pytest.FixtureRequest) -> Iterator[MemoryLimit | None]:
    """The chart's limit, for real where this machine lets us."""
    with ExitStack() as stack:
        try:
            group = stack.enter_context(MemoryLimit.of(LIMIT_BYTES, f"gpu-device-plugin-{os.getpid()}"))
        except OSError as error:
            group = None
            why = f"no control group can be made here ({error}); what the process took was compared with the limit"
            request.config.stash.setdefault(SKIPPED, {})["the container's memory limit"] = why
        yield group


@pytest.fixture
def running(image: Image, memory: MemoryLimit | None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    # Short, since a unix socket's path has 107 bytes.
    started = Running(image, tmp_path_factory.mktemp("c"), memory)
    try:
        yield started
    finally:
        started.process.kill()
        started.process.wait()
        started.reader.join(10)
        started.kubelet.close()
        print("".join(started.log))


def test_it_serves_with_no_right_at_all(running: Running) -> None:
    running.wait_amounts(gpu=1, gpu_shared=2)
    pod = running.kubelet.admit(Pod("p", containers=(Container("main", {"nvidia.com/gpu.shared": 1}),)))
    assert pod.phase == "Running", pod.message

    # The chart's probes, in the container, as the kubelet runs them.
    deadline = time.monotonic() + 20
    while (ready := running.sandbox.probe("readiness")).returncode and time.monotonic() < deadline:
        time.sleep(0.1)
    assert ready.returncode == 0, ready.stderr
    assert running.sandbox.probe("liveness").returncode == 0
    status = running.sandbox.run("gpu-device-plugin", "status").stdout
    assert "nvidia.com/gpu.shared" in status

    process = Path("/proc", str(running.process.pid))
    fields = dict(re.findall(r"^(\w+):\s+(.+)$", (process / "status").read_text(), re.MULTILINE))
    assert "nvidia-device-plugin" in (process / "cmdline").read_text()
    assert {fields[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
    assert fields["NoNewPrivs"] == "1"
    assert fields["Uid"].split() == ["0"] * 4
    assert int(fields["VmRSS"].split()[0]) * 1024 < REQUEST_BYTES, "more than the chart requests"
    # seccomp's mode 2: a filter. What it does not name is not there; without it the answer is "Bad address".
    assert fields["Seccomp"] == "2"
    python = "/opt/gpu-device-plugin/bin/python"
    assert running.sandbox.run(python, "-c", A_CALL_THAT_IS_NOT_ALLOWED).stdout == "-1 Function not implemented\n"
    refused = running.sandbox.run("sh", "-c", "echo >/x")
    assert "Read-only file system" in refused.stderr

    # How the chart's notes check a file before it is put in force.
    (check,) = re.findall(
        r"-- (gpu-device-plugin plan .*) < config\.yaml", notes({"config": {"map": {"default": FILE}}})
    )
    planned = running.sandbox.run(*shlex.split(check), given=FILE.replace("replicas: 2", "replicas: 3"))
    assert (planned.returncode, planned.stderr) == (3, "")
    assert "nvidia.com/gpu.shared" in planned.stdout

    # An edit of the ConfigMap, and the end.
    running.write(FILE.replace("replicas: 2", "replicas: 5"))
    running.wait_amounts(gpu=1, gpu_shared=5)
    assert running.kubelet.pod(pod.uid).phase == "Running"
    peak = re.search(r"^VmHWM:\s+(\d+) kB$", (process / "status").read_text(), re.MULTILINE)
    assert peak is not None
    # Beside it there is a probe, of at most the same size, for a moment.
    assert 2 * int(peak[1]) * 1024 < LIMIT_BYTES
    if running.sandbox.memory is not None:
        assert running.sandbox.memory.kills == 0, "process and probes together took more than the chart's limit"
        assert running.sandbox.run(python, "-c", MORE_THAN_ALLOWED).returncode == -signal.SIGKILL
        assert running.process.poll() is None
    began = time.monotonic()
    running.process.send_signal(signal.SIGTERM)
    assert running.process.wait(10) == 0
    assert time.monotonic() - began < running.sandbox.pod["terminationGracePeriodSeconds"]
    assert [name for name in os.listdir(running.root / "dp") if name.startswith("nvidia-")] == []
