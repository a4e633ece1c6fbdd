"""How a simulation ends before its time: a signal, or a terminal that hangs up."""

import os
import select
import signal
import threading
from typing import Final

SIGNALS: Final = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP)
# A pseudoterminal's hang-up wakes poll(2); other terminals' drivers wake only who waits for input or output.
LOOK_S: Final = 1.0


class Ended(SystemExit):
    """A signal has ended the simulation. Caught at the edge of the process, when everything is cleaned up."""


def end_on_signals() -> None:
    """Make each of `SIGNALS` raise `Ended` in the main thread, once, with the status 128 + the signal's number.

    The hang-up of a terminal that is standard input or output becomes the SIGHUP that the kernel sends to the leader
    of the terminal's session only (tty_ioctl(4), credentials(7)). Where that is a shell, it passes it on to its jobs;
    `make` waits for its child instead.

    A signal that is ignored already stays so: who started us wants it, as nohup does, or a shell for a background job.
    """

    def end(number: int, _: object) -> None:
        # The end is under way: another signal must not break it off.
        for one in SIGNALS:
            signal.signal(one, signal.SIG_IGN)
        raise Ended(128 + number)

    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, end)
    terminals = [fd for fd in (0, 1) if os.isatty(fd)]
    if terminals:
        threading.Thread(target=_pass_hang_up_on, args=(terminals,), name="terminal", daemon=True).start()


def _pass_hang_up_on(terminals: list[int]) -> None:
    looker = select.poll()
    for fd in terminals:
        looker.register(fd, 0)  # nothing is asked for: what is reported is the hang-up
    while not looker.poll(LOOK_S * 1000):
        pass
    os.kill(os.getpid(), signal.SIGHUP)


def in_foreground(terminal: int) -> bool:
    """Whether reading this file descriptor would not stop the process.

    The kernel stops a background job that reads its controlling terminal (SIGTTIN). What is no terminal, or not the
    one that controls this process, stops nobody.
    """
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:  # ENOTTY, or EIO after a hang-up
        return True
