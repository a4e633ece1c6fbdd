"""What the system says of a running process, from /proc."""

import os
from dataclasses import dataclass
from pathlib import Path

KIB_PER_MIB = 1024


@dataclass(frozen=True, slots=True)
class Usage:
    """One look at a process.

    Attributes:
        rss_mib: resident memory, shared pages counted in full.
        pss_mib: resident memory, a shared page counted in equal parts for those who share it.
        threads, descriptors: how many there are.
        cpu_seconds: used so far, in user and kernel mode.
    """

    rss_mib: float
    pss_mib: float
    threads: int
    descriptors: int
    cpu_seconds: float


def usage(pid: int) -> Usage:
    """Look at process `pid` of the same user."""
    proc = Path("/proc") / str(pid)
    rollup = _numbers(proc / "smaps_rollup")
    # The fields after the command, which may itself hold blanks and brackets: utime and stime are the 14th and 15th.
    fields = (proc / "stat").read_text().rpartition(")")[2].split()
    return Usage(
        rss_mib=rollup["Rss"] / KIB_PER_MIB,
        pss_mib=rollup["Pss"] / KIB_PER_MIB,
        threads=_numbers(proc / "status")["Threads"],
        descriptors=len(list((proc / "fd").iterdir())),
        cpu_seconds=(int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"),
    )


def _numbers(path: Path) -> dict[str, int]:
    """The lines `Name:  12 kB` of a file in /proc."""
    found = {}
    for line in path.read_text().splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if words and words[0].isdigit():
            found[name] = int(words[0])
    return found
