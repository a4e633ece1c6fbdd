"""The process of a control daemon: our child, or one that a supervisor before us started."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from deviceplugin.errors import MpsError
from deviceplugin.mps.control import BINARY, cannot_run
from deviceplugin.mps.paths import DaemonPaths

MULTIUSER = "-multiuser-server"
OUTPUT = "daemon.out"


def started_at(pid: int) -> int:
    """When a process began, in clock ticks since boot; 0 when there is none, or only its remains (a zombie)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return 0 if fields[0] in "ZX" else int(fields[19])


class DaemonProcess:
    """A control daemon that runs, or did.

    Attributes:
        pid, started_at: as in Record.
    """

    def __init__(self, pid: int, began: int, child: "subprocess.Popen[bytes] | None" = None) -> None:
        self.pid = pid
        self.started_at = began
        self._child = child

    @classmethod
    def start(cls, paths: DaemonPaths, gpu_uuid: str, *, multiuser: bool, environment: Mapping[str, str]) -> Self:
        """Runs a daemon in the foreground, as a child that gets none of our signals. Raises MpsError."""
        own = {
            "CUDA_VISIBLE_DEVICES": gpu_uuid,
            "CUDA_MPS_PIPE_DIRECTORY": str(paths.pipe),
            "CUDA_MPS_LOG_DIRECTORY": str(paths.log),
        }
        try:
            with (paths.log / OUTPUT).open("wb") as output:
                child = subprocess.Popen(
                    [BINARY, "-f", *([MULTIUSER] if multiuser else [])],
                    env={**environment, **own},
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        except OSError as error:
            raise MpsError(cannot_run(error, environment)) from error
        return cls(child.pid, started_at(child.pid), child)

    def alive(self) -> bool:
        """Whether it still runs."""
        if self._child is not None:
            return self._child.poll() is None
        return self.started_at != 0 and started_at(self.pid) == self.started_at

    @property
    def exit_status(self) -> int | None:
        """Of a child that has ended; None of any other."""
        return None if self._child is None else self._child.returncode

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal, if it is still there."""
        if self.alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)


def last_words(paths: DaemonPaths) -> str:
    """What a daemon printed before it ended."""
    try:
        return (paths.log / OUTPUT).read_bytes()[-500:].decode(errors="replace").strip()
    except OSError:
        return ""
