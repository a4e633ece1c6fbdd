"""MPS servers: the processes that clients share, with the limits that were their daemon's defaults when they began.

A server outlives a daemon that is killed. The next daemon does not know it, so it is looked for here.
"""

import contextlib
import os
import signal
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from deviceplugin.model.mps import MpsShare
from deviceplugin.mps import proc

PROGRAM: Final = "nvidia-cuda-mps-server"


@dataclass(frozen=True, slots=True)
class Server:
    """A server that runs, or did.

    Attributes:
        pid, started_at: as in Record.
        share: the limits that it gives its clients; None: not known to be those of any share.
    """

    pid: int
    started_at: int
    share: MpsShare | None

    def alive(self) -> bool:
        """Whether it still runs."""
        return proc.started_at(self.pid) == self.started_at

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal, if it is still there."""
        if self.alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)


def known(before: Iterable[Server], pids: Iterable[int], share: MpsShare | None) -> tuple[Server, ...]:
    """Those that still live, and with them the pids that are new, which began with the limits of `share`."""
    living = {one.pid: one for one in before if one.alive()}
    for pid in pids:
        if pid not in living and (began := proc.started_at(pid)):
            living[pid] = Server(pid, began, share)
    return tuple(living[pid] for pid in sorted(living))


def of(pipe: Path) -> Iterator[int]:
    """The pids of a pipe directory's servers, whoever their daemon was, as far as their environment may be read."""
    for pid in proc.running(PROGRAM):
        if proc.variable(pid, "CUDA_MPS_PIPE_DIRECTORY") == str(pipe):
            yield pid
