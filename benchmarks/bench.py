"""A node to measure on: the real daemon, as a process of its own, and the kubelet stand-in, in one folder."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import grpc

import deviceplugin
from benchmarks.nodes import Node, Sources, simulated
from benchmarks.process import Usage, usage
from deviceplugin.simulator import Clock, Kubelet, ListRecord

COMMAND = Path(sys.executable).with_name("gpu-device-plugin")
# Nothing on a healthy machine takes this long; what does is reported with the daemon's log.
PATIENCE_S = 30.0
# How often a wait looks whether the daemon still runs.
LOOK_S = 0.5
# What the start used up in passing is given back after 2 s, when the loop next comes round (app/heap.py).
SETTLING_S = 5.0


@cache
def byte_compiled() -> dict[str, str]:
    """An environment in which the daemon finds its modules compiled, as it does in the image.

    Compiling at every start, as where nothing may be written, costs time and memory that no node pays.
    """
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    folder = Path(tempfile.gettempdir()) / f"gpu-device-plugin-pyc-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    environment["PYTHONPYCACHEPREFIX"] = str(folder)
    # The interpreter's own modules and libraries as they are imported; of those that import more later, everything.
    imports = "import deviceplugin.app.daemon, deviceplugin.cli.main, deviceplugin.driver.nvml, encodings.utf_8_sig"
    subprocess.run([sys.executable, "-c", imports], env=environment, check=True)
    folders = [str(Path(str(package.__file__)).parent) for package in (deviceplugin, grpc)]
    subprocess.run([sys.executable, "-m", "compileall", "-q", *folders], env=environment, check=True)
    return environment


class Bench:
    """A node with a started kubelet and, after `start`, the daemon on it.

    Args:
        node: what the daemon finds.
        config: the config file's text.
        source: which driver shows the node.

    The kubelet's clock runs in real seconds, so that its records and `now` can be subtracted.
    """

    def __init__(self, node: Node, config: str, source: Sources = simulated) -> None:
        # Not below TMPDIR, whose name may be long: the path of a unix socket has 107 bytes.
        self._folder = tempfile.TemporaryDirectory(prefix="gdp-", dir="/tmp")
        self.place = Path(self._folder.name)
        self._source = source(node, self.place)
        self.config_file = self.place / "config.yaml"
        self.config_file.write_text(config)
        self.device_plugins = self.place / "device-plugins"
        self.kubelet = Kubelet(device_plugins_dir=self.device_plugins, root_dir=self.place, clock=Clock(scale=1))
        self.kubelet.start()
        self._daemon: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if error is not None:
                print(self.log()[-4000:], file=sys.stderr)
            self.stop()
            self.kubelet.close()
        finally:
            self._folder.cleanup()

    def now(self) -> float:
        """Seconds on the clock that stamps the kubelet's records."""
        return self.kubelet.clock.now()

    # -- the daemon --------------------------------------------------------------------------------------------

    def start(self, resources: Collection[str]) -> float:
        """Start the daemon and wait until the kubelet has registered each resource and has a list of it. Returns when
        it was started.
        """
        before = {name: len(self.lists(name)) for name in resources}
        registered = {name: len(self.kubelet.resources[name].registrations) for name in resources}
        started = self.now()
        with (self.place / "log").open("ab") as log:
            self._daemon = subprocess.Popen(
                self._command(),
                env=byte_compiled() | self._source.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        for name, count in before.items():
            self.wait_for_lists(name, count + 1)
        # The list may come before the kubelet has answered Register, which is when it writes that down.
        self.wait_for(
            lambda: all(len(self.kubelet.resources[name].registrations) > count for name, count in registered.items())
        )
        return started

    def stop(self) -> None:
        """End the daemon by SIGTERM, if it runs."""
        daemon, self._daemon = self._daemon, None
        if daemon is not None:
            _end(daemon)

    def hand_over(self, resource: str) -> float:
        """Start a second daemon beside the first, then end the first by SIGTERM. Returns when the signal was sent.

        The second is the daemon from then on.
        """
        first, self._daemon = self._daemon, None
        assert first is not None, "the daemon was not started"
        try:
            socket = self.socket_of(resource)
            self.start([resource])
            assert self.socket_of(resource) != socket, "the first daemon registered again, the second did not yet"
        finally:
            ended = self.now()
            _end(first)
        return ended

    @property
    def pid(self) -> int:
        """The daemon's process id."""
        assert self._daemon is not None, "the daemon was not started"
        return self._daemon.pid

    def usage(self) -> Usage:
        """What the daemon uses now."""
        return usage(self.pid)

    def settled_usage(self) -> Usage:
        """What the daemon uses once no passing call of its own (a look at PodResources, say) is under way.

        That is the look with the fewest descriptors of those within SETTLING_S.
        """
        looks = []
        deadline = time.monotonic() + SETTLING_S
        while time.monotonic() < deadline:
            looks.append(self.usage())
            time.sleep(SETTLING_S / 20)
        return min(looks, key=lambda look: (look.descriptors, look.threads))

    def status(self) -> dict[str, Any]:
        """The daemon's status document."""
        document: dict[str, Any] = json.loads(
            subprocess.run(
                [COMMAND, "status", "--status-socket", self.place / "status.sock", "--output", "json"],
                check=True,
                capture_output=True,
                timeout=PATIENCE_S,
            ).stdout
        )
        return document

    def log(self) -> str:
        """What the daemon has logged so far."""
        path = self.place / "log"
        return path.read_text() if path.exists() else ""

    def _command(self) -> list[str | Path]:
        return [
            *(COMMAND, "serve"),
            *("--driver", self._source.driver),
            *("--kubelet-socket", self.device_plugins / "kubelet.sock"),
            *("--kubelet-root-dir", self.place),
            *("--status-socket", self.place / "status.sock"),
            *("--cdi-root", self.place / "cdi"),
            *("--config-file", self.config_file),
            *("--log-level", "warning"),
        ]

    # -- driving it --------------------------------------------------------------------------------------------

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait until something that the kubelet records has happened.

        Raises:
            TimeoutError: it has not happened in time.
            RuntimeError: the daemon has ended meanwhile.
        """
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                return self.kubelet.wait_for(condition, LOOK_S)
            except TimeoutError:
                if self._daemon is not None and self._daemon.poll() is not None:
                    raise RuntimeError(f"the daemon ended with status {self._daemon.returncode}") from None
                if time.monotonic() > deadline:
                    raise

    def lists(self, resource: str) -> tuple[ListRecord, ...]:
        """Every list of the resource so far."""
        return self.kubelet.resources[resource].lists

    def wait_for_lists(self, resource: str, count: int) -> ListRecord:
        """Wait until the resource had `count` lists in all. Returns that one."""
        self.wait_for(lambda: len(self.lists(resource)) >= count)
        return self.lists(resource)[count - 1]

    def edit(self, config: str) -> float:
        """Put a new config in the old one's place, atomically. Returns when."""
        fresh = self.config_file.with_suffix(".new")
        fresh.write_text(config)
        edited = self.now()
        os.replace(fresh, self.config_file)
        return edited

    def socket_of(self, resource: str) -> Path:
        """The socket that the kubelet was last told to reach the resource at."""
        return self.device_plugins / self.kubelet.resources[resource].registrations[-1].endpoint


def _end(daemon: subprocess.Popen[bytes]) -> None:
    daemon.terminate()
    daemon.wait(PATIENCE_S)
