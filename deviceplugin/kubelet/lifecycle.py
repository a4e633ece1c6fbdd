"""The life of one resource at the kubelet: bound, registered, streaming, and back again.

A small state machine without a thread of its own. `step` looks at what is so now and does the next thing; nothing in
it waits for anybody. Whoever drives it calls `step` when something may have changed, and at the time it returned.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import Enum, auto
from pathlib import Path
from typing import Final

from deviceplugin.errors import KubeletError
from deviceplugin.kubelet.endpoint import Endpoint
from deviceplugin.kubelet.lookout import BINDS_S, Sighting, look_after_s, retry_after_s
from deviceplugin.kubelet.registration import Registration
from deviceplugin.kubelet.service import ResourceService
from deviceplugin.kubelet.socket_file import DirectoryBusyError, rivals
from deviceplugin.kubelet.states import (
    LinkEvent,
    Registered,
    RegistrationFailed,
    ResourceState,
    SocketConflict,
    StreamLost,
)
from deviceplugin.kubelet.unix import Identity

NEVER: Final = float("inf")
SETTLING_S: Final = 30.0  # after a registration draining devices are listed Healthy for this long (A29, design 8)
STREAM_PATIENCE_S: Final = 5.0  # registered, but no stream for this long: a fault, register again (reports B3)
STABLE_S: Final = 10.0  # a stream that lived this long owes nothing to the losses before it
CHANGEOVER_S: Final = 0.25  # what an ended kubelet needs at most until its calls and streams have ended too
HANG_UP_S: Final = 0.02  # what the kubelet gets to forget the connection whose stream we ended (R12)
HANG_UP_PATIENCE_S: Final = 1.0
LOCK_RETRY_S: Final = 0.005
REBIND_GRACE_S: Final = 2.0

log = logging.getLogger(__name__)


class _Phase(Enum):
    UNBOUND = auto()
    SEEKING = auto()
    REGISTERING = auto()
    REGISTERED = auto()


class Lifecycle:
    """One resource's socket, registration and stream. All methods but `state` belong to one thread."""

    def __init__(
        self,
        service: ResourceService,
        kubelet_socket: Path,
        *,
        wake: Callable[[], None],
        notify: Callable[[LinkEvent], None],
        now: float,
    ) -> None:
        """`wake` is called from other threads when a step may be due; `notify` must return at once."""
        self.service: Final = service
        self._name: Final = service.name
        self._kubelet_socket = kubelet_socket
        self._wake = wake
        self._notify = notify
        self._phase = _Phase.UNBOUND
        self._endpoint: Endpoint | None = None
        self._stopping: list[Endpoint] = []
        self._attempt: Registration | None = None
        self._kubelet: Identity | None = None  # the one that the last attempt went to
        self._asked_at = now
        self._stream_patience_s = STREAM_PATIENCE_S
        self._stream = 0  # serial of the stream that the kubelet opens for the last attempt
        self._hang_up_by: float | None = None
        self._awaited_since = now
        self._awaits_kubelet = False
        self._try_at = now
        self._failures = 0
        self._losses = 0
        self._asked_at = now  # when the last attempt to register began
        self._registered_at: float | None = None
        self._registrations = 0
        self._settled_at = NEVER
        self._last_error = ""
        self._awaiting = "its first step"
        self._rivals: frozenset[Path] = frozenset()
        self._rivals_left: frozenset[Path] = frozenset()  # since the kubelet last accepted us
        self._rivals_seen_at = now

    @property
    def seeking_since(self) -> float | None:
        """Since when a new kubelet would change what is done next; None when the last one is well."""
        return self._awaited_since if self._phase is _Phase.SEEKING else None

    @property
    def awaits_kubelet(self) -> bool:
        """Whether nothing but a kubelet that listens is missing."""
        return self._awaits_kubelet

    def state(self) -> ResourceState:
        """A picture of now, from any thread."""
        streams, endpoint = self.service.streams, self._endpoint
        registered = self._phase is _Phase.REGISTERED
        return ResourceState(
            endpoint=str(endpoint.path) if endpoint else "",
            registered=registered,
            stream_open=registered and self._stream in streams.open_serials,
            streams_open=len(streams.open_serials),
            registered_at=self._registered_at,
            registrations=self._registrations,
            lists_sent=streams.lists_sent,
            last_list_at=streams.last_list_at,
            last_error=self._last_error,
            awaiting=self._awaiting,
            conflict=str(min(self._rivals, default="")),
        )

    def step(self, now: float, kubelet: Sighting) -> float:
        """Do what is due. Returns when to be called again at the latest, `NEVER` if only something new matters."""
        if self.service.closed:
            return NEVER
        self._stopping = [endpoint for endpoint in self._stopping if not endpoint.stopped()]
        if now >= self._settled_at and self._phase is _Phase.REGISTERED:
            self._settled_at = NEVER
            self.service.settle(False)
        if self._endpoint is not None and not self._endpoint.in_place:
            self._leave_lost_socket(now)
        self._watch_rivals(now)
        if self._phase is _Phase.REGISTERING:
            self._take_answer(now, kubelet)
        if self._phase is _Phase.REGISTERED:
            self._check_stream(now, kubelet)
        due = NEVER
        self._awaits_kubelet = False
        if self._phase is _Phase.UNBOUND:
            due = self._bind(now)
        if self._phase is _Phase.SEEKING:
            due = self._seek(now, kubelet)
        if self._phase is _Phase.REGISTERING and kubelet.identity != self._kubelet:
            due = self._asked_at + CHANGEOVER_S
        if self._phase is _Phase.REGISTERED:
            waiting_for_stream = self.service.streams.next_serial <= self._stream
            patience_ends = (self._registered_at or now) + self._stream_patience_s
            due = min(self._settled_at, patience_ends if waiting_for_stream else NEVER)
        return due

    def close(self, grace_s: float) -> None:
        """End the streams, remove our socket and stop serving; returns at once, see `closed`."""
        self.service.close()
        self._drop_attempt()
        if self._endpoint is not None:
            self._endpoint.stop(grace_s)
            self._stopping.append(self._endpoint)
            self._endpoint = None
        self._phase = _Phase.UNBOUND

    def closed(self, wait_s: float = 0.0) -> bool:
        """Whether, after `close`, the servers have ended."""
        return all(endpoint.stopped(wait_s) for endpoint in self._stopping)

    # What follows is one phase each.

    def _bind(self, now: float) -> float:
        if now < self._try_at:
            return self._try_at
        try:
            self._endpoint = Endpoint.open(self._kubelet_socket.parent, self._name, self.service.handler())
        except DirectoryBusyError:
            self._try_at = now + LOCK_RETRY_S
            return self._try_at
        except KubeletError as error:
            self._last_error = str(error)
            self._await(f"a place for its socket: {error}", logging.INFO)
            self._try_at = now + look_after_s(now - self._awaited_since, BINDS_S)
            return self._try_at
        log.info("%s: serving on %s", self._name, self._endpoint.path)
        self._phase = _Phase.SEEKING
        self._try_at = now
        self._watch_rivals(now)
        return now

    def _seek(self, now: float, kubelet: Sighting) -> float:
        """Wait for a kubelet that listens, then for our own back-off, then register."""
        if self._hang_up_by is not None:
            if self.service.streams.open_serials and now < self._hang_up_by:
                return self._hang_up_by
            self._hang_up_by = None
            self._try_at = max(self._try_at, now + HANG_UP_S)
        if kubelet.identity not in (None, self._kubelet):  # a new kubelet: what failed with the last one is past
            self._kubelet = kubelet.identity
            self._failures = self._losses = 0
            self._try_at = now
        if now < self._try_at:
            self._await(f"the next try to register, after: {self._last_error or 'the stream was lost'}")
            return self._try_at
        if not kubelet.alive:
            self._failures = self._losses = 0  # theirs end with the kubelet that they were met at
            self._awaits_kubelet = True
            self._await(kubelet.awaited, logging.INFO)
            return NEVER
        self._register(now, kubelet)
        return NEVER

    def _register(self, now: float, kubelet: Sighting) -> None:
        assert self._endpoint is not None
        try:
            self._endpoint.improve()
        except KubeletError as error:
            log.debug("%s: stays at %s: %s", self._name, self._endpoint.path, error)
        self._asked_at = now
        self._kubelet = kubelet.identity
        self._asked_at = now
        self._settled_at = NEVER
        self.service.settle(True)  # the stream can open before Register is answered (R6)
        self._stream = self.service.streams.next_serial
        self._attempt = Registration(
            self._kubelet_socket, resource=self._name, endpoint=self._endpoint.path.name, done=self._wake
        )
        self._phase = _Phase.REGISTERING
        self._await("the kubelet's answer to Register")

    def _take_answer(self, now: float, kubelet: Sighting) -> None:
        attempt = self._attempt
        assert attempt is not None
        if not attempt.done:
            # Whoever was asked is gone or replaced, unless the call reached the new one already.
            if kubelet.identity != self._kubelet and now - self._asked_at >= CHANGEOVER_S:
                self._seek_again(now)
            return
        failure = attempt.failure()
        # An answer that came too late is an answer: the stream it brought is open.
        if failure is None or self._stream in self.service.streams.open_serials:
            self._drop_attempt()
            self._accepted(now, kubelet)
            return
        went_away = attempt.went_away
        self._failures += 1
        self._last_error = str(failure)
        # A listener that takes calls and drops them is a kubelet that ends or begins: don't stay away for long.
        self._seek_again(now, retry_after_s(min(self._failures, 4) if went_away else self._failures))
        log.log(logging.INFO if went_away else logging.WARNING, "not registered: %s", failure)
        if not went_away:
            self._notify(RegistrationFailed(self._name, str(failure)))

    def _accepted(self, now: float, kubelet: Sighting) -> None:
        self._phase = _Phase.REGISTERED
        self._stream_patience_s = STREAM_PATIENCE_S
        if kubelet.identity not in (None, self._kubelet):
            # Replaced between our look and now. Most likely it was the new one that accepted; then its stream is open
            # or about to be. To hang up on it would take every device from the node for a moment.
            self._kubelet = kubelet.identity
            self._stream_patience_s = CHANGEOVER_S
        self._registered_at = now
        self._registrations += 1
        self._settled_at = now + SETTLING_S
        self._last_error = ""
        self._await("the kubelet to open ListAndWatch")
        log.info("%s: registered", self._name)
        self._notify(Registered(self._name))

    def _check_stream(self, now: float, kubelet: Sighting) -> None:
        streams = self.service.streams
        registered_at = now if self._registered_at is None else self._registered_at
        opened, still_open = self._stream < streams.next_serial, self._stream in streams.open_serials
        if opened and not still_open:
            # S5 (iii): the kubelet ended, or dropped us when an older stream ended (R12). Only the second time in a
            # short while is worth a pause.
            if now - registered_at >= STABLE_S:
                self._losses = 0
            self._seek_again(now, retry_after_s(self._losses) if self._losses else 0.0)
            self._losses += 1
        elif kubelet.identity not in (None, self._kubelet):
            # A new kubelet while the stream of the old one seems open: end it first (R11), the new one never saw it.
            self.service.end_streams()
            self._seek_again(now)
        elif not opened and now - registered_at >= self._stream_patience_s:
            self._failures += 1
            self._last_error = f"{self._name}: registered, but no ListAndWatch for {self._stream_patience_s:g} s"
            log.warning("%s; registering again", self._last_error)
            self.service.end_streams()  # onlookers', which may have left no room for the kubelet's
            self._seek_again(now, retry_after_s(self._failures))
        else:
            if still_open:
                self._failures = 0
                self._await("")
            return
        if opened:
            log.warning("%s: the kubelet's stream ended; registering again", self._name)
            self._notify(StreamLost(self._name))

    def _leave_lost_socket(self, now: float) -> None:
        """Our socket is gone or another's lies there (S2, S5 ii): bind again, then have the kubelet dial that one."""
        endpoint, self._endpoint = self._endpoint, None
        assert endpoint is not None
        log.warning("%s: our socket %s is gone; binding again", self._name, endpoint.path)
        self._hang_up(now)
        endpoint.stop(REBIND_GRACE_S)
        self._stopping.append(endpoint)
        self._failures = self._losses = 0
        self._seek_again(now)
        self._phase = _Phase.UNBOUND

    def _seek_again(self, now: float, pause_s: float = 0.0) -> None:
        self._drop_attempt()
        self._phase = _Phase.SEEKING
        self._awaited_since = now
        self._try_at = now + pause_s

    def _drop_attempt(self) -> None:
        if self._attempt is not None:
            self._attempt.close()
            self._attempt = None

    def _watch_rivals(self, now: float) -> None:
        """Report other servers for this resource; when one leaves, have the kubelet dial us again.

        The end of its stream makes the kubelet drop whatever client bears the resource's name (R12). If that was the
        rival's own, ours is forgotten with its stream left open: nothing but another registration helps.
        """
        ours = None if self._endpoint is None else self._endpoint.path
        seen = rivals(self._kubelet_socket.parent, self._name, ours)
        for path in sorted(seen - self._rivals):
            log.warning(
                "%s: another server answers on %s; ours is %s. Two device plugins on one node disturb each other: "
                "stop one",
                self._name,
                path,
                ours or "not bound yet",
            )
            self._notify(SocketConflict(self._name, str(path)))
        self._rivals_left |= self._rivals - seen
        if self._rivals_left and self._phase is _Phase.REGISTERED:
            # If we asked while it was there, its end may have come before or after the kubelet's answer.
            if self._asked_at <= self._rivals_seen_at:
                log.warning("%s: the server on %s has left; registering again", self._name, min(self._rivals_left))
                self._hang_up(now)
                self._seek_again(now)
            self._rivals_left = frozenset()
        if seen:
            self._rivals_seen_at = now
        self._rivals = seen

    def register_again(self, now: float) -> None:
        """Have the kubelet dial us anew: end its stream, wait until it has hung up, register (R12, R13)."""
        if self._phase is _Phase.REGISTERED:
            log.warning("%s: registering again, since the kubelet does not offer what our list says", self._name)
            self._hang_up(now)
            self._seek_again(now)

    def _hang_up(self, now: float) -> None:
        """End the kubelet's stream; a kubelet that still runs must hang up before it is asked again (R12)."""
        if self._stream in self.service.streams.open_serials:
            self._hang_up_by = now + HANG_UP_PATIENCE_S
            self._notify(StreamLost(self._name))
        self.service.end_streams()

    def _await(self, what: str, level: int = logging.DEBUG) -> None:
        if what != self._awaiting:
            self._awaiting = what
            if what:
                log.log(level, "%s: awaiting %s", self._name, what)
