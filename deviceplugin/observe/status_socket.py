"""The status document on a unix socket: whoever connects gets one JSON document, then the end of the stream.

Nothing is read from a client, so nothing a client sends can do harm; the socket's mode keeps others out.
"""

import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from deviceplugin.errors import DevicePluginError
from deviceplugin.observe.local_socket import LocalSocket, connect

Document = dict[str, Any]

MAX_DOCUMENT_BYTES = 64 * 1024 * 1024


class StatusUnavailable(DevicePluginError):
    """No running plugin answers on the status socket. The catcher says so; `plan` goes on without a comparison."""


class StatusSocket(LocalSocket):
    """Serves the document. One thread; a slow client delays only other clients.

    Args:
        path: the socket, as for LocalSocket.
        document: called for each client, from the socket's thread.
    """

    def __init__(self, path: Path, document: Callable[[], Document]) -> None:
        super().__init__(path, self._answer)
        self._document = document

    def _answer(self, client: socket.socket) -> None:
        client.sendall(json.dumps(self._document()).encode())


def read_status(path: Path, timeout_s: float = 5.0) -> Document:
    """Ask a running plugin for its status.

    Raises:
        StatusUnavailable: with what was tried and what to do.
    """
    chunks = []
    size = 0
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            connect(client, path, timeout_s)
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
