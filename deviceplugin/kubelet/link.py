"""The link to the kubelet: one thread that looks after every resource's server, registration and stream."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from deviceplugin.kubelet.ledger import Ledger
from deviceplugin.kubelet.lifecycle import Lifecycle
from deviceplugin.kubelet.lookout import Sighting, look_after_s
from deviceplugin.kubelet.service import ResourceService
from deviceplugin.kubelet.states import (
    KubeletStarted,
    LinkEvent,
    Registered,
    RegistrationFailed,
    ResourceState,
    SocketConflict,
    StreamLost,
)
from deviceplugin.model.offer import Offer

__all__ = [
    "KubeletLink",
    "KubeletStarted",
    "LinkEvent",
    "Registered",
    "RegistrationFailed",
    "ResourceState",
    "SocketConflict",
    "StreamLost",
]

SLOW_POLL_S: Final = 1.0  # everything is looked at this often, whatever the directory watcher says
CLOSE_GRACE_S: Final = 2.0  # for Allocates that run when one resource is closed
THREAD_NAME: Final = "kubelet-link"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Next:
    """Until the next step: when it is `due`, how often to look at the kubelet's socket, and whether by connecting."""

    due: float
    look_after_s: float
    probe: bool


class KubeletLink:
    """Serves resources and keeps them registered, whatever the kubelet does.

    Every method may be called from any thread and none waits for the kubelet; only `stop` waits, for our own thread.
    """

    def __init__(
        self,
        *,
        kubelet_socket: Path,
        ledger: Ledger,
        monotonic: Callable[[], float],
        notify: Callable[[LinkEvent], None],
        on_death: Callable[[BaseException], None],
    ) -> None:
        """Nothing happens before `start`.

        Args:
            notify: called from the link's thread; it must return at once.
            on_death: called from the link's thread with what ended it unasked.
        """
        self._kubelet_socket = kubelet_socket
        self._ledger = ledger
        self._monotonic = monotonic
        self._notify = notify
        self._on_death = on_death
        self._thread = threading.Thread(target=self._run, name=THREAD_NAME, daemon=True)
        self._changed = threading.Condition()
        self._woken = False
        self._stop_by: float | None = None
        self._open: dict[str, Lifecycle] = {}
        self._closing: list[Lifecycle] = []
        self._doubted: set[str] = set()
        self._kubelet_seen = Sighting(kubelet_socket).identity

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """End every stream, then the servers, remove our sockets; wait for that at most `timeout_s`."""
        with self._changed:
            self._stop_by = time.monotonic() + timeout_s
            for lifecycle in self._open.values():
                lifecycle.service.close()
        self._wake()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def open(self, offer: Offer) -> None:
        """Serve a new resource, then register it; one that is open already answers from `offer` from now on."""
        with self._changed:
            known = self._open.get(offer.name)
            if known is not None:
                known.service.answer_from(offer)
                return
            service = ResourceService(offer, self._ledger, streams_changed=self._wake, monotonic=self._monotonic)
            self._open[offer.name] = Lifecycle(
                service,
                self._kubelet_socket,
                wake=self._wake,
                notify=self._notify,
                now=self._monotonic(),
            )
        self._wake()

    def answer_from(self, offer: Offer) -> None:
        """Replace what Allocate and GetPreferredAllocation answer from; sends no list.

        Raises KeyError when the resource is not open, as `send` does.
        """
        self._service(offer.name).answer_from(offer)

    def send(self, name: str) -> bool:
        """Send the list of the offer in force on the open streams; False when its content is what they have."""
        return self._service(name).send()

    def resend(self, name: str) -> None:
        """Send the list once more though it did not change: the kubelet then rewrites its checkpoint (C3, L13)."""
        self._service(name).resend()

    def close(self, name: str) -> None:
        """End the resource's streams, forget it, remove its socket. Nothing happens when it is not open."""
        with self._changed:
            lifecycle = self._open.pop(name, None)
            if lifecycle is None:
                return
            lifecycle.service.close()
            self._closing.append(lifecycle)
        self._wake()

    def register_again(self, name: str) -> None:
        """The kubelet does not show what the resource's list says, though its stream seems open (R13): start over."""
        with self._changed:
            self._doubted.add(name)
        self._wake()

    def kick(self) -> None:
        """The kubelet's directory may have changed: look now."""
        self._wake()

    def states(self) -> Mapping[str, ResourceState]:
        """Every open resource now, by name."""
        with self._changed:
            lifecycles = dict(self._open)
        return {name: lifecycle.state() for name, lifecycle in lifecycles.items()}

    def _service(self, name: str) -> ResourceService:
        with self._changed:
            return self._open[name].service

    def _wake(self) -> None:
        with self._changed:
            self._woken = True
            self._changed.notify_all()

    def _run(self) -> None:
        try:
            kubelet = Sighting(self._kubelet_socket)
            plan = self._step(kubelet)
            while self._stop_by is None:
                woken = self._pause(min(plan.due, self._monotonic() + plan.look_after_s))
                last, kubelet = kubelet, Sighting(self._kubelet_socket)
                # Most looks find nothing new while the kubelet is away; they must cost next to nothing.
                news = kubelet.identity != last.identity or (plan.probe and kubelet.alive)
                if self._stop_by is None and (woken or news or self._monotonic() >= plan.due):
                    plan = self._step(kubelet)
            self._shut_down(self._stop_by)
        except BaseException as error:  # noqa: BLE001 -- handed on: the death of this thread ends the process
            log.critical("the kubelet link ended: %r", error)
            self._on_death(error)

    def _pause(self, until: float) -> bool:
        """Wait until then, or until woken: returns which."""
        with self._changed:
            if not self._woken:
                self._changed.wait(max(until - self._monotonic(), 0.0))
            woken, self._woken = self._woken, False
            return woken

    def _step(self, kubelet: Sighting) -> _Next:
        """Let every resource take its step. Returns what to do until the next one."""
        with self._changed:
            lifecycles, closing = list(self._open.values()), list(self._closing)
            doubted = [self._open[name] for name in self._doubted if name in self._open]
            self._doubted.clear()
        for lifecycle in doubted:
            lifecycle.register_again(self._monotonic())
        for lifecycle in closing:
            lifecycle.close(CLOSE_GRACE_S)
            if lifecycle.closed():
                with self._changed:
                    self._closing.remove(lifecycle)
        if kubelet.identity not in (None, self._kubelet_seen):
            self._kubelet_seen = kubelet.identity
            log.info("the kubelet has a new socket %s", self._kubelet_socket)
            self._ledger.kubelet_started()
            self._notify(KubeletStarted())
        now = self._monotonic()
        dues = [lifecycle.step(now, kubelet) for lifecycle in lifecycles]
        seeking = [since for lifecycle in lifecycles if (since := lifecycle.seeking_since) is not None]
        return _Next(
            due=min([now + SLOW_POLL_S, *dues]),
            look_after_s=look_after_s(now - max(seeking)) if seeking else SLOW_POLL_S,
            probe=any(lifecycle.awaits_kubelet for lifecycle in lifecycles),
        )

    def _shut_down(self, stop_by: float) -> None:
        with self._changed:
            lifecycles = [*self._open.values(), *self._closing]
        for lifecycle in lifecycles:
            lifecycle.close(max(stop_by - time.monotonic(), 0.0) / 2)
        for lifecycle in lifecycles:
            lifecycle.closed(max(stop_by - time.monotonic(), 0.0))
