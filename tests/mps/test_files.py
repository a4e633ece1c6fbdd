"""What the supervisor keeps on disk: directories, records, logs."""

import logging
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from deviceplugin.errors import MpsError
from deviceplugin.model.computemode import ComputeMode
from deviceplugin.model.mps import MpsDaemon, MpsShare
from deviceplugin.mps import record
from deviceplugin.mps.directories import SHARED, clear_stale, first_closed, prepare
from deviceplugin.mps.logs import LARGEST_BYTES, MOST_LINES, LogFollower
from deviceplugin.mps.paths import DaemonPaths, owned, shm

UUID = "GPU-00000000-0000-4000-8000-000000000000"
DAEMON = MpsDaemon("nvidia.com/gpu", UUID, 3, MpsShare(3840, 25, True, "/run/nvidia/mps"))


@pytest.fixture
def root() -> Iterator[Path]:
    # Short, since a unix socket's path has 107 bytes.
    with tempfile.TemporaryDirectory(prefix="dp-") as directory:
        Path(directory).chmod(0o755)
        yield Path(directory, "mps")


def test_directories_are_made_for_every_user(root: Path) -> None:
    paths = DaemonPaths(root, "nvidia.com/gpu", UUID)
    prepare(paths)
    prepare(paths)
    assert first_closed(paths.pipe) is None
    assert paths.log.is_dir()
    assert stat.S_IMODE(shm(root).stat().st_mode) == SHARED


def test_the_outermost_closed_parent_is_named(root: Path) -> None:  # reports F5
    paths = DaemonPaths(root, "nvidia.com/gpu", UUID)
    prepare(paths)
    (root / "nvidia.com").chmod(0o700)
    paths.directory.chmod(0o700)
    with pytest.raises(MpsError, match=rf"{root}/nvidia\.com can't be entered by others \(mode 0700\)"):
        prepare(paths)


def test_what_cannot_be_made_is_named(root: Path) -> None:
    root.write_text("in the way")
    with pytest.raises(MpsError, match=rf"{root}/nvidia\.com/gpu/{UUID}/pipe can't be made: Not a directory"):
        prepare(DaemonPaths(root, "nvidia.com/gpu", UUID))


def test_stale_files_go(root: Path) -> None:
    paths = DaemonPaths(root, "nvidia.com/gpu", UUID)
    clear_stale(paths)
    prepare(paths)
    for name in ("control", "control_lock", "nvidia-cuda-mps-control.pid"):
        (paths.pipe / name).touch()
    clear_stale(paths)
    assert list(paths.pipe.iterdir()) == []


def test_a_record_comes_back_as_it_was(root: Path) -> None:
    assert record.read(root, UUID) is None
    assert owned(root) == frozenset()
    kept = record.Record(ComputeMode.PROHIBITED, DAEMON, 4711, 99)
    record.write(root, kept)
    assert record.read(root, UUID) == kept
    assert owned(root) == {UUID}
    record.remove(root, UUID)
    record.remove(root, UUID)
    assert owned(root) == frozenset()


@pytest.mark.parametrize("text", ["", "{}", '{"previous_mode": 1, "daemon": {}}', "[1]"])
def test_a_record_that_says_nothing_is_an_error_that_says_what_to_do(root: Path, text: str) -> None:
    record.write(root, record.Record(ComputeMode.DEFAULT, DAEMON))
    (root / ".supervisor" / "compute-mode" / UUID).write_text(text)
    with pytest.raises(MpsError, match="set the mode with nvidia-smi -c, then remove the file"):
        record.read(root, UUID)


def test_logs_are_followed_from_now_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    control = tmp_path / "control.log"
    control.write_text("of yesterday\n")
    heard: list[str] = []
    follower = LogFollower(tmp_path, "GPU 3 (nvidia.com/gpu)", heard.extend)
    follower.look()
    with control.open("a") as file:
        file.write("one\ntwo\n")
    (tmp_path / "server.log").write_text("active\n")
    follower.look()
    follower.look()
    assert caplog.messages == [
        "GPU 3 (nvidia.com/gpu): control.log: one",
        "GPU 3 (nvidia.com/gpu): control.log: two",
        "GPU 3 (nvidia.com/gpu): server.log: active",
    ]
    assert heard == ["of yesterday", "one", "two"]


def test_a_chatty_daemon_fills_neither_the_node_nor_our_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    control = tmp_path / "control.log"
    with control.open("a", buffering=1) as file:
        follower = LogFollower(tmp_path, "GPU 3", lambda _: None)
        for _ in range(3):
            file.write(("x" * 63 + "\n") * (LARGEST_BYTES // 64 + 1))
            follower.look()
            assert control.stat().st_size == 0
        file.write("after\n")
        follower.look()
    assert caplog.messages[-1] == "GPU 3: control.log: after"
    assert len(caplog.messages) == 3 * (MOST_LINES + 1) + 1
