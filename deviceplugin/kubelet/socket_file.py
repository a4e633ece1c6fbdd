"""The names of our sockets in the kubelet's directory, and how to take and leave them without harm (design 8, Sockets).

gRPC deletes whatever lies at the path that it binds, and later whatever lies there when it stops. So a server binds
a temporary name that nobody else uses, and the name that the kubelet is told is a hard link to it, made only where
none is. A name is given up only while it is still our socket. Processes of ours exclude each other by a lock on the
directory; what others do in between is found out by moving a file aside before deleting it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from deviceplugin.errors import KubeletError, SocketConflictError
from deviceplugin.kubelet.unix import MAX_PATH_BYTES, Identity, answers, identity

TEMPORARY_PREFIX: Final = ".ndp-"  # the kubelet takes no notice of names that begin with a dot (W2, S8)
NAMES_BESIDE: Final = 9
DEFAULT_DOMAIN: Final = "nvidia.com"


class DirectoryBusyError(KubeletError):
    """Another process of ours takes or leaves a name in the directory. The catcher tries again in milliseconds."""


def socket_names(directory: Path, resource: str) -> Iterator[str]:
    """The names that the socket of `resource` may have, the best first.

    NVIDIA's (`nvidia-gpu.sock`), with another domain than nvidia.com the domain in it, hashed when the whole path
    would be too long; then the same with `~2` and so on, which no resource's own name can be.

    Raises KubeletError when the directory's path leaves no room even for a hash.
    """
    domain, _, name = resource.rpartition("/")
    stem = f"nvidia-{name}" if domain in ("", DEFAULT_DOMAIN) else f"nvidia-{domain}_{name}"
    longest = MAX_PATH_BYTES - len(os.fsencode(directory)) - 1
    if len(f"{stem}~{NAMES_BESIDE}.sock") > longest:
        stem = "nvidia-" + hashlib.sha256(resource.encode()).hexdigest()[:10]
    if len(f"{stem}~{NAMES_BESIDE}.sock") > longest:
        raise KubeletError(
            f"{directory}: the path is too long for a socket in it: {longest} bytes are left for the name, "
            f"{len(stem) + 7} are needed; use a shorter directory for --kubelet-socket"
        )
    yield f"{stem}.sock"
    for number in range(2, NAMES_BESIDE + 1):
        yield f"{stem}~{number}.sock"


def rivals(directory: Path, resource: str, ours: Path | None) -> frozenset[Path]:
    """Sockets under names of `resource` in `directory`, `ours` apart, on which somebody listens. Never raises."""
    try:
        paths = {directory / name for name in socket_names(directory, resource)} - {ours}
    except KubeletError:
        return frozenset()
    return frozenset(path for path in paths if identity(path) is not None and answers(path))


@contextmanager
def directory_lock(directory: Path) -> Iterator[None]:
    """Exclude other processes of ours from `directory`; never waits.

    Raises DirectoryBusyError when one is at work there, KubeletError when the directory can't be opened.
    """
    try:
        handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise KubeletError(
            f"{directory}: {error.strerror}; expected the kubelet's directory for plugin sockets"
        ) from None
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno == errno.EWOULDBLOCK:
                raise DirectoryBusyError(f"{directory}: another process of ours is placing a socket there") from None
            # A file system without locks: the checks below remain.
        yield
    finally:
        os.close(handle)


def check_place(directory: Path, resource: str) -> None:
    """Look whether a socket of `resource` can lie in `directory` at all, which costs far less than to try it.

    Raises KubeletError when its path is too long or we may not write there.
    """
    next(socket_names(directory, resource))
    if not os.access(directory, os.W_OK | os.X_OK):
        raise KubeletError(
            f"{directory}: this process can't write there (no permission, or mounted read-only); expected the "
            "kubelet's directory for plugin sockets: run as root and mount it writable"
        )


def temporary_name(directory: Path) -> Path:
    """A name in `directory` that nobody uses."""
    return directory / f"{TEMPORARY_PREFIX}{secrets.token_hex(4)}"


def clean_temporary_names(directory: Path) -> None:
    """Remove sockets that processes of ours left behind under temporary names. Call it with the lock held."""
    with contextlib.suppress(OSError):
        for entry in list(os.scandir(directory)):
            if entry.name.startswith(TEMPORARY_PREFIX):
                path = Path(entry.path)
                if identity(path) is not None and not answers(path):
                    path.unlink(missing_ok=True)


class SocketFile:
    """A socket that we listen on, and the name under which the kubelet finds it."""

    def __init__(self, bound: Path) -> None:
        """`bound` is the temporary name that the listening socket was bound to.

        Raises KubeletError when it is gone already.
        """
        found = identity(bound)
        if found is None:
            raise KubeletError(f"{bound}: our own socket vanished as soon as it was bound")
        self._identity = found
        self.path = bound
        self.conflict: Path | None = None

    @property
    def in_place(self) -> bool:
        """Whether our socket still lies at its name (S3)."""
        found = identity(self.path)
        return found is not None and found.file == self._identity.file

    def place(self, resource: str) -> None:
        """Take the best name of `resource` that is free; a better one than now, if that has become free.

        Where a live socket answers, or anything but a socket lies, is not free: `conflict` is then that path.
        Call it with the directory's lock held.

        Raises SocketConflictError when no name is free, KubeletError when the directory refuses.
        """
        directory = self.path.parent
        conflict: Path | None = None
        if not self.in_place:
            raise KubeletError(f"{self.path}: our own socket is gone")
        for name in socket_names(directory, resource):
            path = directory / name
            if path == self.path or self._take(path):
                break
            conflict = conflict or path
        else:
            raise SocketConflictError(
                f"{conflict}: another server answers there, and on the {NAMES_BESIDE - 1} names beside it; "
                "stop the other device plugin on this node"
            )
        self.conflict = conflict

    def remove(self) -> None:
        """Give the name up, if it is still ours. Never raises: what can't be removed stays, and is dead."""
        if self.in_place:
            with contextlib.suppress(OSError):
                _remove_exactly(self.path, self._identity)

    def _take(self, path: Path) -> bool:
        try:
            if os.path.lexists(path):
                occupant = identity(path)
                if occupant is None or answers(path) or not _remove_exactly(path, occupant):
                    return False
            os.link(self.path, path, follow_symlinks=False)
        except FileExistsError:  # somebody was faster
            return False
        except OSError as error:
            raise KubeletError(f"{path}: can't place our socket: {error.strerror}") from None
        previous, self.path = self.path, path
        with contextlib.suppress(OSError):
            previous.unlink()
        return True


def _remove_exactly(path: Path, expected: Identity) -> bool:
    """Remove the socket at `path` if it is `expected`; one that came in between is put back. Returns whether it was."""
    aside = temporary_name(path.parent)
    try:
        os.rename(path, aside)
    except FileNotFoundError:
        return True
    removed = identity(aside) == expected
    if not removed:
        with contextlib.suppress(FileExistsError):
            os.link(aside, path, follow_symlinks=False)
    aside.unlink(missing_ok=True)
    return removed
