"""A feed looks at its interval, sooner when asked, and never too often."""

import itertools
import threading
import time

from deviceplugin.app.pace import Pace

LEAST_S = 0.05


def looks(pace: Pace, interval_s: float) -> list[float]:
    """When a thread at this pace looks; it runs until the pace is stopped."""
    times: list[float] = []

    def run() -> None:
        while not pace.stopping:
            pace.looking()
            times.append(time.monotonic())
            pace.pause(interval_s)

    threading.Thread(target=run, name="looks", daemon=True).start()
    return times


def until(times: list[float], count: int) -> None:
    deadline = time.monotonic() + 10
    while len(times) < count:
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_it_looks_at_its_interval_and_sooner_when_asked() -> None:
    pace = Pace(least_s=0.0, monotonic=time.monotonic)
    times = looks(pace, 3600.0)
    until(times, 1)
    pace.ask()
    until(times, 2)
    pace.stop()


def test_a_storm_of_requests_is_a_look_now_and_then_and_one_after_it() -> None:
    pace = Pace(least_s=LEAST_S, monotonic=time.monotonic)
    times = looks(pace, 3600.0)
    end = time.monotonic() + 10 * LEAST_S
    while time.monotonic() < end:
        pace.ask()
        asked = time.monotonic()
    deadline = asked + 10
    while times[-1] < asked and time.monotonic() < deadline:
        time.sleep(0.001)
    pace.stop()
    assert times[-1] >= asked
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert min(gaps) >= 0.99 * LEAST_S


def test_stopping_waits_for_nothing() -> None:
    pace = Pace(least_s=3600.0, monotonic=time.monotonic)
    ended = threading.Event()

    def run() -> None:
        pace.looking()
        pace.pause(0.0)
        ended.set()

    threading.Thread(target=run, name="pause", daemon=True).start()
    pace.stop()
    assert ended.wait(5)
