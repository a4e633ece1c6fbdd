"""What goes into the repository: text that reads the same everywhere and names no machine."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.project import ROOT

MAX_FILE_BYTES = 1 << 20
# Left by tools; only looked at where git cannot say what is tracked (an unpacked archive).
UNTRACKED = {".git", ".venv", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis", "__pycache__", "build"}
# Package indexes and their settings: a lock or Makefile that names one works only where that one is reached.
INDEX = re.compile(
    r"(?:pypi|pythonhosted)\.org|--(?:extra-)?index-url|--find-links|--trusted-host|PIP_(?:INDEX_URL|FIND_LINKS)"
)
HOME_FOLDER = re.compile(r"(?<![\w.>}])/(?:(?:home|Users)/[a-z][\w.-]*|root)/")


def tracked_files() -> list[Path]:
    """Every file under version control, as a path relative to the root."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode == 0:
        paths = [Path(name) for name in listed.stdout.split("\0") if name]
    else:
        paths = [path.relative_to(ROOT) for path in ROOT.rglob("*")]
        paths = [path for path in paths if not UNTRACKED & set(path.parts)]
    return sorted(path for path in paths if (ROOT / path).is_file())


FILES = tracked_files()
TEXTS = {path: (ROOT / path).read_bytes().decode("utf-8", "replace") for path in FILES}


def lines_with(pattern: re.Pattern[str]) -> list[str]:
    return [
        f"{path}:{number}: {line.strip()[:100]}"
        for path, text in TEXTS.items()
        for number, line in enumerate(text.splitlines(), 1)
        if pattern.search(line) and path != Path(__file__).relative_to(ROOT)
    ]


def test_there_is_something_to_look_at() -> None:
    assert Path("pyproject.toml") in FILES


def test_no_file_names_a_machine() -> None:
    here = {ROOT, Path(sys.base_prefix)} - {Path("/usr/local")}
    telling = [str(place) for place in here if len(place.parts) > 2]  # `/src` or `/usr` stands in many a text
    assert [line for place in telling for line in lines_with(re.compile(re.escape(place) + r"\b"))] == []
    assert lines_with(HOME_FOLDER) == []


def test_no_file_names_a_package_index() -> None:
    assert lines_with(INDEX) == []


@pytest.mark.parametrize("line", ["/home/someone/x", "cd /root/x", "/Users/someone/x", "at (/home/a/b.py:1)"])
def test_home_folders_are_seen(line: str) -> None:
    assert HOME_FOLDER.search(line)


@pytest.mark.parametrize(
    "line", ["/driver-root/x", "tests/home/a/b", "/var/lib/kubelet", "<mpsRoot>/root/", "/rootfs/"]
)
def test_other_paths_are_not(line: str) -> None:
    assert not HOME_FOLDER.search(line)


def test_files_are_small_utf8_text() -> None:
    large = [str(path) for path in FILES if (ROOT / path).stat().st_size > MAX_FILE_BYTES]
    binary = [str(path) for path, text in TEXTS.items() if "\0" in text or "\ufffd" in text]
    assert (large, binary) == ([], []), "make such input in the test that needs it"


def test_no_merge_is_left_open() -> None:
    assert lines_with(re.compile(r"^(?:<{7}|>{7}) ")) == []


def test_text_ends_in_one_newline() -> None:
    ours = {
        path: text for path, text in TEXTS.items() if path.suffix in {".py", ".md", ".toml", ".yml", ".yaml", ".lock"}
    }
    ours = {path: text for path, text in ours.items() if path.parts[:2] != ("tests", "golden")}
    wrong = [str(path) for path, text in ours.items() if text and (not text.endswith("\n") or text.endswith("\n\n"))]
    assert [name for name in wrong if "stubs" not in name] == []


def test_shipped_yaml_has_no_tabs() -> None:
    shipped = [path for path in FILES if path.parts[0] in {"config", "deploy"} and path.suffix in {".yml", ".yaml"}]
    assert [str(path) for path in shipped if "\t" in TEXTS[path]] == []


def test_what_has_a_shebang_is_executable() -> None:
    shebang = {path for path, text in TEXTS.items() if text.startswith("#!")}
    executable = {path for path in FILES if (ROOT / path).stat().st_mode & 0o111}
    assert shebang == executable
