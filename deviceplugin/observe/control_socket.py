"""The control socket: what an operator may ask of the running plugin, beside the status socket (decision 0403).

One line of ASCII words comes in, one JSON object goes out: `{"ok": ..., "message": ...}`. Nothing else is read:

    release SECONDS         let the driver go for so long
    take-up                 use it again
    take-up reset           the same, and every GPU has been reset meanwhile
"""

import json
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from deviceplugin.errors import DevicePluginError
from deviceplugin.observe.local_socket import LocalSocket, connect

MAX_REQUEST_BYTES = 64
MAX_ANSWER_BYTES = 64 * 1024
LONGEST_RELEASE_S = 24 * 3600


class ControlUnavailable(DevicePluginError):
    """No running plugin answers on the control socket. The catcher says so and ends with exit status 1."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of a request, in words."""

    ok: bool
    message: str


def control_path(status_socket: Path) -> Path:
    """Where the control socket of a plugin with this status socket is."""
    return status_socket.with_name(f"{status_socket.name}.control")


class ControlSocket(LocalSocket):
    """Takes requests.

    Args:
        path: the socket, as for LocalSocket.
        release: seconds -> what became of it. Called from the socket's thread, and may take some seconds.
        take_up: whether every GPU was reset -> what became of it.
    """

    def __init__(self, path: Path, release: Callable[[float], Answer], take_up: Callable[[bool], Answer]) -> None:
        super().__init__(path, self._serve_one)
        self._release = release
        self._take_up = take_up

    def _serve_one(self, client: socket.socket) -> None:
        request = b""
        while not request.endswith(b"\n") and len(request) < MAX_REQUEST_BYTES:
            if not (part := client.recv(MAX_REQUEST_BYTES - len(request))):
                break
            request += part
        answer = self.answer(request)
        client.sendall(json.dumps({"ok": answer.ok, "message": answer.message}).encode())

    def answer(self, request: bytes) -> Answer:
        """Do what a request says; whatever it says, an answer."""
        match request.decode("ascii", errors="replace").split():
            case ["release", seconds] if seconds.isdecimal() and 0 < int(seconds) <= LONGEST_RELEASE_S:
                return self._release(float(seconds))
            case ["take-up"]:
                return self._take_up(False)
            case ["take-up", "reset"]:
                return self._take_up(True)
        return Answer(False, f"found the request {request!r}, expected release SECONDS, take-up, or take-up reset")


def ask(path: Path, request: str, timeout_s: float) -> Answer:
    """Make a request of a running plugin.

    Raises:
        ControlUnavailable: with what was tried and what to do.
    """
    answer = b""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
            connect(server, path, timeout_s)
            server.sendall(f"{request}\n".encode())
            while len(answer) < MAX_ANSWER_BYTES and (part := server.recv(4096)):
                answer += part
        found = json.loads(answer)
        return Answer(bool(found["ok"]), str(found["message"]))
    except OSError as error:
        raise ControlUnavailable(
            f"no running plugin answers on {path} ({error.strerror or error}); is it running, does it use this "
            "--status-socket, and are you its user?"
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise ControlUnavailable(f"{path} answered something that is no answer of ours ({error})") from error
