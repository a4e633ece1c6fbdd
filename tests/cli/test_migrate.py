"""`migrate`: the worst first, the cure with it, and an exit status by severity."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from deviceplugin.cli.main import main

SHARED = "version: v1\nsharing:\n  timeSlicing:\n    resources: [{name: nvidia.com/gpu, replicas: 4}]\n"
PARTLY = SHARED.replace("replicas: 4", "devices: [1], replicas: 4")
MPS = SHARED.replace("timeSlicing", "mps")
READY = "image: {repository: mine/gpu-device-plugin}\nfailOnInitError: true\n"
"""What is said of every file that does not set it."""
BY_NAME = f"{READY}config: {{name: plugin, default: a.yaml}}\n"


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
        (READY, None, 0),
        (f"{READY}nodeSelector: {{a: b}}\n", SHARED, 0),
        ("failOnInitError: true\n", None, 3),
        ("image: {repository: mine}\n", None, 3),
        ("", None, 3),
        (READY, PARTLY, 3),
        (BY_NAME, None, 3),
        (BY_NAME, SHARED, 3),
        (f"{READY}image: {{tag: v0.20.0}}\n".replace("image: {repository: mine/gpu-device-plugin}\n", ""), SHARED, 3),
        (f"{READY}gfd: {{enabled: true}}\n", None, 4),
        (f"{READY}deviceDiscoveryStrategy: tegra\n", None, 4),
        (READY, "version: v1\nflags: {renameByDefault: true}\n", 4),
        (READY, "version: v2\n", 4),
        (f"{READY}config: {{map: {{a: 'version: v2'}}}}\n", None, 4),
        (BY_NAME, MPS, 4),
        ("- no values\n", None, 1),
        ("version: v1\nsharing: {}\n", None, 1),
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
        "What is not set has our default: docs/install.md, With Helm, lists those that differ.",
    ]
    said = "\n".join(lines)
    assert "  config.yaml:4: sharing.timeSlicing.resources[0].devices: NVIDIA's plugin ignores it" in said
    assert "here it takes effect: the shares are nvidia.com/gpu.shared, and the other nvidia.com/gpu stay whole" in said
    assert "  values.yaml:2: nodeSelector: same key" in said


def test_a_key_has_one_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    migrate(tmp_path, f"{BY_NAME}deviceDiscoveryStrategy: tegra\n")
    said = capsys.readouterr().out
    assert said.count("deviceDiscoveryStrategy") == 1
    assert "not offer" in said
    assert said.count(" config.name: ") == 1


def test_a_misplaced_key_is_told_where_it_belongs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Reports A2: NVIDIA's plugin ignores it without a word."""
    migrate(tmp_path, "{}\n", "version: v1\nflags: {renameByDefault: true}\n")
    assert "did you mean sharing." in capsys.readouterr().out


SAYS_TRUE = "version: v1\nflags: {failOnInitError: true}\n"


@pytest.mark.parametrize(
    ("values", "config", "said"),
    [
        ("", None, "under NVIDIA's chart it is true then, and"),
        ("failOnInitError: null\n", None, "under NVIDIA's chart it is true then, and"),
        ("", SHARED, "under NVIDIA's chart it is true then, and"),
        ("config: {name: c, default: k}\n", None, "true then, unless the file of config.name says false, and"),
        ("config: {name: c, default: k}\n", SAYS_TRUE, "config.yaml says true; our chart can't look into config.name"),
        ("config: {name: c, default: k}\n", SAYS_TRUE.replace("true", "false"), None),
        ("", SAYS_TRUE, None),
        ("config: {map: {a: 'flags: {failOnInitError: true}\n\n  version: v1'}}\n", None, None),
        ("failOnInitError: false\n", None, None),
    ],
)
def test_a_failed_start_is_another_matter_where_nobody_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], values: str, config: str | None, said: str | None
) -> None:
    """The one default of NVIDIA's chart that ours turns (issue 7): told unless values or a file that it sees set it."""
    migrate(tmp_path, values, config)
    out = capsys.readouterr().out
    found = [line for line in out.splitlines() if " failOnInitError: not set" in line]
    assert len(found) == (said is not None)
    if said is not None:
        assert said in found[0]
        assert "set failOnInitError: true to keep that" in found[0]


BAD = "version: v1\nflags: {migStrategi: none}\nsharing: {timeSlicing: {resources: [{name: a/b, replicas: '4'}]}}\n"


def test_every_mistake_of_a_file_is_told_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As `validate` tells them: what NVIDIA's plugin ignores, and what it refuses as well."""
    assert migrate(tmp_path, READY, BAD) == 4
    said = capsys.readouterr().out
    assert "config.yaml:2: flags.migStrategi: found an unknown key" in said
    assert "config.yaml:3: sharing.timeSlicing.resources[0].replicas: found " in said
    assert "config.yaml: what else becomes of it is told when this is mended" in said
    assert migrate(tmp_path, READY, BAD.replace("'4'", "4")) == 4
    said = capsys.readouterr().out
    assert "set configStrictness: lenient meanwhile" in said
    assert "every other key: same key" in said


def test_what_only_warns_is_no_refusal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert migrate(tmp_path, READY, PARTLY.replace("[1]", "[1, 1]")) == 3
    assert "a second time" in capsys.readouterr().out


def test_values_in_place_of_the_config_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert migrate(tmp_path, READY, READY) == 4
    said = capsys.readouterr().out
    assert "config.yaml:1: found the values of a chart, expected a config file: give them first" in said
    assert "unknown key" not in said


def test_a_shell_may_give_a_pipe(tmp_path: Path) -> None:
    (tmp_path / "v").write_text(READY)
    (tmp_path / "c").write_text(SHARED)
    script = f"{sys.executable} -m deviceplugin.cli.main migrate <(cat {tmp_path}/v) <(cat {tmp_path}/c)"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(r"^  /dev/fd/\d+:1: image.repository: same key", done.stdout, re.MULTILINE)


def test_without_the_drivers_root_cdi_gives_no_libraries(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert migrate(tmp_path, f"{READY}deviceListStrategy: cdi-cri\n") == 3
    assert "nvidiaDriverRoot: not set" in capsys.readouterr().out
    assert migrate(tmp_path, f"{READY}deviceListStrategy: cdi-cri\nnvidiaDriverRoot: /\n") == 0


def test_mps_is_told_of_with_what_must_be_done_before(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    migrate(tmp_path, f"{READY}resources: {{limits: {{memory: 1Gi}}}}\n", MPS)
    said = capsys.readouterr().out
    assert "containers with unshared GPUs too; here only containers with MPS shares get them" in said
    assert "drain the nodes of pods on MPS shares" in said
    assert "<release>-nvidia-device-plugin-mps-control-daemon" in said
    assert "mps.shmSize: not set" in said
    assert "resources: not the MPS control daemon's any more" in said
    migrate(tmp_path, f"{READY}resources: {{limits: {{memory: 1Gi}}}}\nmps: {{resources: {{limits: {{}}}}}}\n", MPS)
    assert "any more" not in capsys.readouterr().out
    migrate(tmp_path, f"{READY}resources: {{limits: {{memory: 1Gi}}}}\n", SHARED)
    assert "mps" not in capsys.readouterr().out.lower()


def test_the_flags_that_values_set_count_for_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    migrate(tmp_path, f"{READY}migStrategy: mixed\n", MPS)
    assert "it refuses MPS with migStrategy mixed" in capsys.readouterr().out


def test_where_the_file_is_to_be_had_from(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    migrate(tmp_path, BY_NAME)
    command = "get configmap plugin --output jsonpath='{.data.a\\.yaml}' > config.yaml"
    assert f"kubectl --namespace NAMESPACE {command}" in capsys.readouterr().out
    migrate(tmp_path, f"{BY_NAME}namespaceOverride: gpu\n")
    assert f"kubectl --namespace gpu {command}" in capsys.readouterr().out
    migrate(tmp_path, BY_NAME, SHARED)
    said = capsys.readouterr().out
    assert "kubectl get nodes -L nvidia.com/device-plugin.config" in said
    assert command not in said


def test_either_file_is_read_from_standard_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`helm get values ... | gpu-device-plugin migrate -`."""
    (tmp_path / "values.yaml").write_text(READY)

    def piped(text: str, *words: str) -> tuple[int, str]:
        command = [sys.executable, "-m", "deviceplugin.cli.main", "migrate", *words]
        ended = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60, check=False)
        return ended.returncode, ended.stdout

    assert piped(f"{READY}gfd: {{enabled: true}}\n", "-")[0] == 4
    status, said = piped(MPS, str(tmp_path / "values.yaml"), "-")
    assert status == 3
    assert "standard input:3: sharing.mps" in said
    assert main(["migrate", "-", "-"]) == 2
    assert "found - for both" in capsys.readouterr().err


def test_a_file_that_is_missing_is_no_matter_of_config_maps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["migrate", str(tmp_path / "none.yaml")]) == 1
    said = capsys.readouterr().err
    assert "expected the values file of NVIDIA's chart, or - for standard input: check the path" in said
    assert "ConfigMap" not in said
