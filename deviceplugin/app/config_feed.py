"""Notices every way of changing the config file and posts its content when it differs from the last."""

import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path

from deviceplugin.app.events import FileRead
from deviceplugin.app.files import Watcher, lookups, signature
from deviceplugin.app.threads import OnDeath, spawn
from deviceplugin.errors import ConfigError

log = logging.getLogger(__name__)

# A burst of events is one reload: wait until it has been quiet this long, but no longer than the second figure.
QUIET_S = 0.05
AT_MOST_S = 0.25
SLOW_LOOK_S = 2.0
BLIND_LOOK_S = 0.5
LEFT_BEHIND = (
    "found a file that was replaced or deleted where it comes from, while the mount here goes on showing the old one "
    "(a subPath, or a bind mount of the file alone), expected a mount of its directory, which follows: until then "
    "restart this container to have the new file read"
)


class ConfigFeed:
    """One thread that watches one file.

    Args:
        path: the file as it was named; its links are followed anew at each look.
        read: reads the file's bytes, raises ConfigError.
        post: takes FileRead.
        slow_look_s: how often the file is compared beside inotify, whatever that says.
    """

    def __init__(
        self,
        path: str,
        read: Callable[[str], bytes],
        post: Callable[[FileRead], None],
        *,
        monotonic: Callable[[], float],
        on_death: OnDeath,
        slow_look_s: float = SLOW_LOOK_S,
    ) -> None:
        self._path = Path(path).absolute()
        self._named = path
        self._read = read
        self._post = post
        self._monotonic = monotonic
        self._on_death = on_death
        self._slow_look_s = slow_look_s
        self._wake = threading.Event()
        self._forced = False
        self._stopping = False
        self._last: tuple[bytes | None, str | None] | None = None
        self._watcher = Watcher(self._wake.set, "the config file")

    def start(self, initial: bytes | None, problem: ConfigError | None) -> None:
        """Begin; `initial` and `problem` are what the start already read, so that they are not posted again."""
        self._last = (initial, str(problem) if problem else None)
        spawn("config", self._run, self._on_death)

    def stop(self) -> None:
        """Ask the thread to end."""
        self._stopping = True
        self._wake.set()

    def force(self) -> None:
        """Read and post whether it changed or not (SIGHUP); a storm of these is a burst as any other."""
        self._forced = True
        self._wake.set()

    def _run(self) -> None:
        seen = None
        while not self._stopping:
            # Watch first, look second: a change in between is then an event.
            self._watch()
            now = signature([self._path])
            # What could not be read (out of descriptors, a network file system) may be readable without any change.
            if now != seen or self._forced or self._unread:
                seen = now
                self._look()
            if self._wake.wait(min(BLIND_LOOK_S, self._slow_look_s) if self._watcher.blind else self._slow_look_s):
                self._settle()
                # An in-place write can keep size and, within the clock's grain, times: an event means look.
                seen = None
        self._watcher.stop()

    @property
    def _unread(self) -> bool:
        return self._last is not None and self._last[0] is None

    def _watch(self) -> None:
        wanted = lookups(self._path)
        self._watcher.watch(wanted)
        if lookups(self._path) != wanted:
            # A link that was turned before its directory was watched made no event. Come round again, debounced as
            # after any event: links that are turned without end must not keep the file from being read.
            self._wake.set()

    def _settle(self) -> None:
        deadline = self._monotonic() + AT_MOST_S
        while not self._stopping:
            self._wake.clear()
            remaining = deadline - self._monotonic()
            if remaining <= 0 or not self._wake.wait(min(QUIET_S, remaining)):
                break
        self._wake.clear()

    def _left_behind(self) -> bool:
        """Whether the file has no name any more where it comes from: nothing but a mount of its own shows such."""
        try:
            return os.stat(self._path).st_nlink == 0
        except OSError:  # gone this very moment: the next look says so
            return False

    def _look(self) -> None:
        # Taken back once seen, and before the file is read: one that comes at any other moment is for the next look.
        forced = self._forced
        if forced:
            self._forced = False
        data: bytes | None = None
        problem: ConfigError | None = None
        try:
            data = self._read(self._named)
            if self._left_behind():
                raise ConfigError((f"{self._named}: {LEFT_BEHIND}",))
        except ConfigError as error:
            data = None
            problem = error
        current = (data, str(problem) if problem else None)
        if current == self._last and not forced:
            if data is not None:
                log.debug("%s was touched, its content is the same", self._named)
            return
        self._last = current
        self._post(FileRead(data, problem))
