"""Every way of changing the config file is noticed, a burst is one reload, the same content is none (issue, item 7)."""

import itertools
import os
import queue
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from deviceplugin.app import config_feed
from deviceplugin.app.config_feed import ConfigFeed
from deviceplugin.app.events import FileRead
from deviceplugin.app.files import lookups
from deviceplugin.config.load import read_config_file
from deviceplugin.errors import ConfigError


class Watched:
    """A feed on one file, and what it posted."""

    def __init__(
        self, path: Path, read: Callable[[str], bytes] = read_config_file, *, slow_look_s: float = 60.0
    ) -> None:
        self.path = path
        self.posted: queue.SimpleQueue[FileRead] = queue.SimpleQueue()
        self.count = 0
        self.deaths: list[BaseException] = []
        self.feed = ConfigFeed(
            str(path),
            read,
            self._take,
            monotonic=time.monotonic,
            on_death=lambda _, error: self.deaths.append(error),
            # It would notice as well, a little later: these tests are about being told.
            slow_look_s=slow_look_s,
        )
        self.feed.start(path.read_bytes(), None)

    def _take(self, event: FileRead) -> None:
        self.count += 1
        self.posted.put(event)

    def next(self) -> FileRead:
        return self.posted.get(timeout=5)

    def expect(self, text: str) -> None:
        """The next posts end at this content; an in-between state of several steps may come first."""
        deadline = time.monotonic() + 5
        while True:
            event = self.posted.get(timeout=max(0.01, deadline - time.monotonic()))
            if event.data == text.encode():
                return

    def expect_quiet(self) -> None:
        with pytest.raises(queue.Empty):
            self.posted.get(timeout=0.5)


@pytest.fixture
def mounted(tmp_path: Path) -> Path:
    """A ConfigMap volume as the kubelet lays it out; returns the file in it."""
    volume = tmp_path / "volume"
    _publish(volume, "first")
    os.symlink("..data/config.yaml", volume / "config.yaml")
    return volume / "config.yaml"


def _publish(volume: Path, text: str) -> None:
    """What the kubelet's atomic writer does: a new directory, and the `..data` link renamed to it."""
    volume.mkdir(exist_ok=True)
    stamp = volume / f"..{time.monotonic_ns()}"
    stamp.mkdir()
    (stamp / "config.yaml").write_text(text)
    old = os.readlink(volume / "..data") if (volume / "..data").is_symlink() else None
    os.symlink(stamp.name, volume / "..data_tmp")
    os.rename(volume / "..data_tmp", volume / "..data")
    if old:
        shutil.rmtree(volume / old)


@pytest.fixture
def watch() -> Iterator[Callable[[Path], Watched]]:
    made: list[Watched] = []

    def make(path: Path) -> Watched:
        made.append(Watched(path))
        return made[-1]

    yield make
    for item in made:
        item.feed.stop()
        assert not item.deaths


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    directory = tmp_path / "config"
    directory.mkdir()
    (directory / "config.yaml").write_text("first")
    return directory / "config.yaml"


def test_configmap_swap(mounted: Path, watch: Callable[[Path], Watched]) -> None:
    watched = watch(mounted)
    for text in ("second", "third", "fourth"):
        _publish(mounted.parent, text)
        watched.expect(text)


def test_write_in_place(plain: Path, watch: Callable[[Path], Watched]) -> None:
    watched = watch(plain)
    plain.write_text("second")
    watched.expect("second")
    plain.write_text("thirds")
    watched.expect("thirds")


def test_write_and_rename(plain: Path, watch: Callable[[Path], Watched]) -> None:
    watched = watch(plain)
    for text in ("second", "third"):
        temporary = plain.with_suffix(".tmp")
        temporary.write_text(text)
        temporary.rename(plain)
        watched.expect(text)


def test_editor_backup_dance(plain: Path, watch: Callable[[Path], Watched]) -> None:
    watched = watch(plain)
    plain.rename(plain.with_name("config.yaml~"))
    plain.write_text("second")
    watched.expect("second")


def test_deleted_and_back(plain: Path, watch: Callable[[Path], Watched]) -> None:
    watched = watch(plain)
    plain.unlink()
    gone = watched.next()
    assert gone.data is None
    assert gone.problem is not None
    assert str(plain) in str(gone.problem)
    plain.write_text("second")
    watched.expect("second")


def test_directory_replaced(plain: Path, watch: Callable[[Path], Watched]) -> None:
    watched = watch(plain)
    for text in ("second", "third"):
        new = plain.parent.with_name("new")
        new.mkdir()
        (new / "config.yaml").write_text(text)
        plain.parent.rename(plain.parent.with_name(f"old-{text}"))
        new.rename(plain.parent)
        watched.expect(text)
    plain.write_text("fourth")
    watched.expect("fourth")


def test_link_to_another_directory(tmp_path: Path, watch: Callable[[Path], Watched]) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.yaml").write_text(name)
    os.symlink("a", tmp_path / "current")
    watched = watch(tmp_path / "current" / "config.yaml")
    os.symlink("b", tmp_path / "next")
    os.rename(tmp_path / "next", tmp_path / "current")
    watched.expect("b")
    (tmp_path / "b" / "config.yaml").write_text("b, edited")
    watched.expect("b, edited")


def test_same_content_is_not_posted(plain: Path, watch: Callable[[Path], Watched]) -> None:
    watched = watch(plain)
    plain.write_text("first")
    os.utime(plain)
    watched.expect_quiet()
    plain.write_text("second")
    watched.expect("second")


def test_burst_is_one_reload(plain: Path, watch: Callable[[Path], Watched]) -> None:
    watched = watch(plain)
    plain.write_text("second")
    watched.expect("second")
    for number in range(100):
        temporary = plain.with_suffix(".tmp")
        temporary.write_text(f"burst {number}")
        temporary.rename(plain)
    watched.expect("burst 99")
    assert watched.posted.qsize() == 0


def test_force_posts_the_same_content(plain: Path, watch: Callable[[Path], Watched]) -> None:
    watched = watch(plain)
    watched.feed.force()
    assert watched.next().data == b"first"


def test_a_force_at_any_moment_of_a_look_is_heard(plain: Path) -> None:
    """SIGHUP comes on another thread, between any two instructions of a look: this look posts, or the one after it."""
    posted: list[FileRead] = []
    feed = ConfigFeed(
        str(plain), read_config_file, posted.append, monotonic=time.monotonic, on_death=lambda _, error: None
    )
    feed._look()
    instructions, force_at = 0, -1

    def step(frame: FrameType, event: str, _: object) -> Any:
        nonlocal instructions
        frame.f_trace_opcodes = True
        if event == "opcode":
            if instructions == force_at:
                feed.force()
            instructions += 1
        return step

    def look() -> None:
        nonlocal instructions
        instructions, before = 0, sys.gettrace()
        sys.settrace(lambda frame, *_: step if frame.f_code is ConfigFeed._look.__code__ else None)
        try:
            feed._look()
        finally:
            sys.settrace(before)

    look()
    whole = instructions
    assert whole > 20
    for force_at in range(whole):
        posted.clear()
        look()
        feed._look()
        assert posted, f"lost before instruction {force_at} of {whole}"
        feed._look()


def test_links_that_are_turned_without_end_do_not_keep_the_file_from_being_read(mounted: Path) -> None:
    """Whenever the feed looks where the path leads, it leads elsewhere than the moment before."""
    turns, turning = itertools.count(), threading.Lock()

    def turn(frame: FrameType, *_: object) -> None:
        if frame.f_code is lookups.__code__ and turning.acquire(blocking=False):
            _publish(mounted.parent, str(next(turns)))
            turning.release()

    threading.settrace(turn)
    try:
        watched = Watched(mounted)
    finally:
        threading.settrace(None)
    assert len({watched.next().data for _ in range(3)}) == 3
    with turning:
        _publish(mounted.parent, "in the end")
        watched.expect("in the end")
    watched.feed.stop()
    assert not watched.deaths


def test_a_read_that_fails_is_tried_again_without_any_change(plain: Path) -> None:
    """Out of descriptors, or a network file system that comes back: the file itself never changed."""
    recovered = threading.Event()

    def read(path: str) -> bytes:
        if not recovered.is_set() and plain.read_text() != "first":
            raise ConfigError((f"{path}: Too many open files",))
        return read_config_file(path)

    watched = Watched(plain, read, slow_look_s=0.05)
    plain.write_text("second")
    assert watched.next().data is None
    watched.expect_quiet()
    recovered.set()
    watched.expect("second")
    watched.feed.stop()
    assert not watched.deaths


def test_a_storm_of_forced_reads_is_bounded_by_the_debounce(plain: Path, watch: Callable[[Path], Watched]) -> None:
    """SIGHUPs a thousand times a second are some reads a second, and the last one counts."""
    watched = watch(plain)
    began = time.monotonic()
    while time.monotonic() < began + 1.0:
        watched.feed.force()
        time.sleep(0.001)
    plain.write_text("after the storm")
    watched.feed.force()
    watched.expect("after the storm")
    assert watched.count <= 2 + (time.monotonic() - began) / config_feed.AT_MOST_S


def test_stop_ends_every_thread(plain: Path, watch: Callable[[Path], Watched]) -> None:
    before = threading.active_count()
    watched = watch(plain)
    plain.write_text("second")
    watched.expect("second")
    watched.feed.stop()
    deadline = time.monotonic() + 5
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() <= before
