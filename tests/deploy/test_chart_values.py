"""Values of NVIDIA's chart: what becomes of each, and that the chart does the same."""

import pytest

from deviceplugin.config.chart_values import ChartValues, Fate, Verdict, read_chart_values
from deviceplugin.config.document import dump_document
from deviceplugin.errors import ConfigError
from tests.deploy.chart import Values, cases, refusal, render
from tests.deploy.test_values import CHANGES, NVIDIAS, REFUSED


def judge(values: Values) -> ChartValues:
    return read_chart_values(dump_document(values).encode(), "v.yaml")


def verdict(values: Values, path: str) -> Verdict:
    (found,) = (one for one in judge(values).verdicts if one.key == f"v.yaml: {path}")
    return found


# What this version does not offer yet is the business of config.notoffered, which the command asks as well.
ELSEWHERE = {"cdi.featureFlags"}


@pytest.mark.parametrize("path", sorted(REFUSED.keys() & NVIDIAS - ELSEWHERE))
def test_what_the_chart_refuses_is_refused(path: str) -> None:
    values, _ = REFUSED[path]
    assert verdict(values, path).fate is Fate.REFUSED


@pytest.mark.parametrize("path", sorted(CHANGES.keys() & NVIDIAS))
def test_what_the_chart_renders_is_not(path: str) -> None:
    values, _ = CHANGES[path]
    assert verdict(values, path).fate is not Fate.REFUSED


@pytest.mark.parametrize(
    ("values", "path"),
    [
        ({"resources": {"limits": {"memory": "50Mi"}}}, "resources.limits"),
        ({"resources": {"limits": {"memory": 52428800}}}, "resources.limits"),
        ({"resources": {"limits": {"memory": [1]}}}, "resources.limits"),
        ({"resources": {"requests": {"cpu": True}}}, "resources.requests"),
        ({"updateStrategy": {"rollingUpdate": {"maxSurge": 1}}}, "updateStrategy"),
        ({"updateStrategy": {"rollingUpdate": {"maxSurge": "25%"}}}, "updateStrategy"),
        ({"config": []}, "config"),
        ({"nodeSelector": ""}, "nodeSelector"),
        ({"podAnnotations": {"a": 1}}, "podAnnotations"),
        ({"devicePlugin": {"enabled": "no"}}, "devicePlugin.enabled"),
        ({"tolerations": {}}, "tolerations"),
        ({"image": {"repository": "nvcr.io/nvidia/k8s-device-plugin"}}, "image.repository"),
        ({"config": {"map": {"a": "version: v1", "b": "version: v1"}}}, "config.map"),
        ({"config": {"name": "mine"}}, "config.name"),
        ({"migStratgy": "none"}, "migStratgy"),
        ({"image": {"repo": "x"}}, "image.repo"),
        ({"migStratgy": {}}, "migStratgy"),
        ({"image": {"repo": ""}}, "image.repo"),
        ({"migStrategy": 5}, "migStrategy"),
        ({"migStrategy": ""}, "migStrategy"),
        ({"migStrategy": "mixd"}, "migStrategy"),
        ({"failOnInitError": "true"}, "failOnInitError"),
        ({"deviceListStrategy": 5}, "deviceListStrategy"),
        ({"deviceListStrategy": {"a": "b"}}, "deviceListStrategy"),
        ({"deviceListStrategy": ["envvar", 1]}, "deviceListStrategy"),
        ({"nvidiaDriverRoot": "drv"}, "nvidiaDriverRoot"),
        ({"nvidiaDriverRoot": ""}, "nvidiaDriverRoot"),
        ({"cdi": {"featureFlags": 3}}, "cdi.featureFlags"),
        ({"mps": {"root": ["/a"]}}, "mps.root"),
        ({"mps": {"root": None}}, "mps.root"),
        ({"image": {"repository": None}}, "image.repository"),
        ({"config": None}, "config"),
        ({"image": 5}, "image"),
        ({"config": {"map": ["a"]}}, "config.map"),
        ({"config": {"map": {"default": {"version": "v1"}}}}, "config.map"),
    ],
)
def test_both_refuse_a_value_for_what_it_says(values: Values, path: str) -> None:
    assert verdict(values, path).fate is Fate.REFUSED
    assert refusal(values)


@pytest.mark.parametrize("limit", ["80Mi", "1Gi"])
def test_a_memory_limit_that_fits_is_pointed_out(limit: str) -> None:
    assert verdict({"resources": {"limits": {"memory": limit}}}, "resources.limits").fate is Fate.CHANGES
    assert verdict({"resources": {"limits": {"cpu": 1}}}, "resources.limits").fate is Fate.STAYS


def test_nvidias_own_values_ask_for_nothing_new() -> None:
    judged = judge(cases()["nvidia-values"])
    assert {one.fate for one in judged.verdicts} == {Fate.STAYS}
    assert render(cases()["nvidia-values"])
    assert judged.files == {}


def test_files_and_settings_are_taken_from_the_values() -> None:
    judged = judge({"config": {"map": {"a": "version: v1"}}, "migStrategy": "mixed", "gdsEnabled": None})
    assert judged.files == {"a": "version: v1"}
    assert {name: given.value for name, given in judged.overrides.given.items()} == {"mig_strategy": "mixed"}
    listed = judge({"deviceListStrategy": "envvar,volume-mounts"})
    assert listed.overrides.given["device_list_strategy"].value == ("envvar", "volume-mounts")


def test_what_is_refused_sets_nothing_and_a_file_that_is_null_is_none() -> None:
    judged = judge({"migStrategy": 5, "config": {"map": {"a": None, "b": {"version": "v1"}}}})
    assert judged.overrides.given == {}
    assert judged.files == {}


def test_a_typo_is_told_from_its_nearest() -> None:
    assert "did you mean migStrategy?" in verdict({"migStratgy": "none"}, "migStratgy").text


@pytest.mark.parametrize("text", ["- a", "x", "a: ["])
def test_what_is_no_values_file_is_an_error(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^v\.yaml"):
        read_chart_values(text.encode(), "v.yaml")


def test_an_empty_file_sets_nothing() -> None:
    assert read_chart_values(b"", "v.yaml").verdicts == ()
