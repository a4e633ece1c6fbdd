"""When a feed looks next."""

import threading
from collections.abc import Callable


class Pace:
    """At an interval, sooner when asked, but never twice within `least_s`: SIGHUPs may come in storms.

    The thread that looks calls `pause` in between; everybody else only asks.
    """

    def __init__(self, *, least_s: float, monotonic: Callable[[], float]) -> None:
        self._least_s = least_s
        self._monotonic = monotonic
        self._asked = threading.Event()
        self._stopped = threading.Event()
        self._looked_at = float("-inf")

    @property
    def stopping(self) -> bool:
        """Whether the thread is to end."""
        return self._stopped.is_set()

    def looking(self) -> None:
        """A look begins: what is asked from now on is for the next one."""
        self._asked.clear()
        self._looked_at = self._monotonic()

    def pause(self, interval_s: float) -> None:
        """Wait for the next look."""
        self._asked.wait(interval_s)
        while not self.stopping and (rest := self._looked_at + self._least_s - self._monotonic()) > 0:
            self._stopped.wait(rest)

    def ask(self) -> None:
        """Look as soon as possible; requests that come together are one."""
        self._asked.set()

    def stop(self) -> None:
        """End the thread."""
        self._stopped.set()
        self._asked.set()
