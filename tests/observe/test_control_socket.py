"""The control socket: what it understands, what it refuses, and what a client can't break."""

import os
import socket
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from deviceplugin.observe.control_socket import (
    MAX_REQUEST_BYTES,
    Answer,
    ControlSocket,
    ControlUnavailable,
    ask,
    control_path,
)


class Asked:
    """A control socket that is served, and what it was asked."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.requests: list[str] = []
        self.socket = ControlSocket(path, self._release, self._take_up)

    def _release(self, seconds: float) -> Answer:
        self.requests.append(f"release {seconds:.0f}")
        return Answer(True, "done")

    def _take_up(self, was_reset: bool) -> Answer:
        self.requests.append(f"take-up {was_reset}")
        return Answer(False, "not released")


@pytest.fixture
def asked(tmp_path: Path) -> Iterator[Asked]:
    made = Asked(control_path(tmp_path / "status.sock"))
    made.socket.bind()
    thread = threading.Thread(target=made.socket.serve)
    thread.start()
    yield made
    made.socket.close()
    thread.join(5)
    assert not thread.is_alive()


def test_requests(asked: Asked) -> None:
    assert ask(asked.path, "release 600", 5) == Answer(True, "done")
    assert ask(asked.path, "take-up", 5) == Answer(False, "not released")
    ask(asked.path, "take-up reset", 5)
    assert asked.requests == ["release 600", "take-up False", "take-up True"]


@pytest.mark.parametrize(
    "request_",
    ["", "release", "release 0", "release -1", "release 1e3", "release 86401", "take-up now", "stop", "\xff"],
)
def test_what_is_no_request_is_refused_in_words(asked: Asked, request_: str) -> None:
    answer = ask(asked.path, request_, 5)
    assert not answer.ok
    assert "expected release SECONDS, take-up, or take-up reset" in answer.message
    assert asked.requests == []


def test_only_the_owner_may_ask(asked: Asked) -> None:
    assert stat.S_IMODE(os.lstat(asked.path).st_mode) == 0o600


def test_a_request_without_end_is_cut(asked: Asked) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(asked.path))
        client.sendall(b"x" * MAX_REQUEST_BYTES)
        assert b'"ok": false' in client.recv(4096)


def test_clients_that_say_nothing_or_leave_stop_nobody(asked: Asked) -> None:
    for _ in range(3):
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(asked.path))
    with socket.socket(socket.AF_UNIX) as silent:
        silent.connect(str(asked.path))
        assert ask(asked.path, "release 1", 10).ok


def test_no_plugin_and_no_answer_of_ours(tmp_path: Path) -> None:
    with pytest.raises(ControlUnavailable, match="no running plugin answers"):
        ask(tmp_path / "absent", "take-up", 1)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "other"))
        server.listen()

        def serve() -> None:
            client, _ = server.accept()
            client.recv(100)
            client.sendall(b"{}")
            client.close()

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(ControlUnavailable, match="no answer of ours"):
            ask(tmp_path / "other", "take-up", 5)
        thread.join(5)
