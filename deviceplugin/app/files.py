"""Notices that files change: inotify through watchdog where it works, and always a slow comparison beside it.

watchdog goes silent, its thread alive, when the watched directory itself is replaced, and inotify can be exhausted or
blind (network file systems): so nothing here is trusted alone (design 8, File watching).
"""

import errno
import logging
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from watchdog.events import (
    DirAttribEvent,
    DirCreatedEvent,
    DirDeletedEvent,
    DirMovedEvent,
    FileAttribEvent,
    FileClosedEvent,
    FileCreatedEvent,
    FileDeletedEvent,
    FileModifiedEvent,
    FileMovedEvent,
    FileSystemEvent,
    FileSystemEventHandler,
)
from watchdog.observers.api import ObservedWatch
from watchdog.observers.inotify import InotifyObserver

log = logging.getLogger(__name__)

# Opening and reading make no event: our own looks must not wake us.
EVENTS: list[type[FileSystemEvent]] = [
    DirAttribEvent,  # who may read it
    DirCreatedEvent,
    DirDeletedEvent,
    DirMovedEvent,
    FileAttribEvent,
    FileClosedEvent,
    FileCreatedEvent,
    FileDeletedEvent,
    FileModifiedEvent,
    FileMovedEvent,
]

# directory -> names of the entries in it that matter
Watched = dict[str, frozenset[str]]
ANY = frozenset({"*"})


def lookups(path: Path) -> Watched:
    """The directory entries that decide what `path` leads to.

    Those are: its own name in its directory, its directory's name one level up (a directory that is replaced), and the
    same at every symbolic link on the way (a ConfigMap volume's `..data`).

    Args:
        path: absolute; may not exist.

    Returns:
        directory -> names of interest in it. Ends at the first entry that is missing, and after 40 links.
    """
    found: dict[str, set[str]] = {}
    pending = [path]
    for _ in range(40):
        if not pending:
            break
        parts = pending.pop().parts
        here = Path(parts[0])
        for depth, name in enumerate(parts[1:], start=1):
            near_the_end = depth >= len(parts) - 2
            step = here / name
            link = _link(step)
            if near_the_end or link is not None:
                found.setdefault(str(here), set()).add(name)
            if link is not None:
                pending.append(Path(os.path.normpath(here / link / Path(*parts[depth + 1 :]))))
                break
            here = step
    return {directory: frozenset(names) for directory, names in found.items()}


def _link(path: Path) -> str | None:
    """Where a symbolic link leads; None for anything else, and where it can't be told."""
    try:
        return os.readlink(path)
    except OSError:
        return None


class _Handler(FileSystemEventHandler):
    def __init__(self, names: frozenset[str], changed: Callable[[], None]) -> None:
        self.names = names
        self._changed = changed

    def on_any_event(self, event: FileSystemEvent) -> None:
        """Wake the owner when the event is about one of the names."""
        for path in (event.src_path, event.dest_path):
            if path and (self.names == ANY or os.path.basename(os.fsdecode(path)) in self.names):
                self._changed()
                return


class Watcher:
    """inotify on a changing set of directories, through one watchdog observer.

    Args:
        changed: called, from watchdog's thread, when an entry of interest changed. Must be quick.
        purpose: for messages: `the config file`.
    """

    def __init__(self, changed: Callable[[], None], purpose: str) -> None:
        self._changed = changed
        self._purpose = purpose
        self._observer: InotifyObserver | None = None
        self._watches: dict[str, tuple[ObservedWatch, tuple[int, int], frozenset[str]]] = {}
        self._complained: set[str] = set()

    @property
    def blind(self) -> bool:
        """Whether something of interest is not watched, so that the slow look must be a faster one."""
        return self._observer is None or bool(self._complained)

    def watch(self, wanted: Watched) -> None:
        """Watch these entries from now on; a directory that was replaced by another is watched anew."""
        if self._observer is None:
            self._start_observer()
        if self._observer is None:
            return
        # A directory that matters no more makes nobody blind.
        self._complained &= wanted.keys()
        for directory in [d for d in self._watches if d not in wanted or not self._same(d, wanted[d])]:
            watch, _, _ = self._watches.pop(directory)
            self._forget(watch)
        for directory, names in wanted.items():
            if directory not in self._watches:
                self._add(directory, names)

    def stop(self) -> None:
        """Stop watching; does not wait for watchdog's threads."""
        if self._observer is not None:
            self._observer.stop()
            self._observer = None
        self._watches.clear()

    def _same(self, directory: str, names: frozenset[str]) -> bool:
        _, identity, watched_names = self._watches[directory]
        return watched_names == names and _identity(directory) == identity

    def _start_observer(self) -> None:
        try:
            # Making one asks the kernel for an inotify instance, of which a user has few (128 by default).
            observer = InotifyObserver()
            observer.name = f"watch {self._purpose}"
            observer.start()
        except OSError as error:
            self._complain("", error)
            return
        self._observer = observer

    def _add(self, directory: str, names: frozenset[str]) -> None:
        identity = _identity(directory)
        if identity is None or self._observer is None:
            return
        handler = _Handler(names, self._changed)
        try:
            watch = self._observer.schedule(handler, directory, recursive=False, event_filter=EVENTS)
        except OSError as error:
            self._complain(directory, error)
            return
        self._complained.discard(directory)
        self._watches[directory] = (watch, identity, names)

    def _forget(self, watch: ObservedWatch) -> None:
        if self._observer is None:
            return
        try:
            self._observer.unschedule(watch)
        except (KeyError, OSError):
            log.debug("watch on %s was gone already", watch.path)

    def _complain(self, directory: str, error: OSError) -> None:
        if directory in self._complained:
            return
        self._complained.add(directory)
        sysctl = {
            errno.EMFILE: "fs.inotify.max_user_instances",
            errno.ENFILE: "fs.file-max",
            errno.ENOSPC: "fs.inotify.max_user_watches",
        }.get(error.errno or 0)
        log.warning(
            "cannot watch %s%s by inotify: %s; comparing it by the clock instead%s",
            self._purpose,
            f" in {directory}" if directory else "",
            error.strerror or error,
            f". Raise the node's sysctl {sysctl}" if sysctl else "",
        )


def _identity(path: str) -> tuple[int, int] | None:
    try:
        stat = os.stat(path)
    except OSError:
        return None
    return stat.st_dev, stat.st_ino


Signature = tuple[tuple[int, int, int, int, int] | None, ...]


def signature(paths: Iterable[str | Path]) -> Signature:
    """What tells that any of these files is not the one it was: device, inode, size, mtime, ctime; None if missing.

    The change time is in it because an inode number can be reused at once (a kubelet.sock was seen to return with its
    old one).
    """
    return tuple(_stat(path) for path in paths)


def _stat(path: str | Path) -> tuple[int, int, int, int, int] | None:
    try:
        stat = os.stat(path)
    except OSError:
        return None
    return stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns
