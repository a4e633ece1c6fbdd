"""The kubelet's time, and the constants that it rules (contract section 7).

Every wait of the stand-in goes through one `Clock`, so a test scales all of the kubelet's periods together and
their order stays. A clock with scale 0 stands still: only `advance` moves it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

DIAL_SECONDS: Final = 10.0  # R7
PRE_START_SECONDS: Final = 30.0  # A22
STOP_GRACE_SECONDS: Final = 300.0  # L9: strictly more must pass, tested on a status tick only
STATUS_SECONDS: Final = 10.0  # L11
STATUS_JITTER: Final = 0.04  # L11
STATUS_REPORT_SECONDS: Final = 300.0  # L11: an unchanged status is sent again after this, plus or minus half of it
FAST_STATUS_SECONDS: Final = 0.1  # L11: until the node first becomes Ready after a start
START_RETRY_SECONDS: Final = (10.0, 15.0)  # A23
MESSAGE_LIMIT_BYTES: Final = 4 * 1024 * 1024  # R2, R10
RATE_PER_SECOND: Final = 100.0  # P1
RATE_BURST: Final = 10  # P1


class Clock:
    """Kubelet seconds: real monotonic time multiplied by `scale`, plus whatever `advance` added.

    `scale` 1 is real time, 10 makes the 10 s dial last one real second, 0 stops time but for `advance`.
    Large scales leave the plugin little real time to answer a dial (R7: 10 s is 0.1 s at scale 100); prefer a small
    scale and `advance`. With scale 0 the PodResources budget (P1) refills by `advance` only.
    """

    def __init__(self, scale: float = 10.0) -> None:
        if scale < 0:
            raise ValueError("scale must not be negative")
        self._scale = scale
        self._origin = time.monotonic()
        self._offset = 0.0
        self._lock = threading.Lock()
        self._waiting: list[threading.Condition] = []

    @property
    def scale(self) -> float:
        """Kubelet seconds per real second."""
        return self._scale

    def now(self) -> float:
        """Kubelet seconds since the clock was made."""
        with self._lock:
            return self._offset + (time.monotonic() - self._origin) * self._scale

    def advance(self, seconds: float) -> None:
        """Move the clock forward by `seconds` kubelet seconds and wake every wait that is over by then."""
        if seconds < 0:
            raise ValueError("time does not run backwards")
        with self._lock:
            self._offset += seconds
            waiting = list(self._waiting)
        for condition in waiting:
            with condition:
                condition.notify_all()

    def wait_until(self, condition: threading.Condition, predicate: Callable[[], bool], due: float | None) -> bool:
        """Wait, holding `condition`, until `predicate` is true or the clock shows `due` (None: never).

        Returns the last value of the predicate. The caller holds the condition. Who may be overtaken by an `advance`
        computes `due` before the thing happens that the other side waits for.
        """
        with self._lock:
            self._waiting.append(condition)
        try:
            while True:
                if predicate():
                    return True
                real: float | None = None
                if due is not None:
                    left = due - self.now()
                    if left <= 0:
                        return False
                    real = left / self._scale if self._scale else None
                condition.wait(real)
        finally:
            with self._lock:
                self._waiting.remove(condition)
