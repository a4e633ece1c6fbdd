"""What README.md shows works: its config, the files it names, the commands it tells."""

import re
from pathlib import Path

import pytest

from deviceplugin.cli.main import COMMANDS
from deviceplugin.config.load import parse_config

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


@pytest.mark.parametrize("text", re.findall(r"```yaml\n(.*?)```", README, re.DOTALL))
def test_every_config_in_it_is_good(text: str) -> None:
    assert parse_config(text.encode(), "README.md").warnings == ()


@pytest.mark.parametrize("target", sorted(set(re.findall(r"\]\(([^)#]+)\)", README))))
def test_every_link_into_the_repository_leads_somewhere(target: str) -> None:
    if not target.startswith("http"):
        assert (ROOT / target).exists()


def test_every_command_in_it_exists() -> None:
    told = set(re.findall(r"gpu-device-plugin ([a-z]+)", README))
    assert told <= set(COMMANDS)
    assert set(COMMANDS) - {"version"} <= told


def test_every_make_target_in_it_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"(?:`|^)make ([a-z-]+)", README, re.MULTILINE)) <= targets


@pytest.mark.parametrize("path", sorted(set(re.findall(r"(?:config|deploy)/[\w./-]+\.ya?ml", README))))
def test_every_file_in_it_exists(path: str) -> None:
    assert (ROOT / path).is_file()
