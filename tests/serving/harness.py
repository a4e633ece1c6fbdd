"""A node under test: the real daemon as a process, on either driver, against the kubelet stand-in."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from deviceplugin.config.document import dump_document
from deviceplugin.observe.status_socket import StatusUnavailable, read_status
from deviceplugin.simulator import AdmittedPod, Clock, Container, Kubelet, Pod
from tests import mps_standin
from tests.driver.convert import node_text_to_description
from tests.nvml_standin import DRIVER_ROOT, FILE_OPTIONS, Control, build, write_sysfs

DRIVERS = ("simulated", "nvml")

TWO_T4 = """\
driver 570.133.20 cuda=12080
gpu 0 model=t4 uuid=GPU-00000000-0000-4000-8000-000000000000 minor=0 bus=00000000:10:00.0 numa=0
gpu 1 model=t4 uuid=GPU-00000001-0000-4000-8000-000000000000 minor=1 bus=00000000:11:00.0 numa=0
"""

MIG_NODE = """\
driver 570.133.20 cuda=12080
gpu 0 model=a100-40gb uuid=GPU-00000000-0000-4000-8000-000000000000 minor=0 bus=00000000:10:00.0 numa=0
gpu 1 model=a100-40gb uuid=GPU-00000001-0000-4000-8000-000000000000 minor=1 bus=00000000:11:00.0 numa=0 mig=1
mig gpu=1 slot=0 gi=2 ci=0 giprofile=2 ciprofile=2 start=0 size=4 uuid=MIG-00000001-0002-4000-8000-000000000000
mig gpu=1 slot=1 gi=7 ci=0 giprofile=0 ciprofile=0 start=4 size=1 uuid=MIG-00000001-0007-4000-8000-000000000000
"""


def t4s(count: int) -> str:
    """The description of a node with that many T4."""
    lines = ["driver 570.133.20 cuda=12080"]
    for i in range(count):
        uuid = f"GPU-0000000{i:x}-0000-4000-8000-000000000000"
        lines.append(f"gpu {i} model=t4 uuid={uuid} minor={i} bus=00000000:{0x10 + i:02x}:00.0 numa={i // 4}")
    return "\n".join(lines) + "\n"


def gpu_uuid(index: int) -> str:
    """The UUID that the descriptions here give GPU `index`."""
    return f"GPU-0000000{index:x}-0000-4000-8000-000000000000"


def library_dir() -> Path:
    """A directory with the compiled stand-in for libnvidia-ml.so.1, shared by all tests of a run."""
    directory = Path(tempfile.gettempdir()) / f"nvml-standin-{os.getuid()}"
    directory.mkdir(mode=0o700, exist_ok=True)
    return build(directory).parent


class Node:
    """One node in a directory of its own; leaving the `with` block stops everything on it.

    Args:
        text: the node, in the format of tests/golden/README.md.
        config: the config file's text; None gives no file.
        driver: `simulated` or `nvml` (the real binding on the stand-in library).
        args, env: more flags and variables for the daemon.
        kubelet: None makes one (seeded); tests that need special ones pass a factory of the directory.
        sandbox: what is missing or added around the driver, as in cmd.json (tests/golden/README.md).
        launcher: words before the daemon's command, which they must end up executing in their own process.
        speed: how many times as fast as ours the daemon's clock runs (tests/serving/quick.py).
        mps: the stand-in for nvidia-cuda-mps-control is on PATH.
    """

    def __init__(
        self,
        text: str = TWO_T4,
        config: str | None = None,
        *,
        driver: str = "simulated",
        args: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        kubelet: Callable[[Path], Kubelet] | None = None,
        sandbox: Mapping[str, Any] | None = None,
        faults: Sequence[str] = (),
        launcher: Sequence[str] = (),
        speed: float = 1,
        mps: bool = False,
    ) -> None:
        # Short, since a unix socket's path has 107 bytes.
        self.root = Path(tempfile.mkdtemp(prefix="dp-"))
        if mps:
            self.root.chmod(0o755)  # processes of any user must reach the pipes below it
        self.mps_root.mkdir()  # as where it is mounted
        self.driver = driver
        self.mps_bin = mps_standin.install(self.root / "bin") if mps else None
        self.mps_faults = mps_standin.Faults(self.root / "mps-faults")
        self._args = tuple(args)
        self._env = dict(env or {})
        self._sandbox = dict(sandbox or {})
        self.control = Control(self.root / "faults")
        self._faults = list(faults)
        self._text = text
        self._launcher = launcher
        self._program = ["deviceplugin.cli.main"] if speed == 1 else ["tests.serving.quick", str(speed)]
        self.node_file = self.root / ("node.yaml" if driver == "simulated" else "node.txt")
        self._nodes = 0
        self.set_node(text)
        if driver == "nvml":
            for line in faults:
                self.control.append(line)
        self.config_path: Path | None = None
        if config is not None:
            self.config_path = self.root / "config" / "config.yaml"
            self.config_path.parent.mkdir()
            self.config_path.write_text(config)
        self.kubelet = (kubelet or _kubelet)(self.root)
        self.process: subprocess.Popen[str] | None = None
        self.log_lines: list[str] = []
        self._log_changed = threading.Condition()
        self._reader: threading.Thread | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if self.process is not None and self.process.poll() is None:
                self.stop()
            if kind is None:
                self.kubelet.close()
            else:
                self.kubelet.take_panic()
                self.kubelet.close()
                sys.stderr.write("\n".join(["--- the daemon's log", *self.log_lines]) + "\n")
        finally:
            if self.process is not None and self.process.poll() is None:
                self.process.kill()
                self.process.wait()
            if self.mps_bin is not None:
                mps_standin.end_servers(self.root)
            shutil.rmtree(self.root, ignore_errors=True)

    def set_node(self, text: str, sandbox: Mapping[str, Any] | None = None) -> None:
        """Replace the node's description, as a driver does whose hardware changes, or what is around the driver."""
        self._text = text
        if sandbox is not None:
            self._sandbox = dict(sandbox)
        if self.driver == "simulated":
            temporary = self.node_file.with_suffix(".new")
            temporary.write_text(dump_document(node_text_to_description(text, self._sandbox, faults=self._faults)))
            temporary.rename(self.node_file)
            return
        sysroot = self.root / "sysroot"
        shutil.rmtree(sysroot / "sys", ignore_errors=True)
        options = {key: value for key, value in self._sandbox.items() if key in FILE_OPTIONS}
        write_sysfs(sysroot, text, **options)
        if not self.node_file.exists():
            self.node_file.write_text(text)
            return
        self._nodes += 1
        replacement = self.node_file.with_name(f"node-{self._nodes}.txt")
        replacement.write_text(text)
        self.control.append(f"node {replacement}")

    def inject(self, *faults: str) -> None:
        """Let these happen (fault lines: the top of tests/nvml_standin/core.c), on either driver."""
        self._faults += faults
        if self.driver == "nvml":
            self.control.append(*faults)
        else:
            self.set_node(self._text)

    # The daemon.

    @property
    def status_socket(self) -> Path:
        """Where the daemon serves its status."""
        return self.root / "status.sock"

    @property
    def cdi_root(self) -> Path:
        """Where the daemon writes CDI specifications."""
        return self.root / "cdi"

    def cdi_specs(self) -> dict[str, Any]:
        """The CDI specifications as a container runtime finds them, by file."""
        return {path.name: json.loads(path.read_text()) for path in sorted(self.cdi_root.glob("*.json"))}

    def flags(self) -> list[str]:
        """The flags that tie a command to this node."""
        driver = f"simulated:{self.node_file}" if self.driver == "simulated" else f"nvml:{self.root / 'sysroot'}"
        flags = [f"--driver={driver}", f"--kubelet-socket={self.kubelet.registration_socket}"]
        flags += [f"--kubelet-root-dir={self.root}", f"--status-socket={self.status_socket}"]
        flags.append(f"--mps-container-root={self.mps_root}")
        flags.append(f"--cdi-root={self.cdi_root}")
        if self.driver == "nvml" and self._sandbox.get("driver_root"):
            flags.append(f"--driver-root-ctr-path={self.root / 'sysroot' / DRIVER_ROOT}")
        if self.config_path is not None:
            flags.append(f"--config-file={self.config_path}")
        return flags + list(self._args)

    def environ(self) -> dict[str, str]:
        """The environment of commands on this node."""
        path = f"{self.mps_bin}{os.pathsep}{os.environ['PATH']}" if self.mps_bin else os.environ["PATH"]
        environ = {
            "PATH": path,
            "MPS_STANDIN_FAULTS": str(self.mps_faults.path),
            "HOME": str(self.root),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        if self.driver == "nvml":
            environ["LD_LIBRARY_PATH"] = str(library_dir())
            environ["NVML_STANDIN_NODE"] = str(self.node_file)
            environ["NVML_STANDIN_CONTROL"] = str(self.root / "faults")
            environ["NVML_STANDIN_STATE"] = str(self.root / "nvml-state")
        return environ | self._env

    def start(self) -> Self:
        """Start the daemon; does not wait for anything."""
        self.process = subprocess.Popen(
            [*self._launcher, sys.executable, "-m", *self._program, "serve", *self.flags()],
            env=self.environ(),
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._reader = threading.Thread(target=self._read_log, args=(self.process,), name="log", daemon=True)
        self._reader.start()
        return self

    def run(self, *resources: str) -> Self:
        """Start the kubelet and the daemon, and wait until these resources (default: nvidia.com/gpu) have a list."""
        if not self.kubelet.running:
            self.kubelet.start()
        self.start()
        try:
            self.wait_listed(*(resources or ("nvidia.com/gpu",)))
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise
        return self

    def command(self, *words: str, timeout: float = 20) -> subprocess.CompletedProcess[str]:
        """Run one command of ours with this node's flags where they make sense."""
        return subprocess.run(
            [sys.executable, "-m", "deviceplugin.cli.main", *words],
            env=self.environ(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def stop(self, number: signal.Signals = signal.SIGTERM, timeout: float = 10) -> int:
        """Signal the daemon and return its exit status."""
        assert self.process is not None
        self.process.send_signal(number)
        return self.wait_exit(timeout)

    def wait_exit(self, timeout: float = 15) -> int:
        """The exit status, once the daemon has ended by itself."""
        assert self.process is not None
        assert self._reader is not None
        status = self.process.wait(timeout)
        self._reader.join(5)
        return status

    def _read_log(self, process: subprocess.Popen[str]) -> None:
        assert process.stderr is not None
        with process.stderr:
            for line in process.stderr:
                with self._log_changed:
                    self.log_lines.append(line.rstrip())
                    self._log_changed.notify_all()

    @property
    def log(self) -> str:
        """Everything the daemon logged."""
        with self._log_changed:
            return "\n".join(self.log_lines)

    def wait_log(self, text: str, timeout: float = 15) -> None:
        """Wait for a log line with this text in it."""
        with self._log_changed:
            found = self._log_changed.wait_for(lambda: any(text in line for line in self.log_lines), timeout)
        assert found, f"no log line with {text!r} within {timeout} s"

    def status(self) -> dict[str, Any]:
        """The daemon's status document."""
        return read_status(self.status_socket)

    def wait_status(self, predicate: Callable[[dict[str, Any]], object], timeout: float = 15) -> dict[str, Any]:
        """Wait until the status document satisfies the predicate; returns it."""
        deadline = time.monotonic() + timeout
        document: dict[str, Any] = {}
        while time.monotonic() < deadline:
            with contextlib.suppress(StatusUnavailable):
                document = self.status()
                if predicate(document):
                    return document
            time.sleep(0.02)
        raise AssertionError(f"not within {timeout} s; the last status: {document}")

    def wait_ready(self) -> dict[str, Any]:
        """Wait until the daemon says it is ready."""
        return self.wait_status(lambda document: document["ready"]["ok"])

    # MPS.

    @property
    def mps_root(self) -> Path:
        """The MPS root as the node's processes see it."""
        return self.root / "mps"

    def mps_daemon(self, gpu: int = 0, resource: str = "nvidia.com/gpu") -> mps_standin.ControlDaemon:
        """A control daemon for a GPU at the place where the plugin looks for it; not started."""
        assert self.mps_bin is not None
        return mps_standin.ControlDaemon(self.mps_bin, self.mps_root / resource / gpu_uuid(gpu), faults=self.mps_faults)

    # The kubelet's view.

    def wait_listed(self, *resources: str) -> None:
        """Wait until the kubelet has a list of each resource."""
        self.kubelet.wait_for(lambda: all(self.kubelet.resources[name].lists for name in resources), 15)

    def listed(self, resource: str = "nvidia.com/gpu") -> tuple[str, ...]:
        """The ids of the newest list, sorted."""
        lists = self.kubelet.resources[resource].lists
        return tuple(sorted(lists[-1].ids)) if lists else ()

    def healthy(self, resource: str = "nvidia.com/gpu") -> frozenset[str]:
        """The healthy ids of the newest list."""
        return self.kubelet.resources[resource].lists[-1].healthy

    def wait_list(self, predicate: Callable[[tuple[str, ...]], object], resource: str = "nvidia.com/gpu") -> None:
        """Wait until the newest list's sorted ids satisfy the predicate."""
        self.kubelet.wait_for(lambda: predicate(self.listed(resource)), 15)

    def until(self, predicate: Callable[[], object], timeout: float = 20) -> None:
        """Wait until the predicate is true at the kubelet; the daemon is told by SIGHUP to look, again and again."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            self.hang_up()
            with contextlib.suppress(TimeoutError):
                self.kubelet.wait_for(predicate, 0.1)
                return
        raise AssertionError(f"not within {timeout} s; the daemon's status: {self.status()}")

    def hang_up(self) -> None:
        """Send SIGHUP: reload, look at the driver and at what is held."""
        assert self.process is not None
        self.process.send_signal(signal.SIGHUP)

    def pod(self, name: str, limits: Mapping[str, int]) -> AdmittedPod:
        """Admit a pod of one container."""
        return self.kubelet.admit(Pod(name, containers=(Container("main", limits),)))

    def sockets(self) -> dict[str, int]:
        """The plugin's sockets: name -> inode."""
        directory = self.kubelet.registration_socket.parent
        return {path.name: path.lstat().st_ino for path in directory.glob("nvidia-*.sock")}

    def write_config(self, text: str) -> None:
        """Edit the config file in place."""
        assert self.config_path is not None
        self.config_path.write_text(text)


def _kubelet(root: Path) -> Kubelet:
    return Kubelet(device_plugins_dir=root / "device-plugins", root_dir=root, clock=Clock(scale=10), seed=7)


def envs(pod: AdmittedPod) -> dict[str, str]:
    """The environment variables that the pod's only container got from plugins."""
    (container,) = pod.containers.values()
    assert container.options is not None, pod.message
    return dict(container.options.envs)


@contextlib.contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Fail if the block takes longer: a generous bound on something that must not hang."""
    began = time.monotonic()
    yield
    took = time.monotonic() - began
    assert took < seconds, f"took {took:.1f} s, allowed are {seconds} s"
