"""Keeps the CDI directory as it should be: every file that runtimes find there is whole, and ours are never stale."""

import contextlib
import logging
import os
from collections.abc import Iterable
from pathlib import Path

from deviceplugin.model.cdi import CLASSES, CdiSpec, file_name

log = logging.getLogger(__name__)

Identity = tuple[int, int, int]


class CdiDirectory:
    """Our files in the directory that container runtimes read CDI specifications from.

    Nothing is kept in memory but what was written last, as hash and identity of each file.

    Args:
        path: usually /var/run/cdi, on a file system in memory.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._written: dict[str, tuple[int, Identity]] = {}
        self._unwanted: tuple[str, ...] = ()
        self._stuck: set[str] = set()

    def ensure(self, specs: Iterable[CdiSpec]) -> str:
        """Make the directory hold these specifications.

        A file is replaced as a whole and only when its content is another. Never raises.

        Returns:
            Why the specifications are not all in place; empty when they are.
        """
        wanted = {file_name(spec.device_class): spec for spec in specs}
        self._unwanted = tuple(name for name in map(file_name, CLASSES) if name not in wanted)
        for name in self._unwanted:
            self._written.pop(name, None)  # nobody would write it again: no part of being intact
        try:
            for name, spec in wanted.items():
                self._write(name, spec.text.encode())
        except OSError as error:
            where = error.filename or self._path
            return f"{where}: {error.strerror}; {self._cure()}"
        return ""

    def remove_others(self) -> None:
        """Remove files of ours for which the last `ensure` had no specification. Only while nobody can hold a name.

        One that can't be removed is logged and harms nobody: nothing names what is in it.
        """
        for name in self._unwanted:
            self._remove(self._path / name)

    def unwritable(self) -> str:
        """Why this container may not write specifications, with the value to set; empty when it may.

        Nothing is written to find out. A full disk or the like is no right that is lacking.
        """
        place = next(one for one in (self._path, *self._path.parents) if os.path.lexists(one))
        if place.is_dir() and os.access(place, os.W_OK | os.X_OK):
            return ""
        return f"{self._path} can't be written; {self._cure()}"

    def _cure(self) -> str:
        return (
            f"CDI specifications must be written to {self._path} on the host: set cdi.enabled to true in the chart's "
            f"values, which mounts it here"
        )

    def intact(self) -> bool:
        """Whether every file is still the one that was written: somebody may have emptied the directory."""
        return all(_identity(self._path / name) == identity for name, (_, identity) in self._written.items())

    def _write(self, name: str, data: bytes) -> None:
        path = self._path / name
        known = self._written.get(name)
        if known is not None and known[0] == hash(data) and known[1] == _identity(path):
            return
        self._written.pop(name, None)
        if _content(path) != data:
            self._path.mkdir(mode=0o755, parents=True, exist_ok=True)
            _replace(path, data)
            log.info("CDI specification written: %s", path)
        identity = _identity(path)
        if identity is None:
            raise FileNotFoundError(2, "it vanished as soon as it was written", str(path))
        self._written[name] = hash(data), identity

    def _remove(self, path: Path) -> None:
        if not os.path.lexists(path):  # a read-only file system refuses to remove also what is not there
            return
        try:
            path.unlink()
        except OSError as error:
            if path.name not in self._stuck:
                self._stuck.add(path.name)
                log.warning(
                    "CDI specification kept, though nobody can hold a name in it: %s: %s; remove it by hand",
                    path,
                    error.strerror,
                )
            return
        self._stuck.discard(path.name)
        log.info("CDI specification removed, nobody can hold a name in it: %s", path)


def _replace(path: Path, data: bytes) -> None:
    """Write beside the file and rename: runtimes read at any moment, and take no file but *.json and *.yaml."""
    temporary = path.with_name(f".{path.name}.new")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, 0o644)
            file.write(data)
        temporary.rename(path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None


def _identity(path: Path) -> Identity | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
