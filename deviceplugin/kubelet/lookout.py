"""Whether the kubelet is there, and how often to look and to try again."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Final

from deviceplugin.kubelet.unix import Identity, answers, identity

# How long to wait between two looks for the kubelet's socket, by how long it has been awaited. It is missed for a
# few seconds at a restart, and milliseconds count then (S6); one look costs some 100 microseconds.
LOOKS_S: Final = ((60.0, 0.02), (300.0, 0.1), (float("inf"), 1.0))

# The same for a place for our own socket. A directory that is replaced is back within milliseconds; a try costs more
# than a look, for every resource.
BINDS_S: Final = ((2.0, 0.02), (60.0, 0.25), (float("inf"), 1.0))

# How long to wait before the next try, by how many have failed.
RETRIES_S: Final = (0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)


def look_after_s(awaited_s: float, steps: Sequence[tuple[float, float]] = LOOKS_S) -> float:
    """Seconds until the next look for something that has been awaited for `awaited_s`."""
    return next(pause for until, pause in steps if awaited_s < until)


def retry_after_s(failures: int, steps: Sequence[float] = RETRIES_S) -> float:
    """Seconds until the next try after `failures` failures in a row, at least one."""
    return steps[min(failures, len(steps)) - 1]


class Sighting:
    """One look at the kubelet's registration socket; connecting is tried only if somebody asks."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.identity: Identity | None = identity(path)

    @cached_property
    def alive(self) -> bool:
        """Whether somebody listens there; a kubelet that has ended leaves a dead socket behind (S4).

        Whoever answers must be the one that was seen: between two looks a new kubelet can have taken the place.
        """
        return self.identity is not None and answers(self.path) and identity(self.path) == self.identity

    @property
    def awaited(self) -> str:
        """What is missing, for people."""
        if self.identity is None:
            return f"the kubelet's socket {self.path}: there is none"
        return f"the kubelet: its socket {self.path} refuses connections"
