"""Tells the link at once when the device-plugins directory changes: kubelet.sock is back, or one of ours is gone."""

import threading
from pathlib import Path
from typing import Protocol

from deviceplugin.app.files import ANY, Watcher
from deviceplugin.app.threads import OnDeath, spawn

# The link compares by itself every second; this only finds out whether the watch must move to another directory.
LOOK_S = 1.0


class Kickable(Protocol):
    """The part of the link that this feed uses."""

    def kick(self) -> None:
        """Look at the sockets now."""


class KubeletFeed:
    """One thread that keeps a watch on the kubelet's socket, through replacements of its directory."""

    def __init__(self, kubelet_socket: Path, link: Kickable, *, on_death: OnDeath) -> None:
        self._socket = kubelet_socket
        self._link = link
        self._on_death = on_death
        self._stopping = threading.Event()
        self._watcher = Watcher(link.kick, "the kubelet's sockets")

    def start(self) -> None:
        """Begin watching."""
        spawn("kubelet-watch", self._run, self._on_death)

    def stop(self) -> None:
        """Ask the thread to end."""
        self._stopping.set()

    def _run(self) -> None:
        directory = self._socket.parent
        wanted = {
            # Also our own sockets, and those of another server for a resource of ours.
            str(directory): ANY,
            str(directory.parent): frozenset({directory.name}),
        }
        self._watcher.watch(wanted)
        while not self._stopping.wait(LOOK_S):
            self._watcher.watch(wanted)
        self._watcher.stop()
