"""The guides: links lead somewhere, commands and values exist, and what is not offered is said."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deviceplugin.cli.main import COMMANDS
from deviceplugin.config.notoffered import words_not_offered
from deviceplugin.config.options import PLUGIN_SETTINGS
from tests.deploy.chart import CHART
from tests.project import ROOT
from tests.project.guides import anchors

GUIDES = {path.name: path.read_text() for path in (ROOT / "docs").glob("*.md") if path.name != "kubelet-contract.md"}
SCHEMA = json.loads((CHART / "values.schema.json").read_text())


def paths(schema: dict[str, Any], path: str = "") -> Iterator[str]:
    for key, value in schema["properties"].items():
        yield f"{path}{key}"
        if "properties" in value:
            yield from paths(value, f"{path}{key}.")


def test_there_are_guides() -> None:
    assert {"install.md", "migration.md", "configuration.md", "troubleshooting.md", "limits.md"} <= GUIDES.keys()


@pytest.mark.parametrize("name", GUIDES)
def test_links_lead_somewhere(name: str) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", GUIDES[name]):
        if re.match(r"https?://", link):
            continue
        file, _, anchor = link.partition("#")
        target = ROOT / "docs" / (file or name)
        assert target.exists(), link
        if anchor:
            assert anchor in anchors(target.read_text()), link


@pytest.mark.parametrize("name", GUIDES)
def test_commands_and_files_exist(name: str) -> None:
    text = GUIDES[name]
    assert set(re.findall(r"gpu-device-plugin (\w+)(?= |`|$)", text, re.MULTILINE)) <= {*COMMANDS, "in"}
    for path in re.findall(r"(?<![\w/.])(?:deploy|config)/[\w./-]*\w", text):
        assert (ROOT / path).exists() or Path(path).suffix == "", path
    targets = (ROOT / "Makefile").read_text()
    for target in re.findall(r"`make ([\w-]+)", text):
        assert f"\n{target}:" in targets, target


@pytest.mark.parametrize("name", ["install.md", "migration.md", "troubleshooting.md", "limits.md"])
def test_values_exist(name: str) -> None:
    known = set(paths(SCHEMA))
    sections = {path.partition(".")[0] for path in known if "." in path} - {"image", "config", "resources"}
    named = {
        word
        for word in re.findall(r"`([a-z]\w*\.[a-z]\w*)(?::[^`]*)?`", GUIDES[name], re.IGNORECASE)
        if word.partition(".")[0] in sections
    }
    assert named <= known


@pytest.mark.parametrize("setting", [setting.id for setting in PLUGIN_SETTINGS])
def test_what_is_not_offered_is_said(setting: str) -> None:
    assert [word for word in words_not_offered(setting) if word not in GUIDES["limits.md"]] == []
