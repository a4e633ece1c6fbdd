"""Which directory entries decide what a path leads to."""

import os
from pathlib import Path

from deviceplugin.app.files import lookups, signature


def test_plain_file(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "f").write_text("")
    assert lookups(tmp_path / "d" / "f") == {str(tmp_path): frozenset({"d"}), str(tmp_path / "d"): frozenset({"f"})}


def test_missing_file_is_looked_up_all_the_same(tmp_path: Path) -> None:
    assert lookups(tmp_path / "f")[str(tmp_path)] == frozenset({"f"})


def test_configmap_links_are_followed(tmp_path: Path) -> None:
    (tmp_path / "v" / "..1").mkdir(parents=True)
    (tmp_path / "v" / "..1" / "f").write_text("")
    os.symlink("..1", tmp_path / "v" / "..data")
    os.symlink("..data/f", tmp_path / "v" / "f")
    found = lookups(tmp_path / "v" / "f")
    assert found[str(tmp_path / "v")] == frozenset({"f", "..data", "..1"})
    assert found[str(tmp_path / "v" / "..1")] == frozenset({"f"})


def test_links_in_a_circle_end(tmp_path: Path) -> None:
    os.symlink("b", tmp_path / "a")
    os.symlink("a", tmp_path / "b")
    assert lookups(tmp_path / "a")[str(tmp_path)] >= {"a", "b"}


def test_a_path_that_cannot_be_looked_at_ends_there() -> None:
    """As one below a directory that this process may not search; the name here is longer than any may be."""
    assert lookups(Path("/") / ("x" * 300) / "f")["/"] == frozenset({"x" * 300})


def test_signature_tells_a_replaced_file_with_the_same_content(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_text("x")
    before = signature([file, tmp_path / "missing"])
    assert before[1] is None
    file.rename(tmp_path / "old")
    file.write_text("x")
    assert signature([file, tmp_path / "missing"]) != before
