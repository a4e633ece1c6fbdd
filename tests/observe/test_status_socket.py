"""The status socket: who may take the path, who may read, and what a client can't break."""

import contextlib
import itertools
import os
import socket
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from deviceplugin.errors import SocketConflictError
from deviceplugin.observe.status_socket import StatusSocket, StatusUnavailable, read_status

Serve = Callable[[Path], StatusSocket]


@pytest.fixture
def serve() -> Iterator[Serve]:
    made: list[tuple[StatusSocket, threading.Thread]] = []

    def make(path: Path) -> StatusSocket:
        status = StatusSocket(path, lambda: {"version": 1, "answer": "yes"})
        status.bind()
        thread = threading.Thread(target=status.serve)
        thread.start()
        made.append((status, thread))
        return status

    yield make
    for status, thread in made:
        status.close()
        thread.join(5)
        assert not thread.is_alive()


def test_a_client_gets_the_document(tmp_path: Path, serve: Serve) -> None:
    serve(tmp_path / "sub" / "s")
    assert read_status(tmp_path / "sub" / "s")["answer"] == "yes"


def test_only_the_owner_may_read(tmp_path: Path, serve: Serve) -> None:
    serve(tmp_path / "s")
    assert stat.S_IMODE(os.lstat(tmp_path / "s").st_mode) == 0o600


def test_a_dead_socket_is_replaced(tmp_path: Path, serve: Serve) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "s"))
    serve(tmp_path / "s")
    assert read_status(tmp_path / "s")["answer"] == "yes"


def test_a_live_socket_is_never_taken(tmp_path: Path, serve: Serve) -> None:
    first = serve(tmp_path / "s")
    with pytest.raises(SocketConflictError, match="another process answers"):
        StatusSocket(tmp_path / "s", dict).bind()
    assert read_status(tmp_path / "s")["answer"] == "yes"
    assert first is not None


def test_a_file_is_never_taken(tmp_path: Path) -> None:
    (tmp_path / "s").write_text("precious")
    with pytest.raises(SocketConflictError, match="not a socket"):
        StatusSocket(tmp_path / "s", dict).bind()
    assert (tmp_path / "s").read_text() == "precious"


def test_close_leaves_the_socket_of_a_successor(tmp_path: Path, serve: Serve) -> None:
    first = serve(tmp_path / "s")
    (tmp_path / "s").unlink()
    serve(tmp_path / "s")
    first.close()
    assert read_status(tmp_path / "s")["answer"] == "yes"


def test_clients_that_leave_or_talk_do_no_harm(tmp_path: Path, serve: Serve) -> None:
    serve(tmp_path / "s")
    for _ in range(20):
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(tmp_path / "s"))
            with contextlib.suppress(BrokenPipeError):  # it may have been answered, and hung up on, already
                client.send(b"x" * 1000)
    assert read_status(tmp_path / "s")["answer"] == "yes"


@pytest.fixture
def full(tmp_path: Path) -> Iterator[tuple[socket.socket, int]]:
    """A listener at `tmp_path / "s"` that answers nobody, and how many clients wait: as many as it lets queue."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(str(tmp_path / "s"))
        listener.listen(1)
        for waiting in itertools.count():
            client = stack.enter_context(socket.socket(socket.AF_UNIX))
            client.setblocking(False)
            try:
                client.connect(str(tmp_path / "s"))
            except BlockingIOError:
                yield listener, waiting
                return


def test_a_client_waits_where_others_wait(tmp_path: Path, full: tuple[socket.socket, int]) -> None:
    listener, waiting = full
    answered: list[str] = []
    reader = threading.Thread(target=lambda: answered.append(read_status(tmp_path / "s", 30)["answer"]))
    reader.start()
    reader.join(0.1)
    assert reader.is_alive()
    listener.settimeout(30)
    for _ in range(waiting + 1):
        client, _ = listener.accept()
        with client:
            client.sendall(b'{"version": 1, "answer": "yes"}')
    reader.join(30)
    assert answered == ["yes"]


@pytest.mark.usefixtures("full")
def test_a_queue_that_stays_full_is_said(tmp_path: Path) -> None:
    with pytest.raises(StatusUnavailable, match=r"as many clients as may wait were waiting for 0\.1 s"):
        read_status(tmp_path / "s", 0.1)


def test_nobody_there_is_said_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(StatusUnavailable, match="--status-socket"):
        read_status(tmp_path / "s")


def test_something_else_there_is_said(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(tmp_path / "s"))
        other.listen()

        def answer() -> None:
            client, _ = other.accept()
            with client:
                client.sendall(b"SSH-2.0")

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(StatusUnavailable, match="not a status document"):
            read_status(tmp_path / "s")
        thread.join(5)
