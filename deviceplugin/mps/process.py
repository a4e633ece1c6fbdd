"""The process of a control daemon: our child, or one that a supervisor before us started."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping
from typing import Self

from deviceplugin.errors import MpsError
from deviceplugin.mps.control import BINARY, cannot_run
from deviceplugin.mps.paths import DaemonPaths
from deviceplugin.mps.proc import running, started_at, variable

MULTIUSER = "-multiuser-server"
OUTPUT = "daemon.out"
TOKEN = "GPU_DEVICE_PLUGIN_MPS_START"  # noqa: S105 -- the name of a variable
"""By this variable in its environment a supervisor knows the daemon of a start that the one before did not finish."""


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
    def start(
        cls, paths: DaemonPaths, gpu_uuid: str, token: str, *, multiuser: bool, environment: Mapping[str, str]
    ) -> Self:
        """Runs a daemon in the foreground, as a child that gets none of our signals. Raises MpsError."""
        own = {
            TOKEN: token,
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

    @classmethod
    def find(cls, token: str) -> Self | None:
        """The daemon of a start that is only known by its token; None when there is none.

        What a daemon starts has the token too, and for a moment the daemon's name: the oldest one is the daemon.
        """
        found = [(started_at(pid), pid) for pid in running(BINARY) if variable(pid, TOKEN) == token]
        began, pid = min((one for one in found if one[0]), default=(0, 0))
        return cls(pid, began) if pid else None

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
