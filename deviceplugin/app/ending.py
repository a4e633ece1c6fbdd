"""What the main thread waits for: the reason why the process ends, told by a signal's handler or by any thread."""

import contextlib
import logging
import os
import queue
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

EXIT_STOPPED, EXIT_FAILED = 0, 1


@dataclass(frozen=True, slots=True)
class Ended:
    """Why the process ends: by a signal, or for a fault.

    Attributes:
        again: it does not end but starts itself afresh.
    """

    exit_status: int
    message: str
    again: bool = False


class Ending:
    """The one wait of the main thread, during which every signal's handler runs at once.

    Python runs a handler when the main thread next gets to bytecode. A signal that arrives in the moment before a lock
    blocks does not interrupt it, so in a wait on a queue about one in a hundred SIGTERM went unheard until the next
    signal came. Reading a pipe, into which the interpreter writes at each signal, has no such moment.
    """

    def __init__(self) -> None:
        self._reasons: queue.SimpleQueue[Ended] = queue.SimpleQueue()
        self._read_fd, self._write_fd = os.pipe()
        os.set_blocking(self._write_fd, False)

    def tell(self, reason: Ended) -> None:
        """End the wait, now or when it begins; from any thread and from a signal's handler, never blocks."""
        self._reasons.put(reason)
        with contextlib.suppress(BlockingIOError):  # full: there is enough to wake it
            os.write(self._write_fd, b"\0")

    def wait(self, woken: Callable[[], None] = lambda: None) -> Ended:
        """The first reason told. Must be called from the main thread; signals without a reason are handled and pass.

        Args:
            woken: called after every signal, outside of its handler: a handler may interrupt another one, and would
                wait for ever for a lock that that one has taken.
        """
        before = signal.set_wakeup_fd(self._write_fd, warn_on_full_buffer=False)
        try:
            while True:
                with contextlib.suppress(queue.Empty):
                    return self._reasons.get_nowait()
                os.read(self._read_fd, 4096)
                woken()
        finally:
            signal.set_wakeup_fd(before)

    def close(self) -> None:
        """Give the pipe back, once nobody tells any more."""
        os.close(self._read_fd)
        os.close(self._write_fd)


def end_process(ended: Ended) -> NoReturn:
    """End the process, without waiting for threads that hang in the driver.

    Or start it afresh in the same process, with the same arguments: the process id, and so the container, stays.
    """
    logging.shutdown()
    if ended.again:
        _inherit_nothing()
        # Its handlers come later: what is ignored stays ignored till then, and the file is read anyway.
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - our own command line
    os._exit(ended.exit_status)


def _inherit_nothing() -> None:
    """Let a fresh start inherit standard input and outputs only. Python's own descriptors are not inherited anyway, but
    a driver's device file that a library holds open would keep that driver from being unloaded.
    """
    for entry in os.listdir("/proc/self/fd"):
        if int(entry) > 2:
            with contextlib.suppress(OSError):  # the one that listed them is closed
                os.set_inheritable(int(entry), False)
