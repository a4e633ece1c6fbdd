"""A unix socket for the owner of the process only: taken with care, served by one thread, given back."""

import contextlib
import logging
import os
import socket
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path

from deviceplugin.errors import SocketConflictError

log = logging.getLogger(__name__)

# A client that does not read or write gets this long; the next one waits meanwhile.
CLIENT_TIMEOUT_S = 2.0
# How often a client asks again whether there is room in the queue of those who wait.
_FULL_QUEUE_PAUSE_S = 0.01


class LocalSocket:
    """Answers one client after the other.

    Args:
        path: the socket; its directory is made if missing. A dead socket there is replaced, a live one never.
        answer: called for each client, from the socket's thread; may raise OSError. The client is hung up on after it.
    """

    def __init__(self, path: Path, answer: Callable[[socket.socket], None]) -> None:
        self._path = path
        self._answer_client = answer
        self._listener: socket.socket | None = None
        self._identity: tuple[int, int] | None = None

    def bind(self) -> None:
        """Take the path.

        Raises:
            SocketConflictError: another process answers there, or something that is no socket lies there.
            OSError: the directory can't be made or written.
        """
        self._path.parent.mkdir(parents=True, exist_ok=True)
        if self._path.is_symlink() or self._path.exists():
            if not stat.S_ISSOCK(os.lstat(self._path).st_mode):
                raise SocketConflictError(f"{self._path} is not a socket; remove it or choose another --status-socket")
            if _answers(self._path):
                raise SocketConflictError(
                    f"another process answers on {self._path}: is a second plugin running? "
                    "Choose another --status-socket"
                )
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        # Bound under a name of our own, then renamed: nobody meets a socket that does not answer or is too open.
        temporary = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
        try:
            listener.bind(str(temporary))
            os.chmod(temporary, 0o600)
            listener.listen(8)
            os.rename(temporary, self._path)
        except OSError:
            listener.close()
            raise
        made = os.lstat(self._path)
        self._identity = made.st_dev, made.st_ino
        self._listener = listener

    def serve(self) -> None:
        """Answer clients until close(); the body of a thread."""
        listener = self._listener
        if listener is None:
            return
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                if self._listener is None:
                    return
                # Out of descriptors: the client gives up, the next one may do better.
                log.warning("%s: cannot accept a client", self._path, exc_info=True)
                threading.Event().wait(0.5)
                continue
            with client:
                client.settimeout(CLIENT_TIMEOUT_S)
                try:
                    self._answer_client(client)
                except OSError:
                    log.debug("%s: a client left before it was answered", self._path)

    def close(self) -> None:
        """Stop serving and remove the socket if it still is ours."""
        listener, self._listener = self._listener, None
        if listener is not None:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        with contextlib.suppress(OSError):
            found = os.lstat(self._path)
            if (found.st_dev, found.st_ino) == self._identity:
                self._path.unlink()


def connect(client: socket.socket, path: Path, timeout_s: float) -> None:
    """Connect to the unix socket at `path`, and give each step that follows `timeout_s` as well.

    With a timeout Python makes the socket non-blocking, and then Linux refuses (EAGAIN, connect(2)) where a blocking
    one would wait: when as many clients wait already as the listener lets queue. That is no answer about the listener.

    Raises:
        TimeoutError: the queue was full for all of `timeout_s`.
        OSError: nobody listens there, or we may not.
    """
    deadline = time.monotonic() + timeout_s
    client.settimeout(timeout_s)
    while True:
        try:
            return client.connect(str(path))
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise TimeoutError(f"as many clients as may wait were waiting for {timeout_s:g} s") from None
        time.sleep(_FULL_QUEUE_PAUSE_S)


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(CLIENT_TIMEOUT_S)
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:
            return True
        return True
