"""Keeps the control daemon of one GPU as it is wanted: one thread for each GPU, since any of its steps can hang.

The thread compares what is wanted with what runs and takes one step at a time. What it does not get done, it says and
tries again. Clients are never ended: a change waits until nobody holds a share and no client is connected.
"""

import logging
import os
import signal
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from deviceplugin.errors import DevicePluginError, MpsError
from deviceplugin.model.computemode import ComputeMode
from deviceplugin.model.mps import MpsDaemon
from deviceplugin.model.words import counted
from deviceplugin.mps import record
from deviceplugin.mps.control import Control, count_clients, limit_commands, wrong_limits
from deviceplugin.mps.directories import clear_stale, prepare
from deviceplugin.mps.logs import LogFollower
from deviceplugin.mps.order import ComputeModes, Order
from deviceplugin.mps.paths import DaemonPaths
from deviceplugin.mps.process import DaemonProcess, last_words

log = logging.getLogger("deviceplugin.mps")

# How soon a death is noticed, and logs are followed.
LOOK_S = 0.25
ASK_INTERVAL_S = 5.0
# A daemon that misses one question may be busy; one that misses this many in a row is started afresh.
MISSES = 2
STARTING_S = 10.0
QUIT_S = 3.0
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
    """

    def __init__(
        self, root: Path, gpu_uuid: str, modes: ComputeModes, *, multiuser: bool, monotonic: Callable[[], float]
    ) -> None:
        self._root = root
        self._gpu = gpu_uuid
        self._modes = modes
        self._multiuser = multiuser
        self._monotonic = monotonic
        self._wake = threading.Event()
        self._order: Order | None = None
        self._ending = False
        self.done = threading.Event()
        self.problem = ""
        self._record: record.Record | None = None
        self._process: DaemonProcess | None = None
        self._logs: LogFollower | None = None
        self._misses = 0
        self._ask_at = self._start_at = self._serving_since = 0.0
        self._pause_s = FIRST_PAUSE_S

    def follow(self, order: Order) -> None:
        """What to bring about from now on; safe from any thread."""
        if order != self._order:
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
            if taken_over and order and self._tried(partial(self._step, order)) and order.wanted is None:
                break
            self._wake.wait(LOOK_S)
            self._wake.clear()
        if self._ending and taken_over:
            held = self._order is None or self._order.held_by
            # The record of shares that are held stays, so that the next supervisor serves them again.
            self._tried(self._put_back if held else self._leave)
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
        daemon = wanted or (self._record.daemon if self._record else None)
        return daemon.describe() if daemon else self._gpu

    # What an earlier supervisor left.

    def _take_over(self) -> bool:
        self._record = known = record.read(self._root, self._gpu)
        if known is not None and known.pid:
            process = DaemonProcess(known.pid, known.started_at)
            if process.alive():
                log.info(
                    "%s: the control daemon %d of an earlier supervisor runs on", known.daemon.describe(), known.pid
                )
                self._process = process
                self._logs = LogFollower(self._paths(known.daemon).log, known.daemon.describe())
        return True

    # One step towards what is wanted.

    def _step(self, order: Order) -> bool:
        if self._logs is not None:
            self._logs.look()
        if self._process is not None and not self._process.alive():
            self._has_died(self._process)
        known = self._record
        if known is None:
            if order.wanted is not None and order.held_by:
                raise MpsError(
                    f"its control daemon is not started while the GPU is given out otherwise: {order.held_by}"
                )
        elif known.daemon != order.wanted:
            if waits := self._waits(known, order):
                # What is held was given out on the terms of the daemon that there is, so that one is kept.
                self._reach(known.daemon)
                raise MpsError(waits)
            self._end_daemon(known, order)
        return self._reach(order.wanted)

    def _reach(self, daemon: MpsDaemon | None) -> bool:
        if daemon is None:
            return self._leave()
        if self._process is not None:
            return self._watch(self._process, daemon)
        if self._monotonic() < self._start_at:
            raise MpsError(self.problem)
        return self._start(daemon)

    def _has_died(self, process: DaemonProcess) -> None:
        paths = self._paths(self._known().daemon)
        paths.ready.unlink(missing_ok=True)
        clear_stale(paths)
        self._process = None
        status = f" with status {process.exit_status}" if process.exit_status is not None else ""
        said = last_words(paths)
        self._later(f"its control daemon {process.pid} ended{status}" + (f": {said}" if said else ""))

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

    # It runs as wanted.

    def _watch(self, process: DaemonProcess, daemon: MpsDaemon) -> bool:
        now = self._monotonic()
        if now < self._ask_at:
            return not self.problem
        self._ask_at = now + (ASK_INTERVAL_S if not self.problem else FIRST_PAUSE_S)
        paths = self._paths(daemon)
        try:
            problem = wrong_limits(self._control(paths), daemon.share)
            self._misses = 0
        except MpsError as error:
            problem, self._misses = str(error), self._misses + 1
        if not problem:
            paths.ready.touch()
            return True
        paths.ready.unlink(missing_ok=True)
        self._ask_at = now + FIRST_PAUSE_S
        if self._misses == 0 or self._misses >= MISSES:
            # Wrong limits are of no use to the next client, and a daemon that hangs lets none in.
            log.warning("%s: %s; its control daemon %d is ended", daemon.describe(), problem, process.pid)
            self._kill(process, gently=False)
            self._misses = 0
            self._has_died(process)
            raise MpsError(self.problem)
        raise MpsError(problem)

    # It is not what is wanted.

    def _waits(self, known: record.Record, order: Order) -> str:
        """Why the daemon must stay as it is though another one is wanted, or none; empty when nobody would notice."""
        change = f"waits ({known.daemon.share.describe()} -> {order.terms})"
        if order.held_by:
            return f"{change}: {order.held_by}"
        if self._process is None:
            return ""
        try:
            clients = count_clients(self._control(self._paths(known.daemon)))
        except MpsError:
            return ""  # it hangs: nobody can be let in either
        return f"{change}: {counted(clients, 'client')} still connected" if clients else ""

    def _end_daemon(self, known: record.Record, order: Order) -> None:
        """Ends the daemon that runs, for another one or for good."""
        self._start_at = 0.0
        if self._process is None:
            return
        change = f"{known.daemon.share.describe()} -> {order.terms}"
        log.info("%s: %s; the control daemon %d is ended", known.daemon.describe(), change, self._process.pid)
        self._quit(self._process, self._control(self._paths(known.daemon)))
        self._forget_process()

    def _leave(self) -> bool:
        """Gives the GPU back as it was before MPS had it."""
        self._put_back()
        record.remove(self._root, self._gpu)
        self._record = None
        return True

    def _put_back(self) -> bool:
        """Ends the daemon and puts the compute mode back; the record stays."""
        if self._process is not None:
            self._quit(self._process, self._control(self._paths(self._known().daemon)))
            self._forget_process()
        if self._record is not None:
            self._modes.set(self._gpu, self._record.previous_mode)
            log.info("%s: compute mode is %s again", self._name(), self._record.previous_mode.name)
        return True

    def _forget_process(self) -> None:
        paths = self._paths(self._known().daemon)
        paths.ready.unlink(missing_ok=True)
        clear_stale(paths)
        self._process, self._logs, self._misses = None, None, 0

    def _quit(self, process: DaemonProcess, control: Control) -> None:
        try:
            control.ask("quit -t 0", deadline_s=QUIT_S)
        except MpsError as error:
            log.debug("%s: quit: %s", self._name(), error)
        if not self._gone(process, QUIT_S):
            self._kill(process)

    def _kill(self, process: DaemonProcess, *, gently: bool = True) -> None:
        """Ends the process. SIGKILL alone leaves its server to the clients that it has."""
        for number in (signal.SIGTERM, signal.SIGKILL) if gently else (signal.SIGKILL,):
            process.signal(number)
            if self._gone(process, QUIT_S):
                return
        raise MpsError(f"the control daemon {process.pid} can't be ended: it hangs in the kernel")

    def _gone(self, process: DaemonProcess, within_s: float) -> bool:
        deadline = self._monotonic() + within_s
        pause = threading.Event()
        while process.alive():
            if self._monotonic() >= deadline:
                return False
            pause.wait(0.02)
        return True

    # It does not run.

    def _start(self, daemon: MpsDaemon) -> bool:
        paths = self._paths(daemon)
        try:
            prepare(paths)
            self._refuse_foreign(paths)
            clear_stale(paths)
            self._take_gpu(daemon)
            try:
                process = self._begin(paths, daemon)
                self._set_limits(paths, daemon)
            except MpsError:
                if self._process is not None:
                    self._kill(self._process)
                    self._forget_process()
                raise
        except (DevicePluginError, OSError) as error:
            self._later(str(error))
            raise MpsError(self.problem) from error
        now = self._monotonic()
        self._ask_at, self._serving_since = now + ASK_INTERVAL_S, now
        paths.ready.touch()
        log.info("%s: control daemon %d serves, %s", daemon.describe(), process.pid, daemon.share.describe())
        return True

    def _refuse_foreign(self, paths: DaemonPaths) -> None:
        try:
            self._control(paths).ask("get_server_list")
        except MpsError:
            return
        pid_file = paths.pipe / "nvidia-cuda-mps-control.pid"
        pid = pid_file.read_text().strip() if pid_file.exists() else "unknown"
        raise MpsError(
            f"foreign daemon: a control daemon that this supervisor did not start (pid {pid}) answers at {paths.pipe}; "
            f"it is left alone. End it with `echo quit | CUDA_MPS_PIPE_DIRECTORY={paths.pipe} nvidia-cuda-mps-control`"
        )

    def _take_gpu(self, daemon: MpsDaemon) -> None:
        """Remembers the compute mode, then makes it EXCLUSIVE_PROCESS: only the MPS server may use the GPU."""
        previous = self._record.previous_mode if self._record else self._modes.get(self._gpu)
        known = record.Record(previous, daemon)
        record.write(self._root, known)
        fresh = self._record is None
        self._record = known
        try:
            self._modes.set(self._gpu, ComputeMode.EXCLUSIVE_PROCESS)
        except DevicePluginError:
            if fresh:
                record.remove(self._root, self._gpu)
                self._record = None
            raise

    def _begin(self, paths: DaemonPaths, daemon: MpsDaemon) -> DaemonProcess:
        process = DaemonProcess.start(paths, self._gpu, multiuser=self._multiuser, environment=os.environ)
        self._record = replace(self._known(), pid=process.pid, started_at=process.started_at)
        record.write(self._root, self._record)
        self._process = process
        self._logs = self._logs or LogFollower(paths.log, daemon.describe())
        deadline = self._monotonic() + STARTING_S
        control = self._control(paths)
        pause = threading.Event()
        while process.alive():
            if (paths.pipe / "control").exists():
                try:
                    control.ask("get_server_list")
                except MpsError as error:
                    if self._monotonic() >= deadline:
                        raise MpsError(f"the control daemon does not come up: {error}") from error
                else:
                    return process
            elif self._monotonic() >= deadline:
                raise MpsError(f"the control daemon opens no pipe within {STARTING_S:g} s")
            pause.wait(0.05)
        said = last_words(paths)
        self._process = None
        if self._multiuser and said.lower().startswith("usage"):
            self._multiuser = False
            log.warning(
                "%s: this driver's control daemon knows no -multiuser-server: pods of different user ids wait for "
                "each other",
                daemon.describe(),
            )
            return self._begin(paths, daemon)
        raise MpsError(f"the control daemon ended with status {process.exit_status}: {said or 'without a word'}")

    def _set_limits(self, paths: DaemonPaths, daemon: MpsDaemon) -> None:
        control = self._control(paths)
        for command in limit_commands(daemon.share):
            control.ask(command)
        if problem := wrong_limits(control, daemon.share):
            raise MpsError(f"{problem}, although it was set")
        # Defaults reach the next server only: none may run that does not have them.
        if servers := control.ask("get_server_list"):
            raise MpsError(f"the servers {' '.join(servers.split())} began before their limits were set")

    def _control(self, paths: DaemonPaths) -> Control:
        return Control(paths.pipe, paths.log)

    def _paths(self, daemon: MpsDaemon) -> DaemonPaths:
        return DaemonPaths(self._root, daemon.resource_name, daemon.gpu_uuid)

    def _known(self) -> record.Record:
        assert self._record is not None, "a daemon is never started without a record"
        return self._record
