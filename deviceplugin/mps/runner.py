"""Starts and ends the control daemon of one GPU, and keeps the record of it: every step survives a SIGKILL of ours.

The record is written before each step that it is needed for: before the compute mode is changed, before a daemon is
started, and again when the daemon's pid is known and when it has its limits. Calls may take seconds.
"""

import logging
import os
import secrets
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from deviceplugin.errors import DevicePluginError, MpsError
from deviceplugin.model.computemode import ComputeMode
from deviceplugin.model.mps import MpsDaemon, MpsShare
from deviceplugin.model.words import counted
from deviceplugin.mps import record, servers
from deviceplugin.mps.control import Control, limit_commands, limit_variables, wrong_limits
from deviceplugin.mps.directories import clear_stale, prepare
from deviceplugin.mps.foreign import occupied, refuse_foreign
from deviceplugin.mps.logs import LogFollower
from deviceplugin.mps.order import ComputeModes
from deviceplugin.mps.paths import DaemonPaths
from deviceplugin.mps.process import DaemonProcess, last_words
from deviceplugin.mps.waiting import WaitingClients

log = logging.getLogger("deviceplugin.mps")

STARTING_S = 10.0
QUIT_S = 3.0


class StillServing(MpsError):
    """Servers with other limits serve clients yet; their end is near or far, so the start is tried again soon."""


class Runner:
    """One GPU's control daemon.

    Args:
        root: the MPS root as this process sees it.
        gpu_uuid: the GPU.
        modes: of compute.
        multiuser: start daemons with -multiuser-server, as far as they know it.
        monotonic: seconds.

    Attributes:
        record: what is on disk; None while MPS does not have the GPU.
        process: the daemon that runs; None without one.
        waiting: the clients that wait for a server of it.
        daemons: how many there have been so far.
        serves: what `ready` was last told.
        multiuser: whether daemons are started with -multiuser-server.
    """

    def __init__(
        self, root: Path, gpu_uuid: str, modes: ComputeModes, *, multiuser: bool, monotonic: Callable[[], float]
    ) -> None:
        self._root = root
        self._gpu = gpu_uuid
        self._modes = modes
        self.multiuser = multiuser
        self._monotonic = monotonic
        self._logs: LogFollower | None = None
        self.waiting = WaitingClients()
        self.daemons = 0
        self.serves = False
        self.record: record.Record | None = None
        self.process: DaemonProcess | None = None

    def take_over(self) -> None:
        """Read what an earlier supervisor left, and go on with the daemon that it started. Raises MpsError."""
        self.record = known = record.read(self._root, self._gpu)
        if known is None:
            return
        if known.pid:
            found: DaemonProcess | None = DaemonProcess(known.pid, known.started_at)
        else:
            # It was killed between the start of the daemon and the note of its pid, or before.
            found = DaemonProcess.find(known.token) if known.token else None
        if found is None or not found.alive():
            share = known.daemon.share if known.limited else None
            self._know_servers(self._left_behind(self._paths(known.daemon), share))
            return
        log.info("%s: the control daemon %d of an earlier supervisor runs on", known.daemon.describe(), found.pid)
        self._adopt(found)

    def follow_logs(self) -> None:
        """Log what the daemon has logged since the last call."""
        if self._logs is not None:
            self._logs.look()

    def _heard(self, lines: Sequence[str]) -> None:
        self.waiting.heard(lines, time.time(), multiuser=self.multiuser)

    def control(self) -> Control:
        """The pipe of the daemon that runs."""
        return self._control(self._paths(self._known().daemon))

    def ready(self, serves: bool) -> None:
        """Say in the daemon's directory whether it serves."""
        path = self._paths(self._known().daemon).ready
        self.serves = serves
        if serves:
            path.touch()
        else:
            path.unlink(missing_ok=True)

    # A daemon is started.

    def start(self, daemon: MpsDaemon, held_by: str) -> None:
        """Start a daemon and give it its limits.

        Args:
            held_by: as in Order: whom servers with other limits must be left to.

        Raises:
            MpsError, DriverError, OSError: it does not run then, and the reason says what to do.
        """
        paths = self._paths(daemon)
        prepare(paths)
        refuse_foreign(paths, self._control(paths))
        self._end_servers(paths, daemon.share, held_by)
        clear_stale(paths)
        self._take_gpu(daemon)
        self._launch(paths, daemon)
        self.complete()

    def complete(self) -> None:
        """Wait until the daemon that was started answers, and give it its limits; raises as `start` does."""
        daemon = self._known().daemon
        paths = self._paths(daemon)
        try:
            self._await_answer(paths, daemon)
            self._set_limits(paths, daemon)
        except MpsError:
            if self.process is not None:
                # Not by `quit` or SIGTERM: who has got in meanwhile keeps the server.
                self.kill(None, gently=False)
            raise
        self._note(replace(self._known(), limited=True))

    def _take_gpu(self, daemon: MpsDaemon) -> None:
        """Remembers the compute mode, then makes it EXCLUSIVE_PROCESS: only the MPS server may use the GPU."""
        fresh = self.record is None
        previous = self.record.previous_mode if self.record else self._modes.get(self._gpu)
        living = self.record.servers if self.record else ()
        self._note(record.Record(previous, daemon, token=secrets.token_hex(8), servers=living))
        try:
            self._modes.set(self._gpu, ComputeMode.EXCLUSIVE_PROCESS)
        except DevicePluginError:
            if fresh:
                record.remove(self._root, self._gpu)
                self.record = None
            raise

    def _launch(self, paths: DaemonPaths, daemon: MpsDaemon) -> None:
        environment = {**os.environ, **limit_variables(daemon.share)}
        token, multiuser = self._known().token, self.multiuser
        self._adopt(DaemonProcess.start(paths, self._gpu, token, multiuser=multiuser, environment=environment))

    def _adopt(self, process: DaemonProcess) -> None:
        known = self._known()
        self.process = process
        self.daemons += 1
        if self._logs is None:
            self._logs = LogFollower(self._paths(known.daemon).log, known.daemon.describe(), self._heard)
        if (known.pid, known.started_at) != (process.pid, process.started_at):
            self._note(replace(known, pid=process.pid, started_at=process.started_at))

    def _await_answer(self, paths: DaemonPaths, daemon: MpsDaemon) -> None:
        deadline = self._monotonic() + STARTING_S
        control = self._control(paths)
        pause = threading.Event()
        while (process := self.process) is not None and process.alive():
            if (paths.pipe / "control").exists():
                try:
                    control.ask("get_server_list")
                except MpsError as error:
                    if self._monotonic() >= deadline:
                        raise MpsError(f"the control daemon does not come up: {error}") from error
                else:
                    return
            elif self._monotonic() >= deadline:
                raise MpsError(f"the control daemon opens no pipe within {STARTING_S:g} s")
            pause.wait(0.05)
        said = last_words(paths)
        status = self.process.exit_status if self.process else None
        self.process = None
        if self.multiuser and said.lower().startswith("usage"):
            self.multiuser = False
            log.warning(
                "%s: this driver's control daemon knows no -multiuser-server: pods of different user ids wait for "
                "each other",
                daemon.describe(),
            )
            self._launch(paths, daemon)
            self._await_answer(paths, daemon)
            return
        raise MpsError(f"the control daemon ended with status {status}: {said or 'without a word'}")

    def _set_limits(self, paths: DaemonPaths, daemon: MpsDaemon) -> None:
        control = self._control(paths)
        late = wrong_limits(control, daemon.share)
        for command in limit_commands(daemon.share):
            control.ask(command)
        if problem := wrong_limits(control, daemon.share):
            raise MpsError(f"{problem}, although it was set")
        # Defaults reach the next server only: none may run that does not have them.
        if late and (found := control.ask("get_server_list").split()):
            raise MpsError(f"the servers {' '.join(found)} began before their limits were set")

    # Servers, which outlive a daemon that is killed.

    def see_servers(self, share: MpsShare | None) -> None:
        """Note the servers of the daemon that runs; the new ones have the limits of `share`, None: wrong ones."""
        pids = [int(one) for one in self.control().ask("get_server_list").split() if one.isdecimal()]
        self._know_servers(servers.known(self._known().servers, pids, share))

    def _know_servers(self, found: tuple[servers.Server, ...]) -> None:
        if self.record is not None and found != self.record.servers:
            self._note(replace(self.record, servers=found))

    def _left_behind(self, paths: DaemonPaths, share: MpsShare | None) -> tuple[servers.Server, ...]:
        before = self.record.servers if self.record else ()
        return servers.known(before, () if occupied(paths.pipe) else servers.of(paths.pipe), share)

    def _end_servers(self, paths: DaemonPaths, wanted: MpsShare | None, held_by: str) -> None:
        """Ends the servers of earlier daemons with other limits than wanted; raises MpsError while pods need them."""
        found = self._left_behind(paths, None)
        self._know_servers(found)
        other = [one for one in found if one.share != wanted or wanted is None]
        if not other:
            return
        pids = ", ".join(str(one.pid) for one in other)
        if held_by:
            raise StillServing(
                f"{counted(len(other), 'server')} of an earlier control daemon ({pids}) may still serve clients with "
                f"other limits; waits for their end, or for the pods: {held_by}"
            )
        log.info("the servers %s of %s, with other limits, are ended: no pod holds a share", pids, self._gpu)
        for number in (signal.SIGTERM, signal.SIGKILL):
            for one in other:
                one.signal(number)
            if self._none_alive(other):
                return
        raise MpsError(f"the servers {pids} of an earlier control daemon can't be ended: they hang in the kernel")

    def _none_alive(self, those: list[servers.Server]) -> bool:
        deadline = self._monotonic() + QUIT_S
        pause = threading.Event()
        while any(one.alive() for one in those):
            if self._monotonic() >= deadline:
                return False
            pause.wait(0.02)
        return True

    # A daemon ends.

    def died(self) -> str:
        """Clean up after a daemon that has ended by itself; returns what it said."""
        process = self.process
        assert process is not None, "only a daemon that ran can have died"
        said = last_words(self._paths(self._known().daemon))
        self._forget(self._known().daemon.share if self._known().limited else None)
        status = f" with status {process.exit_status}" if process.exit_status is not None else ""
        return f"its control daemon {process.pid} ended{status}" + (f": {said}" if said else "")

    def kill(self, share: MpsShare | None, *, gently: bool) -> None:
        """End the daemon, not by its own ways.

        Args:
            share: the limits that servers of it have which nobody has seen yet; None: not known.
            gently: by SIGTERM first. SIGKILL alone leaves its servers to the clients that they have.
        """
        process = self.process
        if process is None:
            return
        for number in (signal.SIGTERM, signal.SIGKILL) if gently else (signal.SIGKILL,):
            process.signal(number)
            if self._gone(process, QUIT_S):
                self._forget(share)
                return
        raise MpsError(f"the control daemon {process.pid} can't be ended: it hangs in the kernel")

    def quit(self) -> None:
        """End the daemon and its servers, as it does itself or by signals."""
        process = self.process
        if process is None:
            return
        try:
            self.control().ask("quit -t 0", deadline_s=QUIT_S)
        except MpsError as error:
            log.debug("%s: quit: %s", self._gpu, error)
        if self._gone(process, QUIT_S):
            self._forget(None)
        else:
            self.kill(None, gently=True)
        self._logs = None

    def put_back(self) -> None:
        """End the daemon and every server, and put the compute mode back; the record stays."""
        self.quit()
        if self.record is not None:
            self._end_servers(self._paths(self.record.daemon), None, "")
            self._modes.set(self._gpu, self.record.previous_mode)
            log.info("%s: compute mode is %s again", self.record.daemon.describe(), self.record.previous_mode.name)

    def leave(self) -> None:
        """Give the GPU back as it was before MPS had it."""
        self.put_back()
        record.remove(self._root, self._gpu)
        self.record = None

    def _forget(self, share: MpsShare | None) -> None:
        paths = self._paths(self._known().daemon)
        self.ready(False)
        clear_stale(paths)
        self.process = None
        self.waiting.clear()
        self._know_servers(self._left_behind(paths, share))

    def _gone(self, process: DaemonProcess, within_s: float) -> bool:
        deadline = self._monotonic() + within_s
        pause = threading.Event()
        while process.alive():
            if self._monotonic() >= deadline:
                return False
            pause.wait(0.02)
        return True

    def _note(self, new: record.Record) -> None:
        record.write(self._root, new)
        self.record = new

    def _control(self, paths: DaemonPaths) -> Control:
        return Control(paths.pipe, paths.log)

    def _paths(self, daemon: MpsDaemon) -> DaemonPaths:
        return DaemonPaths(self._root, daemon.resource_name, daemon.gpu_uuid)

    def _known(self) -> record.Record:
        assert self.record is not None, "a daemon is never started without a record"
        return self.record
