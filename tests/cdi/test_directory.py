"""The files: whole, current, and never gone while somebody may need them."""

import logging
import os
import threading
from pathlib import Path

import pytest

from deviceplugin.cdi.directory import CdiDirectory
from deviceplugin.model.cdi import CdiSpec, file_name

GPU, GDS = CdiSpec("gpu", '{"a": 1}\n'), CdiSpec("gds", '{"b": 2}\n')


def names(path: Path) -> list[str]:
    return sorted(one.name for one in path.iterdir())


def test_files_are_written_readable_for_all_in_a_directory_that_is_made(tmp_path: Path) -> None:
    path = tmp_path / "run/cdi"
    previous = os.umask(0o077)
    try:
        assert CdiDirectory(path).ensure([GPU, GDS]) == ""
    finally:
        os.umask(previous)
    assert names(path) == ["k8s.device-plugin.nvidia.com-gds.json", "k8s.device-plugin.nvidia.com-gpu.json"]
    file = path / file_name("gpu")
    assert (file.read_text(), file.stat().st_mode & 0o777) == (GPU.text, 0o644)


def test_a_file_that_is_right_is_left_alone_also_by_the_next_process(tmp_path: Path) -> None:
    CdiDirectory(tmp_path).ensure([GPU])
    before = (tmp_path / file_name("gpu")).stat()
    again = CdiDirectory(tmp_path)
    assert again.ensure([GPU]) == ""
    assert again.ensure([GPU]) == ""
    assert (tmp_path / file_name("gpu")).stat() == before


def test_a_change_replaces_the_file_as_a_whole(tmp_path: Path) -> None:
    """A reader that has the old file open still reads all of it."""
    directory = CdiDirectory(tmp_path)
    directory.ensure([GPU])
    with (tmp_path / file_name("gpu")).open() as reader:
        directory.ensure([CdiSpec("gpu", "{}\n")])
        assert reader.read() == GPU.text
    assert (tmp_path / file_name("gpu")).read_text() == "{}\n"
    assert names(tmp_path) == [file_name("gpu")]


def test_a_reader_never_sees_half_a_file(tmp_path: Path) -> None:
    directory = CdiDirectory(tmp_path)
    texts = [letter * 200_000 for letter in "ab"]
    directory.ensure([CdiSpec("gpu", texts[0])])
    seen: set[str] = set()
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            seen.add((tmp_path / file_name("gpu")).read_text())

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for number in range(40):
            directory.ensure([CdiSpec("gpu", texts[number % 2])])
    finally:
        stop.set()
        reader.join()
    assert seen <= set(texts)


def test_only_files_of_ours_go_and_only_when_nobody_can_hold_a_name(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    others = ["nvidia.yaml", "k8s.device-plugin.nvidia.com-other.json"]
    for name in others:
        (tmp_path / name).write_text("")
    directory = CdiDirectory(tmp_path)
    directory.ensure([GPU, GDS])
    assert directory.ensure([GPU]) == ""
    assert len(names(tmp_path)) == 4
    with caplog.at_level(logging.INFO):
        directory.remove_others()
    assert names(tmp_path) == sorted([file_name("gpu"), *others])
    assert "gds.json" in caplog.text
    assert directory.intact()


def test_nothing_wanted_and_no_directory_is_fine_and_makes_none(tmp_path: Path) -> None:
    directory = CdiDirectory(tmp_path / "absent")
    assert directory.ensure([]) == ""
    directory.remove_others()
    assert directory.intact()
    assert not (tmp_path / "absent").exists()


@pytest.mark.parametrize("meddle", [Path.unlink, lambda path: path.write_text("{}"), lambda path: path.write_text("")])
def test_meddling_is_seen_and_undone(tmp_path: Path, meddle: object) -> None:
    assert callable(meddle)
    directory = CdiDirectory(tmp_path)
    directory.ensure([GPU])
    assert directory.intact()
    meddle(tmp_path / file_name("gpu"))
    assert not directory.intact()
    assert directory.ensure([GPU]) == ""
    assert (tmp_path / file_name("gpu")).read_text() == GPU.text
    assert directory.intact()


def test_a_place_that_cannot_be_written_is_a_reason_and_may_become_one_that_can(tmp_path: Path) -> None:
    place = tmp_path / "cdi"
    place.write_text("a file where the directory should be")
    directory = CdiDirectory(place)
    problem = directory.ensure([GPU])
    assert str(place) in problem
    assert "must be written" in problem
    place.unlink()
    assert directory.ensure([GPU]) == ""


def test_a_directory_in_place_of_the_file_is_a_reason_and_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / file_name("gpu")).mkdir()
    assert "directory" in CdiDirectory(tmp_path).ensure([GPU]).lower()
    assert names(tmp_path) == [file_name("gpu")]


def test_a_planted_link_is_not_written_through(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / f".{file_name('gpu')}.new").symlink_to(victim)
    directory = CdiDirectory(tmp_path)
    assert "symbolic link" in directory.ensure([GPU])
    assert directory.ensure([GPU]) == "", "the link is gone by then"
    assert victim.read_text() == "precious"


def test_what_cannot_be_removed_is_said_once_and_is_no_problem_of_those_that_are_wanted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A stale file of NVIDIA's plugin on a mount that is read-only, say, where no strategy uses CDI."""
    (tmp_path / file_name("gds")).mkdir()
    directory = CdiDirectory(tmp_path)
    for _ in range(3):
        assert directory.ensure([GPU]) == ""
        directory.remove_others()
    assert directory.intact()
    assert [record.message.split(":")[0] for record in caplog.records] == [
        "CDI specification kept, though nobody can hold a name in it"
    ]
    (tmp_path / file_name("gds")).rmdir()
    (tmp_path / file_name("gds")).write_text("{}")
    assert directory.ensure([GPU]) == ""
    directory.remove_others()
    assert names(tmp_path) == [file_name("gpu")]


def test_a_file_that_nobody_would_write_again_is_not_missed(tmp_path: Path) -> None:
    directory = CdiDirectory(tmp_path)
    directory.ensure([GPU, GDS])
    directory.ensure([GPU])
    (tmp_path / file_name("gds")).unlink()
    assert directory.intact()


def test_a_link_in_place_of_the_file_is_replaced_and_what_it_leads_to_is_left_alone(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / file_name("gpu")).symlink_to(victim)
    assert CdiDirectory(tmp_path).ensure([GPU]) == ""
    assert victim.read_text() == "precious"
    assert not (tmp_path / file_name("gpu")).is_symlink()
