"""`python -m deviceplugin.cli.tied PID COMMAND...`: becomes a command that ends when its parent, process PID, does.

However the parent ends, even by SIGKILL, which leaves it no chance to end anything: the kernel sends the command then
SIGTERM (prctl(2), PR_SET_PDEATHSIG; execve(2) keeps it).
"""

import ctypes
import os
import signal
import sys
from collections.abc import Sequence
from typing import Final

PR_SET_PDEATHSIG: Final = 1


def tied(command: Sequence[str]) -> list[str]:
    """The command, to be run as a child by the calling thread, whose end is then its own."""
    return [sys.executable, "-m", "deviceplugin.cli.tied", str(os.getpid()), *command]


def _become(parent: int, command: Sequence[str]) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() == parent:  # else it ended before it could be tied
        os.execv(command[0], list(command))  # noqa: S606 -- no shell is wanted


if __name__ == "__main__":
    _become(int(sys.argv[1]), sys.argv[2:])
