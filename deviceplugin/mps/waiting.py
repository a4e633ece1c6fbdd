"""Who waits for an MPS server, as far as control.log tells: no command of the control interface lists them.

Per client the daemon logs `NEW CLIENT pid from user uid: ` with `Server already exists`, or with `Server is not ready,
push client to pending list`, whether a server is about to start or one of another user is to end first; and `NEW SERVER
pid: Ready` when one lets the waiting clients of its user through (NVIDIA, Multi-Process Service, MPS logging format;
the lines as in NVIDIA/k8s-device-plugin issue 1614 and kubernetes-sigs/dra-driver-nvidia-gpu PR 1153).
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from deviceplugin.mps import proc

MOST: Final = 64
"""Clients that are remembered at a time; one GPU serves 48."""

_NEW_CLIENT = re.compile(r"NEW CLIENT (\d{1,10}) from user (\d{1,10}): Server is not ready")
_STARTING = re.compile(r"Starting new server (\d{1,10}) for user (\d{1,10})")
_READY = re.compile(r"NEW SERVER (\d{1,10}): Ready", re.IGNORECASE)
_DAEMON = re.compile(r"Starting control daemon")


@dataclass(frozen=True, slots=True)
class WaitingClient:
    """A process that has asked for the GPU and has no server.

    Attributes:
        pid: as the daemon knows it; 0: it does not, as in the logs of older drivers.
        uid: its user.
        since: seconds since the epoch.
    """

    pid: int
    uid: int
    since: float


class WaitingClients:
    """The clients of one daemon that wait, kept up to date by what it logs."""

    def __init__(self) -> None:
        self._users: dict[int, int] = {}
        self._clients: list[WaitingClient] = []

    def heard(self, lines: Iterable[str], now: float, *, multiuser: bool) -> None:
        """Take what came into control.log.

        Args:
            now: seconds since the epoch, when it was read.
            multiuser: the daemon's servers let every user through.
        """
        for line in lines:
            if found := _NEW_CLIENT.search(line):
                self._clients = [*self._clients, WaitingClient(int(found[1]), int(found[2]), now)][-MOST:]
            elif found := _STARTING.search(line):
                self._users[int(found[1])] = int(found[2])
            elif found := _READY.search(line):
                uid = self._users.pop(int(found[1]), None)
                everyone = multiuser or uid is None
                self._clients = [] if everyone else [one for one in self._clients if one.uid != uid]
            elif _DAEMON.search(line):
                self.clear()

    def clear(self) -> None:
        """The daemon has ended, and with it every wait for it."""
        self._users, self._clients = {}, []

    def longer_than(self, seconds: float, now: float) -> tuple[WaitingClient, ...]:
        """Who has waited this long and lives, the longest wait first."""
        self._clients = [one for one in self._clients if not one.pid or proc.started_at(one.pid)]
        return tuple(one for one in self._clients if now - one.since >= seconds)
