"""Keeps the control daemon of one GPU as it is wanted: one thread for each GPU, since any of its steps can hang.

The thread compares what is wanted with what runs and takes one step at a time. What it does not get done, it says and
tries again. Clients are never ended: a change waits until nobody holds a share and no client is connected.
"""

import logging
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

from deviceplugin.errors import DevicePluginError, MpsError
from deviceplugin.model.mps import MpsDaemon
from deviceplugin.model.words import counted
from deviceplugin.mps import record
from deviceplugin.mps.control import count_clients, wrong_limits
from deviceplugin.mps.order import ComputeModes, Order
from deviceplugin.mps.process import DaemonProcess
from deviceplugin.mps.runner import Runner, StillServing
from deviceplugin.mps.telling import Teller

log = logging.getLogger("deviceplugin.mps")

# How soon a death is noticed, logs are followed, and news are told.
LOOK_S = 0.25
ASK_INTERVAL_S = 5.0
# How soon a change goes on after its last client has gone.
CLIENTS_INTERVAL_S = 3.0
# A daemon that misses one question may be busy; one that misses this many in a row is started afresh.
MISSES = 2
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
# A daemon that has served this long has not been in a crash loop.
STEADY_S = 60.0


class Keeper:
    """One GPU's daemon, from first to last.

    Args:
        root: the MPS root as this process sees it.
        gpu_uuid: the GPU.
        modes: of compute.
        multiuser: start daemons with -multiuser-server, as far as they know it.
        monotonic: seconds.

    Attributes:
        done: set when the GPU has left MPS, or at the end.
        problem: what is not as ordered, or for whom it waits; empty when all is well.
        settled: the last step has brought about what is ordered now.
    """

    def __init__(
        self, root: Path, gpu_uuid: str, modes: ComputeModes, *, multiuser: bool, monotonic: Callable[[], float]
    ) -> None:
        self._gpu = gpu_uuid
        self._monotonic = monotonic
        self._runner = Runner(root, gpu_uuid, modes, multiuser=multiuser, monotonic=monotonic)
        self._teller = Teller(root, gpu_uuid, monotonic)
        self._wake = threading.Event()
        self._order: Order | None = None
        self._ending = False
        self.done = threading.Event()
        self.problem = ""
        self.settled = False
        self._misses = 0
        self._unserved = ""
        self._ask_at = self._start_at = self._serving_since = 0.0
        self._count_at, self._counted_for, self._clients = 0.0, "", ""
        self._pause_s = FIRST_PAUSE_S

    def follow(self, order: Order) -> None:
        """What to bring about from now on; safe from any thread."""
        if order != self._order:
            self.settled = self.settled and self._order is not None and self._order.wanted == order.wanted
            self._order = order
            self._wake.set()

    def end(self) -> None:
        """End the daemon and put the compute mode back, whoever is connected: the container is about to end."""
        self._ending = True
        self._wake.set()

    def run(self) -> None:
        """The thread's body; returns when the GPU has left MPS, or at the end."""
        taken_over = False
        while not self._ending:
            order = self._order
            taken_over = taken_over or self._tried(self._take_over)
            reached = bool(taken_over and order and self._tried(partial(self._step, order)))
            if reached and order and order.wanted is None:
                break
            self.settled = reached and order is self._order
            self._teller.tell(self._name(), self._runner, self.problem)
            self._wake.wait(LOOK_S)
            self._wake.clear()
        if self._ending and (taken_over or self._tried(self._take_over)):
            held = self._order is None or self._order.held_by
            # The record of shares that are held stays, so that the next supervisor serves them again.
            self._tried(self._put_back if held else self._leave)
        self._teller.end()
        self.done.set()

    def _tried(self, step: Callable[[], bool]) -> bool:
        """Whether the step has brought its goal about; if not, `problem` says why."""
        try:
            done = step()
        except (DevicePluginError, OSError) as error:
            self._say(str(error))
            return False
        if done:
            self._say("")
        return done

    def _say(self, problem: str) -> None:
        if problem != self.problem:
            if problem:
                log.warning("%s: %s", self._name(), problem)
            elif self.problem:
                log.info("%s: served again", self._name())
            self.problem = problem

    def _name(self) -> str:
        wanted = self._order.wanted if self._order else None
        known = self._runner.record
        daemon = wanted or (known.daemon if known else None)
        return daemon.describe() if daemon else self._gpu

    def _take_over(self) -> bool:
        self._runner.take_over()
        return True

    # One step towards what is wanted.

    def _step(self, order: Order) -> bool:
        self._runner.follow_logs()
        if self._runner.process is not None and not self._runner.process.alive():
            self._later(self._runner.died())
        known = self._runner.record
        if known is None:
            if order.wanted is not None and order.held_by:
                raise MpsError(
                    f"its control daemon is not started while the GPU is given out otherwise: {order.held_by}"
                )
        elif known.daemon != order.wanted:
            if waits := self._waits(known, order):
                # What is held was given out on the terms of the daemon that there is, so that one is kept.
                self._reach(known.daemon, order)
                raise MpsError(waits)
            self._end_daemon(known, order)
        return self._reach(order.wanted, order)

    def _reach(self, daemon: MpsDaemon | None, order: Order) -> bool:
        if daemon is None:
            return self._leave()
        process, known = self._runner.process, self._runner.record
        if process is not None and known is not None and known.limited:
            return self._watch(process, daemon)
        if self._monotonic() < self._start_at:
            raise MpsError(self.problem)
        return self._start(daemon, order)

    def _later(self, problem: str) -> None:
        """A start must follow, but after a pause that grows while starts do not last."""
        now = self._monotonic()
        if self._serving_since and now - self._serving_since >= STEADY_S:
            self._pause_s = FIRST_PAUSE_S
        self._start_at = now + self._pause_s
        self._say(problem)
        log.debug("%s: the next start is in %g s", self._name(), self._pause_s)
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
        self._serving_since = 0.0
        self._misses = 0

    # It runs as wanted.

    def _watch(self, process: DaemonProcess, daemon: MpsDaemon) -> bool:
        now = self._monotonic()
        if now < self._ask_at:
            if self._unserved:
                raise MpsError(self._unserved)
            return True
        try:
            problem = wrong_limits(self._runner.control(), daemon.share)
            self._misses = 0
            self._runner.see_servers(None if problem else daemon.share)
        except MpsError as error:
            problem, self._misses = str(error), self._misses + 1
        self._runner.ready(not problem)
        self._unserved = problem
        self._ask_at = now + (FIRST_PAUSE_S if problem else ASK_INTERVAL_S)
        if not problem:
            return True
        if self._misses == 0 or self._misses >= MISSES:
            # Wrong limits are of no use to the next client, and a daemon that hangs lets none in.
            log.warning("%s: %s; its control daemon %d is ended", daemon.describe(), problem, process.pid)
            self._runner.kill(daemon.share if self._misses else None, gently=False)
            self._later(f"{problem}; its control daemon {process.pid} was ended")
        raise MpsError(problem)

    # It is not what is wanted.

    def _waits(self, known: record.Record, order: Order) -> str:
        """Why the daemon must stay as it is though another one is wanted, or none; empty when nobody would notice."""
        change = f"waits ({known.daemon.share.describe()} -> {order.terms})"
        if order.held_by:
            self._count_at = 0.0
            return f"{change}: {order.held_by}"
        if self._runner.process is None:
            return ""
        if self._counted_for != change or self._monotonic() >= self._count_at:
            self._clients, self._counted_for = self._connected(), change
            self._count_at = self._monotonic() + CLIENTS_INTERVAL_S
        return f"{change}: {self._clients}" if self._clients else ""

    def _connected(self) -> str:
        try:
            clients = count_clients(self._runner.control())
        except MpsError as error:
            # It may have clients all the same. If it goes on like that it is ended as one that hangs.
            return f"it is not known whether clients are connected: {error}"
        return f"{counted(clients, 'client')} still connected" if clients else ""

    def _end_daemon(self, known: record.Record, order: Order) -> None:
        """Ends the daemon that runs, for another one or for good."""
        self._start_at = 0.0
        if self._runner.process is None:
            return
        change = f"{known.daemon.share.describe()} -> {order.terms}"
        log.info("%s: %s; the control daemon %d is ended", known.daemon.describe(), change, self._runner.process.pid)
        self._runner.quit()

    def _leave(self) -> bool:
        self._runner.leave()
        return True

    def _put_back(self) -> bool:
        self._runner.put_back()
        return True

    # It does not run, or has not got its limits yet.

    def _start(self, daemon: MpsDaemon, order: Order) -> bool:
        try:
            if self._runner.process is None:
                self._runner.start(daemon, order.held_by)
            else:
                self._runner.complete()
        except StillServing:
            self._start_at = self._monotonic() + FIRST_PAUSE_S
            raise
        except (DevicePluginError, OSError) as error:
            self._later(str(error))
            raise MpsError(self.problem) from error
        now = self._monotonic()
        self._ask_at, self._serving_since, self._unserved = now + ASK_INTERVAL_S, now, ""
        self._runner.ready(True)
        process = self._runner.process
        pid = process.pid if process else 0
        log.info("%s: control daemon %d serves, %s", daemon.describe(), pid, daemon.share.describe())
        return True
