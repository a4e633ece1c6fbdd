"""A config file that the chart can't look into: with what `migrate` names, it gets the rights of one in the values."""

import re
from typing import Any

import pytest

from deviceplugin.config.chart_values import read_chart_values
from deviceplugin.config.chart_verdicts import Fate, Verdict
from deviceplugin.config.document import dump_document
from deviceplugin.config.load import parse_config, settings_in
from deviceplugin.planning.migration import ConfigFile, of_both
from tests.deploy.chart import Values, refusal, render
from tests.deploy.test_words import values_of

FLAGS = "version: v1\nflags: {%s}\n"
FILES = {
    "plain": "version: v1\n",
    "time-slicing": "version: v1\nsharing: {timeSlicing: {resources: [{name: gpu, replicas: 2}]}}\n",
    "mps": "version: v1\nsharing: {mps: {resources: [{name: gpu, replicas: 2}]}}\n",
    "single": FLAGS % "migStrategy: single",
    "mixed": FLAGS % "migStrategy: mixed",
    "cdi": FLAGS % "plugin: {deviceListStrategy: [envvar, cdi-annotations]}",
    "cdi-cri": FLAGS % "plugin: {deviceListStrategy: cdi-cri}",
    "volume-mounts": FLAGS % "plugin: {deviceListStrategy: volume-mounts}",
    "strict": FLAGS % "failOnInitError: true",
    "lax": FLAGS % "failOnInitError: false",
    "all": FLAGS % "migStrategy: mixed, failOnInitError: true, plugin: {deviceListStrategy: [volume-mounts, cdi-cri]}"
    + "sharing: {mps: {resources: [{name: gpu, replicas: 2}]}}\n",
}


def named_for(values: Values, text: str) -> list[Verdict]:
    """What `migrate` says of values and file together."""
    judged = read_chart_values(dump_document(values).encode(), "v.yaml")
    config = parse_config(text.encode(), "c.yaml", judged.overrides)
    return list(of_both(judged, ConfigFile("c.yaml", config, settings_in(text.encode(), "c.yaml")), config))


def merged(values: Values, path: str, value: object) -> Values:
    """Values with one more."""
    section, _, key = path.partition(".")
    return values | ({section: values.get(section, {}) | {key: value}} if key else values_of(path, value))


def rights(values: Values) -> dict[str, Any]:
    """What every pod may do and see of the node, but for the file itself; what decides how a failed start ends."""
    found: dict[str, Any] = {}
    for manifest in render(values):
        if manifest["kind"] != "DaemonSet":
            continue
        pod = manifest["spec"]["template"]["spec"]
        for container in pod["containers"]:
            env = {one["name"]: one.get("value") for one in container["env"]}
            found[f"{manifest['metadata']['name']}/{container['name']}"] = {
                "security": container["securityContext"],
                "mounts": container["volumeMounts"],
                "env": {name: value for name, value in env.items() if name.startswith("NVIDIA_")},
            }
        found[manifest["metadata"]["name"]] = [one for one in pod["volumes"] if one["name"] != "config"]
    return found


@pytest.mark.parametrize("name", FILES)
def test_a_file_by_name_has_the_rights_of_one_in_the_values(name: str) -> None:
    values: Values = {"config": {"name": "mine", "default": "k"}}
    for one in named_for(values, FILES[name]):
        if match := re.search(r"which needs (\S+): (\S+)$", one.text):
            assert one.fate is Fate.REFUSED
            values = merged(values, match[1], {"true": True}.get(match[2], match[2]))
    assert rights(values) == rights({"config": {"map": {"default": FILES[name]}}})
    assert [one for one in named_for(values, FILES[name]) if one.fate is Fate.REFUSED] == []


@pytest.mark.parametrize("name", ["plain", "time-slicing", "strict", "lax"])
def test_one_that_needs_nothing_is_left_alone(name: str) -> None:
    found = named_for({"config": {"name": "mine", "default": "k"}}, FILES[name])
    assert [one for one in found if one.fate is Fate.REFUSED] == []


@pytest.mark.parametrize(("name", "value"), [("mps", "mps.enabled"), ("cdi", "cdi.enabled")])
def test_a_right_that_is_denied_is_named_wherever_the_file_is(name: str, value: str) -> None:
    for source in ({"map": {"default": FILES[name]}}, {"name": "mine", "default": "k"}):
        found = named_for(merged({"config": source}, value, value=False), FILES[name])
        assert [(one.key.partition(": ")[2], one.text) for one in found if one.fate is Fate.REFUSED] == [
            (value, found[[one.fate for one in found].index(Fate.REFUSED)].text)
        ]
        assert f"needs {value}: true" in " ".join(one.text for one in found)


def test_mig_without_the_right_is_a_choice() -> None:
    """CDI may give the container the MIG management devices (values.yaml, privileges.mig)."""
    values = {"config": {"name": "mine", "default": "k"}, "privileges": {"mig": False}}
    assert [one for one in named_for(values, FILES["mixed"]) if one.fate is Fate.REFUSED] == []


@pytest.mark.parametrize("key", ["securityContext", "mps.securityContext"])
def test_a_security_context_without_what_mig_needs_is_refused_by_both(key: str) -> None:
    context = {"capabilities": {"drop": ["ALL"]}}
    values = merged({"config": {"map": {"default": FILES["mixed"]}}}, key, context)
    found = named_for(values, FILES["mixed"])
    assert [one.key.partition(": ")[2] for one in found if one.fate is Fate.REFUSED] == [key]
    assert f"{key}: found " in refusal(values)
    for enough in ({"privileged": True}, {"capabilities": {"add": ["SYS_ADMIN"]}}):
        fine = merged({"config": {"map": {"default": FILES["mixed"]}}}, key, enough)
        assert [one for one in named_for(fine, FILES["mixed"]) if one.fate is Fate.REFUSED] == []
        assert render(fine)


def test_what_values_say_themselves_the_chart_sees() -> None:
    values = {"config": {"name": "mine", "default": "k"}, "migStrategy": "mixed", "deviceListStrategy": "cdi-cri"}
    assert [one for one in named_for(values, FILES["plain"]) if one.fate is Fate.REFUSED] == []
