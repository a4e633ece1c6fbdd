"""Names of sockets, and that nobody's is lost: not ours, not a foreign one, dead or alive."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest

from deviceplugin.errors import KubeletError, SocketConflictError
from deviceplugin.kubelet.endpoint import Endpoint
from deviceplugin.kubelet.socket_file import (
    NAMES_BESIDE,
    TEMPORARY_PREFIX,
    DirectoryBusyError,
    SocketFile,
    directory_lock,
    socket_names,
)
from deviceplugin.kubelet.unix import MAX_PATH_BYTES, answers, identity
from tests.kubelet.node import eventually

GPU = "nvidia.com/gpu"
NO_SERVICE = grpc.method_handlers_generic_handler("none", {})


@pytest.fixture
def opened() -> Iterator[list[Endpoint]]:
    """Endpoints to be stopped at the end."""
    endpoints: list[Endpoint] = []
    yield endpoints
    for endpoint in endpoints:
        endpoint.stop(0.0)
        assert endpoint.stopped(5.0)


@pytest.fixture
def sockets() -> Iterator[list[socket.socket]]:
    """Plain sockets to be closed at the end."""
    made: list[socket.socket] = []
    yield made
    for one in made:
        one.close()


def listening(path: Path, sockets: list[socket.socket]) -> socket.socket:
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sockets.append(server)
    server.bind(os.fspath(path))
    server.listen()
    return server


def dead(path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(os.fspath(path))


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


@pytest.mark.parametrize(
    ("resource", "name"),
    [
        (GPU, "nvidia-gpu.sock"),
        ("nvidia.com/mig-1g.10gb", "nvidia-mig-1g.10gb.sock"),
        ("nvidia.com/gpu.shared", "nvidia-gpu.shared.sock"),
        ("example.com/gpu", "nvidia-example.com_gpu.sock"),
    ],
)
def test_names_are_nvidias_and_other_domains_are_in_them(resource: str, name: str) -> None:
    directory = Path("/var/lib/kubelet/device-plugins")
    first, second, *rest = socket_names(directory, resource)
    assert first == name
    assert second == name.replace(".sock", "~2.sock")
    assert len(rest) == NAMES_BESIDE - 2


def test_a_name_too_long_for_the_path_is_hashed() -> None:
    directory = Path("/" + "d" * 70)
    long, same, other = (next(socket_names(directory, f"x.org/{'n' * 50}{end}")) for end in ("a", "a", "b"))
    assert long == same != other
    assert long.startswith("nvidia-")
    assert all(
        len(os.fsencode(directory / name)) <= MAX_PATH_BYTES for name in socket_names(directory, "x.org/" + "n" * 63)
    )


def test_a_directory_that_leaves_no_room_is_named() -> None:
    with pytest.raises(KubeletError, match=r"too long.*--kubelet-socket"):
        next(socket_names(Path("/" + "d" * 100), GPU))


def test_the_socket_is_served_under_its_name_alone(root: Path, opened: list[Endpoint]) -> None:
    opened.append(Endpoint.open(root, GPU, NO_SERVICE))
    assert names(root) == {"nvidia-gpu.sock"}
    assert stat.S_ISSOCK(os.stat(opened[0].path).st_mode)
    assert answers(opened[0].path)
    assert opened[0].in_place
    opened[0].stop(0.0)
    assert opened[0].stopped(5.0)
    assert names(root) == set()


def test_a_directory_with_strange_characters_in_its_path(root: Path, opened: list[Endpoint]) -> None:
    """gRPC takes addresses as URIs."""
    directory = root / "a b%20#?c"
    directory.mkdir()
    opened.append(Endpoint.open(directory, GPU, NO_SERVICE))
    assert names(directory) == {"nvidia-gpu.sock"}


def test_a_dead_socket_is_replaced(root: Path, opened: list[Endpoint]) -> None:
    dead(root / "nvidia-gpu.sock")
    opened.append(Endpoint.open(root, GPU, NO_SERVICE))
    assert opened[0].path == root / "nvidia-gpu.sock"
    assert opened[0].conflict is None
    assert names(root) == {"nvidia-gpu.sock"}


@pytest.mark.parametrize("kind", ["file", "directory", "link"])
def test_what_is_no_socket_is_left_alone(root: Path, opened: list[Endpoint], kind: str) -> None:
    path = root / "nvidia-gpu.sock"
    if kind == "file":
        path.write_text("mine")
    elif kind == "directory":
        path.mkdir()
    else:
        path.symlink_to(root / "nowhere")
    opened.append(Endpoint.open(root, GPU, NO_SERVICE))
    assert opened[0].path == root / "nvidia-gpu~2.sock"
    assert names(root) == {"nvidia-gpu.sock", "nvidia-gpu~2.sock"}


def test_a_live_foreign_socket_keeps_its_name(root: Path, opened: list[Endpoint], sockets: list[socket.socket]) -> None:
    foreign = root / "nvidia-gpu.sock"
    listening(foreign, sockets)
    was = identity(foreign)
    opened.append(Endpoint.open(root, GPU, NO_SERVICE))
    assert opened[0].path == root / "nvidia-gpu~2.sock"
    assert opened[0].conflict == foreign
    opened[0].stop(0.0)
    assert opened[0].stopped(5.0)
    assert identity(foreign) == was
    assert answers(foreign)
    assert names(root) == {"nvidia-gpu.sock"}


def test_the_better_name_is_taken_once_it_is_free(
    root: Path, opened: list[Endpoint], sockets: list[socket.socket]
) -> None:
    listening(root / "nvidia-gpu.sock", sockets)
    opened.append(Endpoint.open(root, GPU, NO_SERVICE))
    opened[0].improve()
    assert opened[0].path == root / "nvidia-gpu~2.sock"
    sockets.pop().close()
    opened[0].improve()
    assert (opened[0].path, opened[0].conflict) == (root / "nvidia-gpu.sock", None)
    assert opened[0].in_place
    assert names(root) == {"nvidia-gpu.sock"}


def test_no_name_left_is_a_conflict_and_leaves_nothing_behind(root: Path, sockets: list[socket.socket]) -> None:
    for name in socket_names(root, GPU):
        listening(root / name, sockets)
    before = names(root)
    with pytest.raises(SocketConflictError, match="stop the other device plugin"):
        Endpoint.open(root, GPU, NO_SERVICE)
    assert names(root) == before
    assert all(answers(root / name) for name in before)


def test_a_foreign_socket_that_took_our_name_outlives_us(
    root: Path, opened: list[Endpoint], sockets: list[socket.socket]
) -> None:
    """NVIDIA's plugin unlinks whatever lies at its name and binds there."""
    opened.append(Endpoint.open(root, GPU, NO_SERVICE))
    opened[0].path.unlink()
    listening(opened[0].path, sockets)
    assert not opened[0].in_place
    opened[0].stop(0.0)
    assert opened[0].stopped(5.0)
    assert answers(root / "nvidia-gpu.sock")


def test_a_socket_that_comes_in_between_is_put_back(root: Path, sockets: list[socket.socket]) -> None:
    """Ours is looked at, then replaced, then removed: what is removed must be what was looked at."""
    bound = root / f"{TEMPORARY_PREFIX}ours"
    listening(bound, sockets)
    file = SocketFile(bound)
    with directory_lock(root):
        file.place(GPU)
    file.path.unlink()
    listening(file.path, sockets)
    was = identity(file.path)
    file.remove()
    assert identity(file.path) == was
    assert answers(file.path)


def test_temporary_names_of_the_dead_are_cleaned_and_no_others(
    root: Path, opened: list[Endpoint], sockets: list[socket.socket]
) -> None:
    dead(root / f"{TEMPORARY_PREFIX}dead")
    listening(root / f"{TEMPORARY_PREFIX}live", sockets)
    dead(root / "foreign.sock")
    (root / f"{TEMPORARY_PREFIX}file").touch()
    opened.append(Endpoint.open(root, GPU, NO_SERVICE))
    expected = {"nvidia-gpu.sock", "foreign.sock", f"{TEMPORARY_PREFIX}live", f"{TEMPORARY_PREFIX}file"}
    assert names(root) == expected


@pytest.mark.parametrize(
    ("directory", "said"),
    [("/proc", "can't"), ("/dev/null", "Not a directory"), ("/none", "No such file"), ("long", "the path is too long")],
)
def test_the_same_trouble_is_said_in_the_same_words(root: Path, directory: str, said: str) -> None:
    """Every try has a temporary name of its own; a message that had it would be logged at each."""
    place = root / ("d" * 100) if directory == "long" else Path(directory)
    if directory == "long":
        place.mkdir()
    messages = set()
    for _ in range(2):
        with pytest.raises(KubeletError, match=said) as caught:
            Endpoint.open(place, GPU, NO_SERVICE)
        messages.add(str(caught.value))
    assert len(messages) == 1


def test_a_missing_directory_is_an_error_that_names_it(root: Path) -> None:
    with pytest.raises(KubeletError, match=rf"{root}/none: No such file"):
        Endpoint.open(root / "none", GPU, NO_SERVICE)


def test_a_busy_directory_is_never_waited_for(root: Path) -> None:
    with directory_lock(root), pytest.raises(DirectoryBusyError):
        Endpoint.open(root, GPU, NO_SERVICE)
    assert names(root) == set()


def test_of_many_that_start_at_the_same_time_each_has_a_socket_that_answers(root: Path, opened: list[Endpoint]) -> None:
    """flock excludes file descriptors, not processes, so threads stand in for processes here."""
    dead(root / "nvidia-gpu.sock")

    def start(_: int) -> Endpoint:
        made: list[Endpoint] = []

        def attempt() -> bool:
            try:
                made.append(Endpoint.open(root, GPU, NO_SERVICE))
            except DirectoryBusyError:
                return False
            return True

        eventually(attempt)
        return made[0]

    with ThreadPoolExecutor(6) as starters:
        opened.extend(starters.map(start, range(6)))
    assert len({endpoint.path for endpoint in opened}) == 6
    assert all(endpoint.in_place and answers(endpoint.path) for endpoint in opened)
    assert names(root) == {endpoint.path.name for endpoint in opened}
