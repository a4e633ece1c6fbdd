"""What a unix socket's path says about whoever bound it."""

import errno
import os
import socket
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote

MAX_PATH_BYTES: Final = 107  # sun_path has 108, one of them for the terminating zero

_NOBODY_LISTENS: Final = frozenset({errno.ECONNREFUSED, errno.ENOENT})


@dataclass(frozen=True, slots=True)
class Identity:
    """Which socket lies at a path.

    A new socket may get the inode number of the one before; then its times tell. The change time alone moves
    without a new socket too: at a relabel, a chmod, a link.
    """

    device: int
    inode: int
    modified_ns: int

    @property
    def file(self) -> tuple[int, int]:
        """Device and inode: enough while the socket is known to be open."""
        return self.device, self.inode


def identity(path: Path) -> Identity | None:
    """The socket at `path`; None when there is none that can be looked at, or something else."""
    try:
        status = os.lstat(path)
    except OSError:
        return None
    if not stat.S_ISSOCK(status.st_mode):
        return None
    return Identity(status.st_dev, status.st_ino, status.st_mtime_ns)


def answers(path: Path) -> bool:
    """Whether somebody listens on the socket at `path`. Never blocks; True where it can't be told."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:  # itself fails when out of descriptors
            probe.setblocking(False)
            probe.connect(os.fspath(path))
    except OSError as error:
        return error.errno not in _NOBODY_LISTENS
    return True


def target(path: Path) -> str:
    """`path` as a gRPC target or listening address, which is a URI."""
    return "unix:" + quote(os.fspath(path))
