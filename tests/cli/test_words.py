"""Parts of the text that more than one command prints."""

import sys
from pathlib import Path

import pytest

from deviceplugin.cli.words import MOST_IDS_NAMED, holders, program


def test_who_holds_what() -> None:
    pods = {"a": "default/p", "b": "other/q", "d": "default/p"}
    assert holders(("a", "b", "c", "d"), pods) == "default/p holds a, d; other/q holds b; a pod not listed yet holds c"
    many = [str(number) for number in range(MOST_IDS_NAMED + 2)]
    assert holders(many, dict.fromkeys(many, "default/p")).endswith(f", {MOST_IDS_NAMED - 1} and 2 more")


@pytest.mark.parametrize("started", [".venv/bin/gpu-device-plugin", "/opt/not on path/gpu-device-plugin"])
def test_a_program_off_the_path_is_named_as_it_was_started(started: str) -> None:
    assert program(started) == (f"'{started}'" if " " in started else started)


def test_a_program_on_the_path_is_named_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "gpu-device-plugin"
    script.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert program(str(script)) == "gpu-device-plugin"


def test_a_module_is_named_as_one() -> None:
    assert program("/checkout/deviceplugin/cli/main.py") == f"{sys.executable} -m deviceplugin.cli.main"
