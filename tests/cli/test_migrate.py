"""`migrate`: the worst first, the cure with it, and an exit status by severity."""

from pathlib import Path

import pytest

from deviceplugin.cli.main import main

SHARED = "version: v1\nsharing:\n  timeSlicing:\n    resources: [{name: nvidia.com/gpu, replicas: 4}]\n"
PARTLY = SHARED.replace("replicas: 4", "devices: [1], replicas: 4")


def migrate(tmp_path: Path, values: str, config: str | None = None) -> int:
    (tmp_path / "values.yaml").write_text(values)
    words = ["migrate", str(tmp_path / "values.yaml")]
    if config is not None:
        (tmp_path / "config.yaml").write_text(config)
        words.append(str(tmp_path / "config.yaml"))
    return main(words)


@pytest.mark.parametrize(
    ("values", "config", "status"),
    [
        ("nodeSelector: {a: b}\n", None, 0),
        ("nodeSelector: {a: b}\n", SHARED, 0),
        ("{}\n", PARTLY, 3),
        ("image: {tag: v0.20.0}\n", SHARED, 3),
        ("gfd: {enabled: true}\n", SHARED, 4),
        ("deviceDiscoveryStrategy: tegra\n", None, 4),
        ("{}\n", "version: v1\nflags: {renameByDefault: true}\n", 4),
        ("{}\n", "version: v2\n", 4),
        ("config: {map: {a: 'version: v2'}}\n", None, 4),
        ("- no values\n", None, 1),
    ],
)
def test_the_exit_status_goes_by_the_worst(tmp_path: Path, values: str, config: str | None, status: int) -> None:
    assert migrate(tmp_path, values, config) == status


def test_the_worst_comes_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    migrate(tmp_path, "gfd: {enabled: true}\nnodeSelector: {a: b}\n", PARTLY)
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if not line.startswith(" ")] == [
        "Refused: must be changed first:",
        "Changes its meaning:",
        "Stays as it is:",
    ]
    assert "  config.yaml:4: sharing.timeSlicing.resources[0].devices: NVIDIA's plugin ignores it" in "\n".join(lines)


def test_a_key_has_one_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    migrate(tmp_path, "deviceDiscoveryStrategy: tegra\n")
    said = capsys.readouterr().out
    assert said.count("deviceDiscoveryStrategy") == 1
    assert "not offer" in said


def test_a_misplaced_key_is_told_where_it_belongs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Reports A2: NVIDIA's plugin ignores it without a word."""
    migrate(tmp_path, "{}\n", "version: v1\nflags: {renameByDefault: true}\n")
    assert "did you mean sharing." in capsys.readouterr().out


def test_nothing_set_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert migrate(tmp_path, "{}\n") == 0
    assert "Nothing is set" in capsys.readouterr().out
