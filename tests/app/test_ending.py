"""The main thread's wait: no signal is lost in it, whenever it arrives."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from deviceplugin.app.ending import Ended, Ending

BY_SIGNAL = Ended(0, "signal")
LOST = Ended(1, "the signal was lost")


@pytest.fixture
def ending() -> Iterator[Ending]:
    """A wait that SIGUSR1 ends."""
    one = Ending()
    before = signal.signal(signal.SIGUSR1, lambda number, frame: one.tell(BY_SIGNAL))
    yield one
    signal.signal(signal.SIGUSR1, before)
    one.close()


def test_a_reason_told_before_the_wait_ends_it(ending: Ending) -> None:
    ending.tell(LOST)
    assert ending.wait() is LOST


def test_a_thread_ends_it(ending: Ending) -> None:
    threading.Timer(0.01, ending.tell, [LOST]).start()
    assert ending.wait() is LOST


def test_the_first_reason_counts(ending: Ending) -> None:
    ending.tell(BY_SIGNAL)
    ending.tell(LOST)
    assert ending.wait() is BY_SIGNAL


def test_no_signal_is_lost_at_the_moment_in_which_the_wait_begins(ending: Ending) -> None:
    """A wait on a queue loses about one in a hundred here."""
    for _ in range(1000):
        begin = threading.Event()

        def send(begin: threading.Event = begin) -> None:
            begin.wait()
            os.kill(os.getpid(), signal.SIGUSR1)

        sender = threading.Thread(target=send)
        sender.start()
        watchdog = threading.Timer(2, ending.tell, [LOST])
        watchdog.start()
        begin.set()  # the sender runs on when the wait lets go of the interpreter, just before it blocks
        assert ending.wait() is BY_SIGNAL
        watchdog.cancel()
        sender.join()


def test_signals_that_give_no_reason_are_handled_and_pass(ending: Ending) -> None:
    handled: list[int] = []

    def note(number: int, _frame: object) -> None:
        handled.append(number)
        if len(handled) == 3:
            ending.tell(BY_SIGNAL)

    before = signal.signal(signal.SIGUSR2, note)
    try:
        for i in range(3):
            threading.Timer(0.01 * (i + 1), os.kill, [os.getpid(), signal.SIGUSR2]).start()
        assert ending.wait() is BY_SIGNAL
    finally:
        signal.signal(signal.SIGUSR2, before)
    assert handled == [signal.SIGUSR2] * 3


def test_a_burst_of_reasons_never_blocks_the_teller(ending: Ending) -> None:
    for _ in range(100_000):
        ending.tell(BY_SIGNAL)
    assert ending.wait() is BY_SIGNAL


AFRESH = """
import os, signal
from deviceplugin.app.ending import Ended, end_process
if os.environ.get("AFRESH"):
    os.kill(os.getpid(), signal.SIGHUP)
    print("lives")
else:
    os.environ["AFRESH"] = "yes"
    signal.signal(signal.SIGHUP, lambda *_: None)
    end_process(Ended(0, "", again=True))
"""


def test_a_hangup_before_the_fresh_start_listens_ends_nothing() -> None:
    done = subprocess.run([sys.executable, "-c", AFRESH], capture_output=True, text=True, check=False, timeout=20)
    assert (done.returncode, done.stdout) == (0, "lives\n"), done.stderr
