"""Follows the logs of a control daemon into ours, and keeps them from filling the node."""

import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

log = logging.getLogger("deviceplugin.mps.daemon")

CONTROL: Final = "control.log"
NAMES: Final = (CONTROL, "server.log")
# The daemon keeps its file open and appends, so a file that is cut to nothing goes on from there.
LARGEST_BYTES: Final = 1024 * 1024
READ_BYTES: Final = 64 * 1024
MOST_LINES: Final = 100
"""Of one file in one look; what is beyond is counted only."""


class LogFollower:
    """The logs of one daemon from now on.

    Args:
        directory: its log directory.
        tag: for our log: which daemon it is.
        heard: told the lines of control.log, first the last ones of those that are there already.
    """

    def __init__(self, directory: Path, tag: str, heard: Callable[[Sequence[str]], None]) -> None:
        self._tag = tag
        self._heard = heard
        if size := _size(directory / CONTROL):
            heard(_lines(directory / CONTROL, max(0, size - READ_BYTES)))
        self._read_to = {directory / name: _size(directory / name) for name in NAMES}

    def look(self) -> None:
        """Log what has come since the last look, and cut a file that has grown too long."""
        for path, start in self._read_to.items():
            size = _size(path)
            start = start if start <= size else 0  # noqa: PLW2901 -- somebody has cut it
            if size > start:
                self._follow(path, start, size)
            self._read_to[path] = size
            if size > LARGEST_BYTES:
                os.truncate(path, 0)
                self._read_to[path] = 0

    def _follow(self, path: Path, start: int, size: int) -> None:
        lines = _lines(path, max(start, size - READ_BYTES))
        if path.name == CONTROL:
            self._heard(lines)
        skipped = max(0, size - READ_BYTES - start)
        for line in lines[:MOST_LINES]:
            log.info("%s: %s: %s", self._tag, path.name, line)
        if skipped or len(lines) > MOST_LINES:
            log.warning("%s: %s grows by more than is logged here; the rest is left out", self._tag, path.name)


def _lines(path: Path, start: int) -> list[str]:
    with path.open("rb") as file:
        file.seek(start)
        return file.read(READ_BYTES).decode(errors="replace").splitlines()


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
