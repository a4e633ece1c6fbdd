"""What the supervisor says for people comes back as it was, and nothing else does."""

import json
import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from deviceplugin.mps.state import MOST_BYTES, MOST_CHARACTERS, STALE_S, ClientState, KeeperState, read, read_all, write

SAID = KeeperState(
    daemon="GPU 3 (nvidia.com/gpu.mps)",
    pid=4711,
    since="2026-05-31T23:48:25Z",
    limits="3840M and 25 % of the threads for each process",
    serves=True,
    restarts=2,
    problem="waits",
    waiting=(ClientState(0, 1000, "2026-05-31T23:48:30Z"),),
    advice="wait",
)


def test_it_comes_back_as_it_was(tmp_path: Path) -> None:
    write(tmp_path / "state" / "GPU-3", SAID)
    assert read(tmp_path / "state" / "GPU-3") == SAID
    assert [one for _, one in read_all(tmp_path / "state", {}).values()] == [SAID]
    assert read_all(tmp_path / "nowhere", {}) == {}


def test_a_file_is_read_again_only_when_it_has_changed(tmp_path: Path) -> None:
    write(tmp_path / "GPU-3", SAID)
    known = read_all(tmp_path, {})
    marked = {name: (changed, replace(said, advice="known")) for name, (changed, said) in known.items()}
    assert read_all(tmp_path, marked) == marked
    os.utime(tmp_path / "GPU-3")
    assert read_all(tmp_path, marked)["GPU-3"][1] == SAID


def test_what_nobody_renews_is_no_news(tmp_path: Path) -> None:
    write(tmp_path / "GPU-3", SAID)
    then = (tmp_path / "GPU-3").stat().st_mtime - STALE_S - 1
    os.utime(tmp_path / "GPU-3", (then, then))
    assert read_all(tmp_path, {}) == {}


BAD: list[tuple[str, Any]] = [
    ("pid", -1),
    ("pid", True),
    ("pid", "1"),
    ("pid", 1 << 40),
    ("daemon", 7),
    ("problem", None),
    ("waiting", 3),
    ("waiting", [{"pid": 1}]),
    ("waiting", [7]),
]


@pytest.mark.parametrize(("key", "value"), BAD)
def test_what_is_no_state_is_not_shown(tmp_path: Path, key: str, value: object) -> None:
    (tmp_path / "GPU-3").write_text(json.dumps(asdict(SAID) | {key: value}))
    assert read(tmp_path / "GPU-3") is None


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"\xff\xfe", b"[" * 10000, b" " * (MOST_BYTES + 1), b"null"])
def test_nor_is_what_cannot_be_read(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "GPU-3").write_bytes(data)
    assert read(tmp_path / "GPU-3") is None


def test_nor_a_link_a_pipe_or_a_directory(tmp_path: Path) -> None:
    write(tmp_path / "real", SAID)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "directory").mkdir()
    assert [read(tmp_path / name) for name in ("link", "pipe", "directory")] == [None] * 3
    assert read_all(tmp_path, {}).keys() == {"real"}


def test_texts_are_cut_and_cannot_fake_lines(tmp_path: Path) -> None:
    write(tmp_path / "GPU-3", replace(SAID, problem="a\nb\x1b[2J" + "x" * 5000))
    said = read(tmp_path / "GPU-3")
    assert said is not None
    assert said.problem.startswith("a b [2J")
    assert len(said.problem) == MOST_CHARACTERS
