"""What /proc says of other processes: which of them are NVIDIA's MPS programs, and how they were started."""

import time
from collections.abc import Iterator
from os import sysconf
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")


def started_at(pid: int) -> int:
    """When a process began, in clock ticks since boot; 0 when there is none, or only its remains (a zombie)."""
    try:
        # The name in it is the process's own choice, and need be no text.
        fields = (_PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return 0
    return 0 if fields[0] in (b"Z", b"X") else int(fields[19])


def program(pid: int) -> str:
    """The name that a process was started by, without its directory; empty when there is no such process."""
    try:
        with (_PROC / str(pid) / "cmdline").open("rb") as file:
            words = file.read(4096)
    except OSError:
        return ""
    return words.partition(b"\0")[0].rpartition(b"/")[2].decode(errors="replace")


def running(name: str) -> Iterator[int]:
    """The pids of the processes that were started by a program's name."""
    for entry in _PROC.iterdir():
        if entry.name.isdecimal() and program(int(entry.name)) == name:
            yield int(entry.name)


def variable(pid: int, name: str) -> str:
    """A variable of the environment that a process was started with.

    Empty where it has none, and where it may not be read: that takes the user and all the capabilities of the process
    (ptrace(2), access mode check), so a daemon of a container with more privileges keeps its own to itself.
    """
    try:
        data = (_PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return ""
    prefix = f"{name}=".encode()
    found = (one for one in data.split(b"\0") if one.startswith(prefix))
    return next(found, b"").removeprefix(prefix).decode(errors="replace")


def when(ticks: int) -> float:
    """Clock ticks since boot as seconds since the epoch."""
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + ticks / sysconf("SC_CLK_TCK")
