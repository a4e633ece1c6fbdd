"""Waits for the driver's events in a thread of its own, and posts them."""

import logging
import threading
from collections.abc import Callable

from deviceplugin.app.driver_feed import Driver
from deviceplugin.app.events import DriverReported
from deviceplugin.app.threads import OnDeath, spawn
from deviceplugin.errors import DriverError

log = logging.getLogger(__name__)

# After a wait that failed: never without a pause (NVIDIA's plugin: 42,000 lists in 3 s), never giving up.
PAUSE_FIRST_S, PAUSE_LAST_S = 1.0, 30.0


class EventFeed:
    """One thread in which the driver blocks.

    Args:
        driver: asked for events only.
        post: takes DriverReported.
        look: has the driver looked at soon. A wait that fails says that something is the matter with some GPU, not
            with which; that the poll finds out. It marks nothing by itself.
        monotonic: seconds.
        on_death: told when the thread dies.
    """

    def __init__(
        self,
        driver: Driver,
        post: Callable[[DriverReported], None],
        look: Callable[[], None],
        *,
        monotonic: Callable[[], float],
        on_death: OnDeath,
    ) -> None:
        self._driver = driver
        self._post = post
        self._look = look
        self._monotonic = monotonic
        self._on_death = on_death
        self._stopped = threading.Event()
        self._due_at = monotonic()
        self._problem = ""

    def start(self) -> None:
        """Begin to wait."""
        self._due_at = self._monotonic()
        spawn("events", self._run, self._on_death)

    def stop(self) -> None:
        """Ask the thread to end; one that is stuck in the driver is left behind."""
        self._stopped.set()

    def late_s(self) -> float:
        """For how long the thread should have come round by now. A wait takes half a second when all is well."""
        return max(0.0, self._monotonic() - self._due_at)

    @property
    def problem(self) -> str:
        """Why events can't be waited for now; empty when they can."""
        return self._problem

    def _run(self) -> None:
        pause = PAUSE_FIRST_S
        while not self._stopped.is_set():
            self._due_at = self._monotonic()
            try:
                events = self._driver.wait_events()
            except DriverError as error:
                self._failed(str(error))
                self._due_at = self._monotonic() + pause
                self._stopped.wait(pause)
                pause = min(2 * pause, PAUSE_LAST_S)
                continue
            if events is None:
                continue
            if self._problem:
                log.info("events of the driver are heard again")
                self._problem = ""
            pause = PAUSE_FIRST_S
            if events:
                self._post(DriverReported(events))

    def _failed(self, problem: str) -> None:
        if problem != self._problem:
            log.warning("events of the driver can't be waited for, GPUs are looked at all the same: %s", problem)
            self._problem = problem
        self._look()
