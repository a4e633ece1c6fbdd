"""Reads what pods hold, in a thread of its own, at a pace that follows the need.

PodResources List makes the kubelet rebuild its table, which loses the ids of an Allocate in flight (contract A14): so
it is called seldom, and never while one of our Allocates runs.
"""

import contextlib
from collections.abc import Callable
from typing import Protocol

from deviceplugin.app.events import HeldRead
from deviceplugin.app.pace import Pace
from deviceplugin.app.threads import OnDeath, spawn
from deviceplugin.errors import KubeletError
from deviceplugin.kubelet.unix import Identity
from deviceplugin.model.held import Held

LIST_TIMEOUT_S = 2.0
# How long a read gives a running Allocate to end before it goes without PodResources.
IDLE_WAIT_S = 1.0
# The kubelet's clients share 100 calls a second, 10 at once (contract P1); SIGHUPs ask for a read each.
LEAST_INTERVAL_S = 0.5


class Sources(Protocol):
    """Where held devices are read (deviceplugin.kubelet)."""

    def kubelet(self) -> Identity | None:
        """The PodResources socket that is there: each kubelet process makes its own."""

    def list_pods(self, timeout_s: float) -> Held:
        """PodResources List; raises KubeletError."""

    def allocatable(self, timeout_s: float) -> Held:
        """PodResources GetAllocatableResources; raises KubeletError."""

    def checkpoint(self) -> Held:
        """The kubelet's checkpoint, a lower bound (contract P5, P8); raises KubeletError."""


class HeldFeed:
    """One thread that reads both sources and posts one HeldRead per look."""

    def __init__(
        self,
        sources: Sources,
        wait_idle: Callable[[float], bool],
        post: Callable[[HeldRead], None],
        *,
        monotonic: Callable[[], float],
        on_death: OnDeath,
    ) -> None:
        self._sources = sources
        self._wait_idle = wait_idle
        self._post = post
        self._monotonic = monotonic
        self._on_death = on_death
        self._pace = Pace(least_s=LEAST_INTERVAL_S, monotonic=monotonic)
        self._interval_s = 60.0

    def start(self) -> None:
        """Begin with a read at once."""
        spawn("held", self._run, self._on_death)

    def stop(self) -> None:
        """Ask the thread to end."""
        self._pace.stop()

    def request(self) -> None:
        """Read as soon as possible."""
        self._pace.ask()

    def every(self, interval_s: float) -> None:
        """Read this often; a shorter pace than now begins at once."""
        sooner = interval_s < self._interval_s
        self._interval_s = interval_s
        if sooner:
            self._pace.ask()

    def _run(self) -> None:
        while not self._pace.stopping:
            self._pace.looking()
            self._post(self.read())
            self._pace.pause(self._interval_s)

    def read(self) -> HeldRead:
        """One look at both sources."""
        problems = []
        listed = checkpointed = allocatable = None
        idle = self._wait_idle(IDLE_WAIT_S)
        kubelet, began_at = self._sources.kubelet(), self._monotonic()
        if idle:
            try:
                listed = self._sources.list_pods(LIST_TIMEOUT_S)
            except KubeletError as error:
                problems.append(str(error))
        else:
            problems.append("an Allocate may be running, and PodResources List during one loses its ids (contract A14)")
        try:
            # After List: what it pruned is gone from the kubelet's table, though not yet from this file.
            checkpointed = self._sources.checkpoint()
        except KubeletError as error:
            problems.append(str(error))
        if listed is not None:
            with contextlib.suppress(KubeletError):
                # Asked last, so that a list sent before this read is in it.
                allocatable = self._sources.allocatable(LIST_TIMEOUT_S)
        problem = "" if listed is not None else "; ".join(problems)
        return HeldRead(listed, checkpointed, began_at, problem, allocatable, kubelet)
