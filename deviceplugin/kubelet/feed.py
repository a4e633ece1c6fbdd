"""The newest list of one resource, and the ListAndWatch streams that wait for it. Knows no gRPC."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

MAX_STREAMS: Final = 4  # the kubelet opens one per registration (R14); the rest is for whoever looks on


@dataclass(frozen=True, slots=True)
class FeedState:
    """What became of the streams so far.

    Attributes:
        open_serials: of the streams whose RPC has not ended. Streams are numbered from 0 in the order they open.
        next_serial: of the stream that opens next.
        lists_sent: lists handed to gRPC over all streams.
        last_list_at: when the last of them was, by the feed's clock.
    """

    open_serials: frozenset[int]
    next_serial: int
    lists_sent: int
    last_list_at: float | None


class ListFeed:
    """Holds one serialised list and passes it to each stream: at once, then whenever it changed.

    Streams wait on one condition: a list wakes them all, nobody polls, and each list was serialised once.
    """

    def __init__(self, payload: bytes, *, changed: Callable[[], None], monotonic: Callable[[], float]) -> None:
        """`changed` is called, from any thread and without a lock held, after a stream opened or its RPC ended."""
        self._payload = payload
        self._repeats = 0
        self._changed = changed
        self._monotonic = monotonic
        self._news = threading.Condition()
        self._streams: dict[int, Stream] = {}
        self._next_serial = 0
        self._lists_sent = 0
        self._last_list_at: float | None = None
        self._closed = False

    @property
    def state(self) -> FeedState:
        """The streams now."""
        with self._news:
            return FeedState(frozenset(self._streams), self._next_serial, self._lists_sent, self._last_list_at)

    def publish(self, payload: bytes) -> bool:
        """Send `payload` on every open stream unless it is what they have (L13). Returns whether it was news."""
        with self._news:
            if payload == self._payload:
                return False
            self._payload = payload
            self._news.notify_all()
            return True

    def repeat(self) -> None:
        """Send what every open stream has once more."""
        with self._news:
            self._repeats += 1
            self._news.notify_all()

    def open(self) -> Stream | None:
        """A new stream; None when there are too many already."""
        with self._news:
            if len(self._streams) >= MAX_STREAMS:
                return None
            stream = Stream(self, self._next_serial)
            self._next_serial += 1
            self._streams[stream.serial] = stream
            stream.ended = self._closed
        self._changed()
        return stream

    def end_streams(self) -> None:
        """End the streams that are open now. Returns at once; each leaves `state` when its RPC is over."""
        with self._news:
            for stream in self._streams.values():
                stream.ended = True
            self._news.notify_all()

    def close(self) -> None:
        """End every stream, and from now on each new one at once."""
        with self._news:
            self._closed = True
        self.end_streams()

    def _lists(self, stream: Stream) -> Iterator[bytes]:
        # Compared by what is in it: a list that changed and changed back before the stream woke is no news (L13).
        payload, repeats = b"", -1
        while True:
            with self._news:
                while not stream.ended and (self._payload, self._repeats) == (payload, repeats):
                    self._news.wait()
                if stream.ended:
                    return
                payload, repeats = self._payload, self._repeats
                self._lists_sent += 1
                self._last_list_at = self._monotonic()
            yield payload

    def _gone(self, stream: Stream) -> None:
        with self._news:
            stream.ended = True
            self._streams.pop(stream.serial, None)
            self._news.notify_all()
        self._changed()


class Stream:
    """One ListAndWatch RPC."""

    __slots__ = ("_feed", "ended", "serial")

    def __init__(self, feed: ListFeed, serial: int) -> None:
        self._feed = feed
        self.serial = serial
        self.ended = False

    def lists(self) -> Iterator[bytes]:
        """Serialised lists, the current one at once; blocks in between, ends when the stream does."""
        return self._feed._lists(self)

    def gone(self) -> None:
        """The RPC is over, whoever ended it. Called from gRPC's own thread; returns at once."""
        self._feed._gone(self)
