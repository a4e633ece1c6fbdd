"""`migrate` on values of the wrong type: each is an error that names the key, what was found and what was expected."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from deviceplugin.cli.main import main
from deviceplugin.config.chart_values import read_chart_values
from deviceplugin.config.chart_verdicts import Fate
from deviceplugin.config.load import parse_config, settings_in
from deviceplugin.errors import ConfigError
from deviceplugin.planning.migration import ConfigFile, of_both

TEXT, FLAG, NUMBER, LIST, MAP = "text", "flag", "number", "list", "map"
SAMPLES: dict[str, list[Any]] = {
    TEXT: ["", "x", "true", "5"],
    FLAG: [True, False],
    NUMBER: [0, 5, 1.5],
    LIST: [[], [1], [[]], [{}], [{"a": "b"}]],
    MAP: [{}, {"a": "b"}, {"a": [1]}],
}
TERM = "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
REQUIREMENT = f"{TERM}.0.matchExpressions.0"
# Every key of NVIDIA's values.yaml (0.20.0) by what may stand there; a number is the first item of a list.
KEYS = {
    (MAP,): f"""
        config config.map image devicePlugin gfd gfd.securityContext nfd nfd.master nfd.worker mps cdi updateStrategy
        updateStrategy.rollingUpdate podAnnotations podSecurityContext securityContext nodeSelector
        selectorLabelsOverride resources resources.limits resources.requests affinity affinity.nodeAffinity
        imagePullSecrets.0 tolerations.0 {TERM}.0 {REQUIREMENT}""",
    (TEXT,): f"""
        config.name config.default config.map.default image.repository image.pullPolicy image.tag namespace nameOverride
        fullnameOverride namespaceOverride migStrategy deviceIDStrategy nvidiaDriverRoot nvidiaDevRoot
        deviceDiscoveryStrategy priorityClassName runtimeClassName mps.root cdi.nvidiaHookPath updateStrategy.type
        podAnnotations.a nodeSelector.a selectorLabelsOverride.a imagePullSecrets.0.name tolerations.0.key
        tolerations.0.operator tolerations.0.effect gfd.nameOverride gfd.namespaceOverride gfd.sleepInterval
        nfd.nameOverride {REQUIREMENT}.key {REQUIREMENT}.operator {REQUIREMENT}.values.0""",
    (FLAG,): """
        compatWithCPUManager failOnInitError gdrcopyEnabled gdsEnabled mofedEnabled devicePlugin.enabled
        devicePlugin.enableHostNetwork mps.enableHostPID mps.enableHostNetwork allowDefaultNamespace gfd.enabled
        gfd.noTimestamp gfd.enableHostNetwork nfd.enabled""",
    (LIST,): f"""
        config.fallbackStrategies imagePullSecrets tolerations resources.claims {TERM} {TERM}.0.matchExpressions
        {REQUIREMENT}.values""",
    (TEXT, LIST): "deviceListStrategy cdi.featureFlags",
    (TEXT, NUMBER): "resources.limits.memory resources.requests.cpu",
}
PATHS = [path for paths in KEYS.values() for path in paths.split()]
WRONG = [
    (path, value)
    for right, paths in KEYS.items()
    for path in paths.split()
    for kind in SAMPLES.keys() - set(right)
    for value in SAMPLES[kind]
]


def below(path: str, value: Any) -> Any:
    """Values in which only this path is set."""
    for step in reversed(path.split(".")):
        value = [value] if step == "0" else {step: value}
    return value


@pytest.mark.parametrize(("path", "value"), sorted(WRONG, key=str))
def test_a_wrong_type_is_an_error_with_key_found_and_expected(path: str, value: Any) -> None:
    judged = read_chart_values(json.dumps(below(path, value)).encode(), "v.yaml")
    (refused,) = [one for one in judged.verdicts if one.fate is Fate.REFUSED]
    line = f"{refused.key}: {refused.text}"
    assert line.startswith(f"v.yaml:1: {path.partition('.')[0]}")
    steps = [step for step in path.split(".") if step != "0"]
    assert all(step in line.partition(" found ")[0] for step in steps)
    assert "found " in line
    assert "expected " in line


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "memory", "default", "name"]), inner)
    ),
    max_leaves=5,
)


def merged(one: Any, other: Any) -> Any:
    """As Helm merges values: mappings by key, all else by the latter."""
    if not (isinstance(one, dict) and isinstance(other, dict)):
        return other
    return {
        key: merged(one[key], other[key]) if key in one and key in other else (one | other)[key] for key in one | other
    }


FILES = [
    b"",
    b"version: v1\n",
    b"version: v1\nflags: {migStrategy: mixed}\nsharing: {mps: {resources: [{name: gpu, replicas: 2}]}}\n",
]
# What rules look at together.
TOGETHER = [
    "config.map",
    "config.default",
    "config.name",
    "config.fallbackStrategies",
    "securityContext",
    "migStrategy",
]


@settings(max_examples=4000, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from([*PATHS, *TOGETHER * 10, "x", "config.x"]), PLAIN), max_size=6),
    st.sampled_from(FILES),
)
@example([("config.map", [1]), ("config.default", "b")], b"")
@example([("config.map", {"a": ""}), ("config.fallbackStrategies", 5)], b"")
@example([("securityContext", {"capabilities": [1]})], FILES[-1])
@example([("securityContext", {"capabilities": {"add": [[]]}})], FILES[-1])
@example([("securityContext", {"capabilities": {"add": 5}})], FILES[-1])
@example([("config.name", "a\x1b"), ("config.default", "b\x1b"), ("namespaceOverride", "c\x1b")], b"")
@example([("config.map", {"a\x1b": "", "b": ""}), ("config.default", "b\x1b")], b"")
@example([("updateStrategy.rollingUpdate", {"maxSurge": "1\x1b"})], b"")
@example([(f"{REQUIREMENT}.key", "nvidia.com/gpu.\x1b"), ("gfd.enabled", True)], b"")
@example([("x\x1b", 1), ("gfd.x\x1b", 1), ("gfd.y", 1)], b"")
def test_whatever_stands_there_there_is_an_answer(values: list[tuple[str, Any]], file: bytes) -> None:
    whole: dict[str, Any] = {}
    for path, value in values:
        whole = merged(whole, below(path, value))
    with suppress(ConfigError):
        judged = read_chart_values(json.dumps(whole, allow_nan=False).encode(), "v.yaml")
        config = parse_config(file, "c.yaml" if file else None, judged.overrides)
        with_file = ConfigFile("c.yaml", config, settings_in(file, "c.yaml")) if file else None
        for one in (*judged.verdicts, *of_both(judged, with_file, config)):
            assert one.text
            assert f"{one.key}: {one.text}".isprintable(), "a line for people"


@pytest.mark.parametrize("values", ["config: []\n", "resources: {limits: {memory: [1]}}\n", "gfd: {enabled: 0}\n"])
def test_the_command_says_so_and_ends_with_4(tmp_path: Path, capsys: pytest.CaptureFixture[str], values: str) -> None:
    (tmp_path / "values.yaml").write_text(values)
    assert main(["migrate", str(tmp_path / "values.yaml")]) == 4
    assert "expected" in capsys.readouterr().out
