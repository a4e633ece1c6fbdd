"""Tells people what a keeper does: in the file that the plugin shows, and who waits for a server in the log, once."""

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from deviceplugin.mps import proc, state
from deviceplugin.mps.paths import states
from deviceplugin.mps.runner import Runner
from deviceplugin.mps.waiting import WaitingClient

log = logging.getLogger("deviceplugin.mps")

# A server that starts keeps its first client waiting for a moment.
WAITING_S = 3.0
RENEW_S = 5.0

ONE_USER = (
    "clients of another user id have the server, and this daemon serves one user id at a time: end their pods, or give "
    "all pods of the GPU one runAsUser"
)
ANY_USER = "no MPS server gets ready for it: see the server.log lines of this GPU in the MPS supervisor's log"


class Teller:
    """The news of one GPU.

    Args:
        root: the MPS root as this process sees it.
        monotonic: seconds.
    """

    def __init__(self, root: Path, gpu_uuid: str, monotonic: Callable[[], float]) -> None:
        self._path = states(root) / gpu_uuid
        self._monotonic = monotonic
        self._told: state.KeeperState | None = None
        self._renew_at = 0.0
        self._waited: frozenset[WaitingClient] = frozenset()
        self._failed = ""

    def tell(self, name: str, runner: Runner, problem: str) -> None:
        """Say how things stand, if it is news or nobody would know otherwise that it still holds.

        Args:
            name: the daemon's, for people.
            problem: as in KeeperState.
        """
        clients = runner.waiting.longer_than(WAITING_S, time.time())
        advice = ANY_USER if runner.multiuser else ONE_USER
        self._warn(name, clients, advice)
        now = _state_of(name, runner, problem, clients, advice if clients else "")
        if now == self._told and self._monotonic() < self._renew_at:
            return
        try:
            state.write(self._path, now)
            self._failed = ""
        except OSError as error:
            if self._failed != str(error):
                log.warning("%s: %s can't be written: %s; `status` does not show it", name, self._path, error.strerror)
            self._failed = str(error)
        self._told, self._renew_at = now, self._monotonic() + RENEW_S

    def end(self) -> None:
        """There is nothing more to say of this GPU."""
        with suppress(OSError):
            self._path.unlink(missing_ok=True)

    def _warn(self, name: str, clients: tuple[WaitingClient, ...], advice: str) -> None:
        for one in clients:
            if one not in self._waited:
                log.warning(
                    "%s: process %s of user %d waits for an MPS server since %s: %s",
                    name,
                    one.pid or "(number unknown)",
                    one.uid,
                    state.when(one.since),
                    advice,
                )
        for one in self._waited.difference(clients):
            log.info("%s: process %s of user %d waits no longer", name, one.pid or "(number unknown)", one.uid)
        self._waited = frozenset(clients)


def _state_of(
    name: str, runner: Runner, problem: str, clients: tuple[WaitingClient, ...], advice: str
) -> state.KeeperState:
    process, known = runner.process, runner.record
    runs = process is not None and known is not None
    return state.KeeperState(
        daemon=name,
        pid=process.pid if process else 0,
        since=state.when(round(proc.when(process.started_at))) if process else "",
        limits=known.daemon.share.describe() if known and runs else "",
        serves=runner.serves,
        restarts=max(0, runner.daemons - 1),
        problem=problem,
        waiting=tuple(
            state.ClientState(one.pid, one.uid, state.when(one.since)) for one in clients[: state.MOST_CLIENTS]
        ),
        advice=advice,
    )
