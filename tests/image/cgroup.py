"""A container's memory limit for real: a control group of its own, of either version."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

ROOT = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """A control group that kills what takes more memory than its limit.

    Attributes:
        path: the group's directory.
        version: of control groups, 1 or 2.
    """

    path: Path
    version: int

    @classmethod
    @contextmanager
    def of(cls, limit_bytes: int, name: str) -> Iterator[Self]:
        """A group that is gone after the block; nothing may run in it by then.

        Raises:
            OSError: this machine lets us make none.
        """
        version = 1 if (ROOT / "memory").is_dir() else 2
        group = cls((ROOT / "memory" if version == 1 else ROOT) / name, version)
        group.path.mkdir()
        try:
            group._write("memory.limit_in_bytes" if version == 1 else "memory.max", limit_bytes)
            if version == 2:
                group._write("memory.swap.max", 0)
            yield group
        finally:
            group.path.rmdir()

    @property
    def procs(self) -> Path:
        """Who writes its own number there is in the group."""
        return self.path / "cgroup.procs"

    @property
    def kills(self) -> int:
        """How many processes were killed for want of memory."""
        text = (self.path / ("memory.oom_control" if self.version == 1 else "memory.events")).read_text()
        return int(dict(line.split() for line in text.splitlines())["oom_kill"])

    def _write(self, name: str, value: int) -> None:
        (self.path / name).write_text(str(value))
