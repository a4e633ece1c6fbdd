"""Looks at the driver in a thread of its own: a call can hang for a minute, the reconciler may not (design 8)."""

import logging
import threading
from collections.abc import Callable
from typing import Protocol

from deviceplugin.app.events import DriverDown, Released, SnapshotTaken, TakenUp
from deviceplugin.app.pace import Pace
from deviceplugin.app.threads import OnDeath, spawn
from deviceplugin.errors import DriverError
from deviceplugin.model.health import DriverEvent, Probe
from deviceplugin.model.node import Snapshot

log = logging.getLogger(__name__)

# Reports G1: a changed MIG layout is noticed within 10 s. The config's health.pollInterval sets it.
SNAPSHOT_INTERVAL_S = 10.0
# Reports J2: a driver that arrives after the plugin is noticed within one retry.
RETRY_INTERVAL_S = 2.0
# A look costs the driver some hundred calls; SIGHUPs ask for one each.
LEAST_INTERVAL_S = 0.5
# A driver that a thread still hangs in is asked to let go this often.
LET_GO_RETRY_S = 1.0
# NVML_ERROR_LIB_RM_VERSION_MISMATCH (nvml.h): the driver was upgraded under this process.
VERSION_MISMATCH = 18
# Trying a new process costs a tenth of a second of CPU: at first soon, then seldom.
TRIAL_FIRST_S, TRIAL_LAST_S = 1.0, 60.0

Post = Callable[[SnapshotTaken | DriverDown | Released | TakenUp], None]


class Driver(Protocol):
    """What the feeds need of a driver (deviceplugin.driver)."""

    def snapshot(self) -> Snapshot:
        """One look; raises DriverError when the driver as a whole does not answer."""

    def probe(self, snapshot: Snapshot) -> Probe:
        """A closer look at what a snapshot shows."""

    def wait_events(self) -> tuple[DriverEvent, ...] | None:
        """What happened since the last call, None while it is not open; raises DriverError when it can't wait."""

    def fresh_start_helps(self) -> bool:
        """Whether a new process can open a driver that this one can't."""

    def nvidia_device_present(self) -> bool:
        """Whether the PCI bus shows an NVIDIA display device."""

    def close(self) -> bool:
        """Let the driver go; False: it can't be let go of yet."""


class DriverFeed:
    """One thread that asks the driver and posts what it says; also the one that lets it go on request.

    Args:
        driver: may block for minutes in any call.
        post: takes each event.
        monotonic: seconds.
        on_death: told when the thread dies.
        on_upgrade: told when the driver was upgraded and a new process could open it.
        interval_s, retry_s: pause after an answer, and after a failure.
    """

    def __init__(
        self,
        driver: Driver,
        post: Post,
        *,
        monotonic: Callable[[], float],
        on_death: OnDeath,
        on_upgrade: Callable[[], None],
        interval_s: float = SNAPSHOT_INTERVAL_S,
        retry_s: float = RETRY_INTERVAL_S,
    ) -> None:
        self._driver = driver
        self._post = post
        self._monotonic = monotonic
        self._on_death = on_death
        self._on_upgrade = on_upgrade
        self._interval_s = interval_s
        self._retry_s = retry_s
        self._pace = Pace(least_s=LEAST_INTERVAL_S, monotonic=monotonic)
        self._due_at = monotonic()
        # What an operator asked for, and what is so; guarded by the condition.
        self._asked = threading.Condition()
        self._release_until: float | None = None
        self._reset_done = False
        self._let_go = False
        self._announced = False
        self._trial_at = 0.0
        self._trial_pause_s = TRIAL_FIRST_S

    def start(self) -> None:
        """Begin with a snapshot at once."""
        self._due_at = self._monotonic()
        spawn("driver", self._run, self._on_death)

    def stop(self) -> None:
        """Ask the thread to end; one that is stuck in the driver is left behind."""
        self._pace.stop()

    def request(self) -> None:
        """Take a snapshot as soon as possible."""
        self._pace.ask()

    def every(self, interval_s: float) -> None:
        """Look this often."""
        if interval_s != self._interval_s:
            self._interval_s = interval_s
            self._pace.ask()

    def late_s(self) -> float:
        """For how long the thread should have come round by now: in a call of the driver, or stuck elsewhere."""
        return max(0.0, self._monotonic() - self._due_at)

    # Letting the driver go (docs/health.md).

    def release(self, for_s: float, patience_s: float) -> bool:
        """Close every handle of the driver for so long, so that an operator can reset a GPU or unload the driver.

        Returns:
            True: it is let go of. False: a call still hangs in it after `patience_s`; it will be let go of after that.
        """
        with self._asked:
            self._release_until = self._monotonic() + for_s
            self._pace.ask()
            return self._asked.wait_for(lambda: self._let_go, patience_s)

    def take_up(self, *, was_reset: bool) -> bool:
        """Use the driver again. `was_reset`: the operator says that every GPU was reset. False: it was in use."""
        with self._asked:
            was_released, self._release_until = self._release_until is not None, None
            self._reset_done |= was_released and was_reset
            self._pace.ask()
            return was_released

    def _run(self) -> None:
        while not self._pace.stopping:
            self._pace.looking()
            pause = self._released() or self._look()
            self._due_at = self._monotonic() + max(pause, LEAST_INTERVAL_S)
            self._pace.pause(pause)
        self._driver.close()

    def _released(self) -> float:
        """Stay away from the driver while asked to. Returns for how many seconds; 0: it is to be used."""
        with self._asked:
            until, reset_done = self._release_until, self._reset_done
            if until is not None and self._monotonic() >= until:
                log.info("the release ends by itself")
                until = self._release_until = None
            if until is None:
                self._let_go = self._reset_done = False
        if until is None:
            if self._announced:
                self._announced = False
                self._post(TakenUp(was_reset=reset_done))
            return 0.0
        if not self._announced:
            self._announced = True
            self._post(Released())
        if not self._let_go and not self._driver.close():
            return LET_GO_RETRY_S
        if not self._let_go:
            log.info("the driver is let go of: no handle is open")
        with self._asked:
            self._let_go = True
            self._asked.notify_all()
        return max(0.01, until - self._monotonic())

    def _look(self) -> float:
        self._due_at = self._monotonic()
        try:
            snapshot = self._driver.snapshot()
            event: SnapshotTaken | DriverDown = SnapshotTaken(snapshot, self._driver.probe(snapshot))
            pause = self._interval_s
            self._trial_pause_s = TRIAL_FIRST_S
        except DriverError as error:
            event = DriverDown(error, self._driver.nvidia_device_present())
            pause = self._retry_s
        if self._pace.stopping:
            return pause
        self._post(event)
        if isinstance(event, DriverDown) and event.error.code == VERSION_MISMATCH:
            self._try_new_process()
        return pause

    def _try_new_process(self) -> None:
        now = self._monotonic()
        if now < self._trial_at:
            return
        self._trial_pause_s = min(2 * self._trial_pause_s, TRIAL_LAST_S)
        self._trial_at = now + self._trial_pause_s
        if self._driver.fresh_start_helps():
            self._on_upgrade()
        else:
            log.warning("a new process can't open the driver either; trying again in %.0f s", self._trial_pause_s)
