"""The MPS supervisor of a node under test, as a process of its own."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

from deviceplugin.mps.proc import started_at
from tests.mps_standin import Client, ask
from tests.serving.harness import Node, gpu_uuid

PROGRAM = ("deviceplugin.cli.main",)
PLACES = 9  # modes that the NVML stand-in keeps for each GPU, its own last


class Supervisor:
    """`gpu-device-plugin mps` on a node; leaving the `with` block stops it and ends what it left.

    Args:
        node: made with `mps=True`.
        args, env: more flags and variables.
        program: as for `start`, of the first one.
    """

    def __init__(
        self, node: Node, *args: str, env: dict[str, str] | None = None, program: Sequence[str] = PROGRAM
    ) -> None:
        self._node = node
        self._program = program
        self._args = args
        self._env = env or {}
        self._log = node.root / "supervisor.log"
        self._log_from = 0
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self.start(self._program)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait(10)
        if kind is not None:
            sys.stderr.write(f"--- the supervisor's log\n{self.log}\n")

    def start(self, program: Sequence[str] = PROGRAM) -> Self:
        """Starts it, and the kubelet, which says what is held; does not wait for anything.

        Args:
            program: the module that runs the command, with its first words.
        """
        if not self._node.kubelet.running:
            self._node.kubelet.start()
        self._log_from = self._log.stat().st_size if self._log.exists() else 0
        with self._log.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", *program, "mps", *self._node.flags(), *self._args],
                env=self._node.environ() | self._env,
                stdin=subprocess.DEVNULL,
                stderr=output,
            )
        return self

    def wait_started(self) -> None:
        """Waits until the newest one hears signals; one that is ended before leaves everything to the next."""
        self.wait(lambda: b" starts; " in self._log.read_bytes()[self._log_from :])

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Signals it and returns its exit status."""
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(30)

    @property
    def log(self) -> str:
        """Everything that it logged."""
        return self._log.read_text() if self._log.exists() else ""

    def wait_log(self, text: str, timeout_s: float = 20) -> None:
        """Waits for a log line with this text in it."""
        self.wait(lambda: text in self.log, timeout_s)

    def wait(self, condition: Callable[[], object], timeout_s: float = 20) -> None:
        """Waits until the condition holds."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < deadline, f"not within {timeout_s} s; the supervisor's log:\n{self.log}"
            time.sleep(0.02)

    # What it keeps.

    def pipes(self, gpu: int, resource: str = "nvidia.com/gpu") -> Path:
        """The pipe directory of a GPU's daemon."""
        return self._node.mps_root / resource / gpu_uuid(gpu) / "pipe"

    def daemon(self, gpu: int, resource: str = "nvidia.com/gpu") -> tuple[int, int]:
        """Pid and start time of a GPU's daemon; (0, 0) when none runs."""
        file = self.pipes(gpu, resource) / "nvidia-cuda-mps-control.pid"
        try:
            pid = int(file.read_text())
        except (OSError, ValueError):
            return 0, 0
        began = started_at(pid)
        return (pid, began) if began else (0, 0)

    def wait_serving(self, gpu: int, resource: str = "nvidia.com/gpu", *, other_than: object = None) -> tuple[int, int]:
        """Waits until the supervisor says that a GPU's daemon serves; returns pid and start time."""
        ready = self.pipes(gpu, resource).parent / "ready"
        self.wait(lambda: ready.exists() and self.daemon(gpu, resource) not in ((0, 0), other_than))
        return self.daemon(gpu, resource)

    def ask(self, command: str, gpu: int = 0, resource: str = "nvidia.com/gpu") -> str:
        """What a GPU's daemon answers."""
        assert self._node.mps_bin is not None
        status, text = ask(self._node.mps_bin, self.pipes(gpu, resource), command)
        assert status == 0, text
        return text

    def asked(self, gpu: int = 0, resource: str = "nvidia.com/gpu") -> list[str]:
        """What the daemons of a GPU have been asked so far, by anybody."""
        return (self.pipes(gpu, resource).parent / "log" / "asked.txt").read_text().splitlines()

    def client(self, gpu: int = 0, resource: str = "nvidia.com/gpu", uid: int = 1000, pid: int = 4242) -> Client:
        """A process that uses a GPU."""
        return Client(self.pipes(gpu, resource), uid, pid=pid)

    def compute_mode(self, gpu: int) -> int:
        """A GPU's compute mode, as the driver keeps it."""
        if self._node.driver == "simulated":
            path = self._node.node_file.with_name(f"{self._node.node_file.name}.compute-modes") / gpu_uuid(gpu)
            return int(path.read_text()) if path.exists() else 0
        path = self._node.root / "nvml-state"
        data = path.read_bytes() if path.exists() else b""
        place = gpu * PLACES + PLACES - 1
        return data[place] if place < len(data) else 0
