"""Unix sockets as the kubelet leaves them: published whole, and stale after the process is gone (S2, S4, P1)."""

from __future__ import annotations

import itertools
import os
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final
from urllib.parse import quote

import grpc

from deviceplugin.simulator.clock import MESSAGE_LIMIT_BYTES

PATH_LIMIT_BYTES: Final = 107
_serial = itertools.count()


class SocketServer:
    """A gRPC server on a socket that is bound under a temporary name in `staging` and then published elsewhere.

    grpc deletes the path that it bound when it stops; under its published name the file stays and refuses
    connections, as the real kubelet's does (S4). Messages are limited to 4 MiB (R2).
    """

    def __init__(self, name: str, staging: Path, add: Callable[[grpc.Server], None], workers: int = 64) -> None:
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix=name)
        self._server = grpc.server(self._pool, options=[("grpc.max_receive_message_length", MESSAGE_LIMIT_BYTES)])
        add(self._server)
        self._bound = staging / f".k{os.getpid():x}-{next(_serial):x}"
        check_length(self._bound)
        self._server.add_insecure_port("unix:" + quote(str(self._bound)))
        self._server.start()

    def publish_by_link(self, path: Path) -> None:
        """Make the socket appear at `path`, where nothing lies: watchers see a Create event (S5).

        May be called again after the file was removed: the new one has the same inode number.
        """
        check_length(path)
        os.link(self._bound, path)

    def publish_by_rename(self, path: Path) -> None:
        """Put the socket in the place of whatever lies at `path`, atomically (P1)."""
        check_length(path)
        os.rename(self._bound, path)

    def stop(self) -> None:
        """End the server and its threads at once; the published file stays."""
        self._server.stop(None).wait()
        self._pool.shutdown(wait=True)
        self._bound.unlink(missing_ok=True)


def check_length(path: Path) -> None:
    """Raise ValueError when `path` is too long for a unix socket."""
    if len(os.fsencode(path)) > PATH_LIMIT_BYTES:
        raise ValueError(f"{path}: a unix socket's path has at most {PATH_LIMIT_BYTES} bytes")


def remove_sockets(directory: Path) -> None:
    """Remove every socket directly in `directory`, symlinks to sockets included; all else survives (S2)."""
    for entry in list(os.scandir(directory)):
        try:
            is_socket = stat.S_ISSOCK(entry.stat().st_mode)
        except FileNotFoundError:  # a dangling symlink
            continue
        if is_socket:
            os.unlink(entry.path)
