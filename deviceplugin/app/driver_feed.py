"""Takes snapshots in a thread of its own: a driver call can hang for a minute, the reconciler may not (design 8)."""

import logging
from collections.abc import Callable
from typing import Protocol

from deviceplugin.app.events import DriverDown, SnapshotTaken
from deviceplugin.app.pace import Pace
from deviceplugin.app.threads import OnDeath, spawn
from deviceplugin.errors import DriverError
from deviceplugin.model.node import Snapshot

log = logging.getLogger(__name__)

# Reports G1: a changed MIG layout is noticed within 10 s.
SNAPSHOT_INTERVAL_S = 10.0
# Reports J2: a driver that arrives after the plugin is noticed within one retry.
RETRY_INTERVAL_S = 2.0
# A look costs the driver some hundred calls; SIGHUPs ask for one each.
LEAST_INTERVAL_S = 0.5


class Driver(Protocol):
    """What the feed needs of a driver (deviceplugin.driver)."""

    def snapshot(self) -> Snapshot:
        """One look; raises DriverError when the driver as a whole does not answer."""

    def nvidia_device_present(self) -> bool:
        """Whether the PCI bus shows an NVIDIA display device."""

    def close(self) -> None:
        """Let the driver go."""


class DriverFeed:
    """One thread that asks the driver and posts what it says.

    Args:
        driver: may block for minutes in any call.
        post: takes each SnapshotTaken or DriverDown.
        monotonic: seconds.
        on_death: told when the thread dies.
        interval_s, retry_s: pause after an answer, and after a failure.
    """

    def __init__(
        self,
        driver: Driver,
        post: Callable[[SnapshotTaken | DriverDown], None],
        *,
        monotonic: Callable[[], float],
        on_death: OnDeath,
        interval_s: float = SNAPSHOT_INTERVAL_S,
        retry_s: float = RETRY_INTERVAL_S,
    ) -> None:
        self._driver = driver
        self._post = post
        self._monotonic = monotonic
        self._on_death = on_death
        self._interval_s = interval_s
        self._retry_s = retry_s
        self._pace = Pace(least_s=LEAST_INTERVAL_S, monotonic=monotonic)
        self._asking_since: float | None = None

    def start(self) -> None:
        """Begin with a snapshot at once."""
        spawn("driver", self._run, self._on_death)

    def stop(self) -> None:
        """Ask the thread to end; one that is stuck in the driver is left behind."""
        self._pace.stop()

    def request(self) -> None:
        """Take a snapshot as soon as possible."""
        self._pace.ask()

    def waiting_s(self) -> float:
        """How long the present call has been unanswered; 0 when none is running."""
        since = self._asking_since
        return 0.0 if since is None else self._monotonic() - since

    def _run(self) -> None:
        while not self._pace.stopping:
            self._pace.looking()
            self._pace.pause(self._look())
        self._driver.close()

    def _look(self) -> float:
        self._asking_since = self._monotonic()
        try:
            event: SnapshotTaken | DriverDown = SnapshotTaken(self._driver.snapshot())
            pause = self._interval_s
        except DriverError as error:
            event = DriverDown(error, self._driver.nvidia_device_present())
            pause = self._retry_s
        finally:
            self._asking_since = None
        if not self._pace.stopping:
            self._post(event)
        return pause
