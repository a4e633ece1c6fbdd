"""Tells a pipe directory that a live control daemon has from one that a dead daemon left.

A daemon that answers nothing may still serve its clients: it must not be taken for a dead one, and its pipes stay.
"""

import os
import socket
import stat
from pathlib import Path
from typing import Final

from deviceplugin.errors import MpsError
from deviceplugin.mps import proc
from deviceplugin.mps.control import BINARY, Control
from deviceplugin.mps.paths import DaemonPaths

PID_FILE: Final = "nvidia-cuda-mps-control.pid"
_PIPES: Final = ("control", "control_privileged")


def refuse_foreign(paths: DaemonPaths, control: Control) -> None:
    """Raises MpsError that names the live control daemon which has these pipes; returns when none has."""
    if not occupied(paths.pipe):
        return
    pid = _live_pid(paths.pipe)
    try:
        control.ask("get_server_list")
        state = "answers"
        end = f"`echo quit | CUDA_MPS_PIPE_DIRECTORY={paths.pipe} {BINARY}`"
    except MpsError as error:
        state = f"lives but does not serve ({error})"
        end = f"`kill {pid}`" if pid else f"the process that has {paths.pipe}/control open (`ss -xlp`)"
    raise MpsError(
        f"foreign daemon: a control daemon that this supervisor did not start (pid {pid or 'unknown'}) {state} at "
        f"{paths.pipe}; it is left alone. End it with {end}"
    )


def occupied(pipe: Path) -> bool:
    """Whether a live control daemon has a pipe directory, one that hangs included."""
    return any(_has_reader(pipe / name) for name in _PIPES) or _live_pid(pipe) != 0


def _has_reader(pipe: Path) -> bool:
    """Whether a process listens: what the dead leave refuses, what hangs accepts (until its backlog is full)."""
    try:
        kind = pipe.stat().st_mode
        if stat.S_ISFIFO(kind):
            os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
        elif stat.S_ISSOCK(kind):
            with socket.socket(socket.AF_UNIX) as connection:
                connection.setblocking(False)
                connection.connect(str(pipe))
        else:
            return False
    except BlockingIOError:
        return True
    except OSError:
        return False
    return True


def _live_pid(pipe: Path) -> int:
    """The control daemon that wrote its pid here, if it lives; 0 otherwise.

    The number may belong to another process by now, even to another GPU's daemon, which names another directory then.
    """
    try:
        pid = int((pipe / PID_FILE).read_text()[:20])
    except (OSError, ValueError):
        return 0
    if not proc.started_at(pid) or proc.program(pid) != BINARY:
        return 0
    other = proc.variable(pid, "CUDA_MPS_PIPE_DIRECTORY")
    # A container may know the directory by another path, so only one that is here and another one is proof.
    return 0 if other and os.path.isdir(other) and not os.path.samefile(other, pipe) else pid
