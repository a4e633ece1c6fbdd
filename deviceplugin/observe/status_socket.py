"""The status document on a unix socket: whoever connects gets one JSON document, then the end of the stream.

Nothing is read from a client, so nothing a client sends can do harm; the socket's mode keeps others out.
"""

import contextlib
import json
import logging
import os
import socket
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from deviceplugin.errors import DevicePluginError, SocketConflictError

log = logging.getLogger(__name__)

Document = dict[str, Any]

# A client that does not read gets this long; the next one waits meanwhile.
CLIENT_TIMEOUT_S = 2.0
MAX_DOCUMENT_BYTES = 64 * 1024 * 1024


class StatusUnavailable(DevicePluginError):
    """No running plugin answers on the status socket. The catcher says so; `plan` goes on without a comparison."""


class StatusSocket:
    """Serves the document. One thread; a slow client delays only other clients.

    Args:
        path: the socket; its directory is made if missing. A dead socket there is replaced, a live one never.
        document: called for each client, from the socket's thread.
    """

    def __init__(self, path: Path, document: Callable[[], Document]) -> None:
        self._path = path
        self._document = document
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
                log.warning("status socket: cannot accept a client", exc_info=True)
                threading.Event().wait(0.5)
                continue
            with client:
                self._answer(client)

    def _answer(self, client: socket.socket) -> None:
        client.settimeout(CLIENT_TIMEOUT_S)
        try:
            client.sendall(json.dumps(self._document()).encode())
        except OSError:
            log.debug("status socket: a client left before it had read the document")

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


def read_status(path: Path, timeout_s: float = 5.0) -> Document:
    """Ask a running plugin for its status.

    Raises:
        StatusUnavailable: with what was tried and what to do.
    """
    chunks = []
    size = 0
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.settimeout(timeout_s)
            client.connect(str(path))
            while chunk := client.recv(65536):
                chunks.append(chunk)
                size += len(chunk)
                if size > MAX_DOCUMENT_BYTES:
                    raise StatusUnavailable(
                        f"{path} sent more than {MAX_DOCUMENT_BYTES} bytes; it is not our status socket"
                    )
        document = json.loads(b"".join(chunks))
    except OSError as error:
        raise StatusUnavailable(
            f"no running plugin answers on {path} ({error.strerror or error}); "
            f"is it running, and does it use this --status-socket?"
        ) from error
    except ValueError as error:
        raise StatusUnavailable(f"{path} answered something that is not a status document ({error})") from error
    if not isinstance(document, dict) or "version" not in document:
        raise StatusUnavailable(f"{path} answered something that is not a status document (no version)")
    return document
