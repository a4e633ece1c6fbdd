"""Values of NVIDIA's chart: what becomes of each, and that the chart does the same."""

import json
import re

import pytest
import yaml

from deviceplugin.config.chart_values import KEYS, OUR_SECTIONS, SECTIONS, ChartValues, read_chart_values
from deviceplugin.config.chart_verdicts import Fate, Verdict
from deviceplugin.config.document import dump_document
from deviceplugin.errors import ConfigError
from tests.deploy.chart import CHART, Values, cases, only, refusal, render
from tests.deploy.test_values import CHANGES, NVIDIAS, REFUSED


def judge(values: Values) -> ChartValues:
    return read_chart_values(dump_document(values).encode(), "v.yaml")


def verdict(values: Values, path: str) -> Verdict:
    (found,) = (one for one in judge(values).verdicts if re.fullmatch(rf"v\.yaml:\d+: {re.escape(path)}", one.key))
    return found


OURS: Values = {"image": {"repository": "mine/gpu-device-plugin"}}

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


def test_every_value_of_our_chart_is_known() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    found = judge(values | {"enabled": True, "nvidiaDevRoot": "/"}).verdicts
    assert [one for one in found if one.fate is Fate.REFUSED] == []
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert KEYS | {"gfd", "nfd"} == schema["properties"].keys()
    for section, keys in (*SECTIONS.items(), *OUR_SECTIONS.items()):
        assert set(keys) <= schema["properties"][section].get("properties", {}).keys()


@pytest.mark.parametrize("path", sorted(CHANGES.keys() - NVIDIAS))
def test_nor_what_only_our_chart_has_so_that_a_file_that_was_changed_can_be_judged_again(path: str) -> None:
    values, _ = CHANGES[path]
    (found,) = {
        one.fate for one in judge(values).verdicts if f": {path}.".startswith(one.key[one.key.rindex(": ") :] + ".")
    }
    assert found is Fate.STAYS


@pytest.mark.parametrize(
    ("values", "path"),
    [
        ({"resources": {"limits": {"memory": "50Mi"}}}, "resources.limits"),
        ({"resources": {"limits": {"memory": 52428800}}}, "resources.limits"),
        ({"resources": {"limits": {"memory": [1]}}}, "resources.limits"),
        ({"resources": {"limits": {"memory": "128MB"}}}, "resources.limits"),
        ({"resources": {"limits": {"memory": "lots"}}}, "resources.limits"),
        ({"resources": {"limits": {"memory": -1}}}, "resources.limits"),
        ({"resources": {"limits": {"memory": "1e7"}}}, "resources.limits"),
        ({"updateStrategy": {"rollingUpdate": {"maxUnavailable": 0}}}, "updateStrategy"),
        ({"updateStrategy": {"type": "Recreate"}}, "updateStrategy"),
        ({"updateStrategy": {"rollingUpdate": {"x": 1}}}, "updateStrategy"),
        ({"tolerations": [{"operator": "exists"}]}, "tolerations"),
        ({"tolerations": [{"kee": "a"}]}, "tolerations"),
        ({"imagePullSecrets": [{"foo": "x"}]}, "imagePullSecrets"),
        ({"image": {"tag": "v1 0"}}, "image.tag"),
        ({"nodeSelector": {"a": "no label!"}}, "nodeSelector"),
        ({"selectorLabelsOverride": {"no label!": "x"}}, "selectorLabelsOverride"),
        ({"priorityClassName": "a: b"}, "priorityClassName"),
        ({"namespaceOverride": "A"}, "namespaceOverride"),
        ({"config": {"map": {"a/b": "version: v1"}}}, "config.map"),
        ({"config": {"map": {"a": "version: v1"}, "default": "b"}}, "config.default"),
        ({"config": {"default": "b"}}, "config.default"),
        ({"config": {"map": {"a": "version: v1"}, "fallbackStrategies": ["named"]}}, "config.map"),
        ({"config": {"map": {"a": "version: v1"}, "name": "b", "default": "a"}}, "config.name"),
        ({"resources": {"limits": {"cpu": "19m"}}}, "resources.limits"),
        ({"resources": {"limits": {"cpu": 0.01}}}, "resources.limits"),
        ({"enabled": False}, "enabled"),
        ({"image": {"repository": "mine@sha256:0"}}, "image.repository"),
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


@pytest.mark.parametrize(
    ("resources", "path", "said"),
    [
        (
            {"limits": {"memory": "80Mi"}},
            "resources.limits",
            "found memory: 80Mi, expected at least 80Mi, better 128Mi",
        ),
        ({"limits": {"memory": 100_000_000}}, "resources.limits", "found memory: 100000000"),
        ({"limits": {"cpu": "50m"}}, "resources.limits", "found cpu: 50m, expected none or at least 50m, better 100m"),
        ({"limits": {"cpu": 0.05, "memory": "1Gi"}}, "resources.limits", "found cpu: 0.05"),
        ({"requests": {"memory": "20Mi"}}, "resources.requests", "found memory: 20Mi, expected 64Mi or more"),
    ],
)
def test_what_is_little_for_our_process_is_pointed_out(resources: Values, path: str, said: str) -> None:
    found = verdict({"resources": resources}, path)
    assert found.fate is Fate.CHANGES
    assert said in found.text


@pytest.mark.parametrize(
    "resources",
    [
        {"limits": {"memory": "128Mi"}},
        {"limits": {"memory": 134217728}},
        {"limits": {"memory": "134217728"}},
        {"limits": {"memory": "1Gi", "cpu": 1}},
        {"limits": {"cpu": "100m", "nvidia.com/gpu": 1}},
        {"requests": {"memory": "64Mi", "cpu": "10m"}},
    ],
)
def test_what_is_enough_stays(resources: Values) -> None:
    assert {one.fate for one in judge(OURS | {"resources": resources}).verdicts} == {Fate.STAYS}


IN_A_TERM = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "nvidia.com/gpu.memory", "operator": "Exists"}]}]
        }
    }
}


@pytest.mark.parametrize(
    ("path", "value", "label"),
    [
        ("nodeSelector", {"nvidia.com/gpu.product": "A100", "a": "b"}, "nvidia.com/gpu.product"),
        ("nodeSelector", {"nvidia.com/mig.capable": "true"}, "nvidia.com/mig.capable"),
        ("nodeSelector", {"nvidia.com/mps.capable": "true"}, "nvidia.com/mps.capable"),
        (
            "nodeSelector",
            {"feature.node.kubernetes.io/pci-10de.present": "true"},
            "feature.node.kubernetes.io/pci-10de",
        ),
        ("affinity", IN_A_TERM, "nvidia.com/gpu.memory"),
    ],
)
@pytest.mark.parametrize("part", ["gfd", "nfd"])
def test_a_label_that_nobody_writes_any_more_is_told(part: str, path: str, value: object, label: str) -> None:
    """GPU feature discovery needs Node Feature Discovery: whichever goes, its labels go."""
    leaving = verdict({part: {"enabled": True}, path: value}, path)
    assert leaving.fate is Fate.CHANGES
    assert f"found {label}" in leaving.text
    assert f"{part}.enabled" in leaving.text
    assert verdict({part: {"enabled": False}, path: value}, path).fate is Fate.STAYS


@pytest.mark.parametrize(
    "label", ["nvidia.com/gpu.present", "nvidia.com/gpu.deploy.device-plugin", "nvidia.com/mig.config.state", "gpus"]
)
def test_labels_of_people_and_operators_stay(label: str) -> None:
    assert verdict({"gfd": {"enabled": True}, "nodeSelector": {label: "true"}}, "nodeSelector").fate is Fate.STAYS


def test_the_default_placement_goes_by_labels_too() -> None:
    def default_placement(values: Values) -> list[Verdict]:
        return [one for one in judge(values).verdicts if one.key == "v.yaml: affinity"]

    (found,) = default_placement({"nfd": {"enabled": True}})
    assert found.fate is Fate.CHANGES
    assert "kubectl label node NODE nvidia.com/gpu.present=true" in found.text
    assert default_placement({}) == []


@pytest.mark.parametrize(
    ("affinity", "terms"),
    [
        ({}, 3),
        ({"podAffinity": {}}, 3),
        ({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}, 3),
        ({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}}}, 3),
        (IN_A_TERM, 1),
        (None, 0),
        ({"nodeAffinity": None}, 0),
    ],
)
def test_it_counts_as_helm_merges_it(affinity: Values | None, terms: int) -> None:
    given = {"affinity": affinity}
    rendered = only(render(given), "DaemonSet")["spec"]["template"]["spec"].get("affinity") or {}
    required = rendered.get("nodeAffinity", {}).get("requiredDuringSchedulingIgnoredDuringExecution", {})
    assert len(required.get("nodeSelectorTerms", [])) == terms
    told = [one for one in judge(given | {"gfd": {"enabled": True}}).verdicts if one.key == "v.yaml: affinity"]
    assert len(told) == (terms == 3)


def test_a_tag_is_of_the_image_that_it_stands_with() -> None:
    assert verdict({"image": {"tag": "v0.17.0"}}, "image.tag").fate is Fate.CHANGES
    assert verdict({"image": {"tag": "v0.1.0", "repository": "mine/gpu-device-plugin"}}, "image.tag").fate is Fate.STAYS


def test_nvidias_own_values_ask_for_nothing_new() -> None:
    judged = judge(cases()["nvidia-values"])
    assert {one.fate for one in judged.verdicts if ".yaml:" in one.key and "image.repository" not in one.key} == {
        Fate.STAYS
    }
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


@pytest.mark.parametrize(
    ("text", "found", "cure"),
    [
        ("version: v1\nsharing: {}\n", "a config file of the plugin", "migrate VALUES CONFIG"),
        ("version: v1\n", "a config file of the plugin", "migrate VALUES CONFIG"),
        ("flags: {}\nresources: {}\n", "a config file of the plugin", "migrate VALUES CONFIG"),
        ("apiVersion: v1\nkind: ConfigMap\ndata: {a: b}\n", 'a Kubernetes manifest (kind "ConfigMap")', "empty file"),
        (
            "apiVersion: apps/v1\nkind: DaemonSet\n",
            'a Kubernetes manifest (kind "DaemonSet")',
            "the config file after it",
        ),
        ("driver: {}\ntoolkit: {}\ndevicePlugin: {}\n", "the values of the GPU operator", "From the GPU operator"),
    ],
)
def test_another_file_is_named_and_not_judged_key_by_key(text: str, found: str, cure: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read_chart_values(text.encode(), "v.yaml")
    (problem,) = refused.value.problems
    assert problem.startswith(f"v.yaml:1: found {found}")
    assert "expected the values of NVIDIA's chart: " in problem
    assert cure in problem


@pytest.mark.parametrize(
    ("text", "line", "part"),
    [
        ("nvidia-device-plugin:\n  migStrategy: mixed\n", 2, "nvidia-device-plugin"),
        (
            "a: {image: x}\nnvidia-device-plugin:\n  nvidia-device-plugin:\n    migStrategy: mixed\n",
            4,
            "nvidia-device-plugin.nvidia-device-plugin",
        ),
        ("global: {a: b}\nother: {a: b}\nnvdp: {migStrategy: mixed}\n", 3, "nvdp"),
    ],
)
def test_the_values_of_a_chart_that_has_it_in_it_are_found(text: str, line: int, part: str) -> None:
    found = read_chart_values(text.encode(), "v.yaml")
    assert [one.key for one in found.verdicts if one.fate is Fate.STAYS] == [
        f"v.yaml: {part}",
        f"v.yaml:{line}: migStrategy",
    ]


def test_a_chart_that_has_it_in_it_may_set_nothing() -> None:
    assert read_chart_values(b"nvidia-device-plugin:\n", "v.yaml").given == {}
    assert read_chart_values(b"a: {image: x}\nb: {image: y}\n", "v.yaml").given.keys() == {"a", "b"}


def test_the_cure_for_anchors_is_told() -> None:
    with pytest.raises(ConfigError, match="`helm get values` writes them out"):
        read_chart_values(b"resources: {limits: &a {cpu: 1}, requests: *a}\n", "v.yaml")


@pytest.mark.parametrize("version", ["0.15", "0.18"])
def test_the_defaults_of_older_charts_ask_for_nothing(version: str) -> None:
    """nfd.enableNodeFeatureApi stood in NVIDIA's values.yaml until 0.18."""
    values = {"nfd": {"enableNodeFeatureApi": False}}
    assert verdict(values, "nfd.enableNodeFeatureApi").fate is Fate.STAYS, version
    assert render(values)


def test_one_cure_for_all_keys_of_a_chart_that_is_not_part_of_ours() -> None:
    values = {"nfd": {"enabled": True, "nameOverride": "x"}}
    assert "install it with its own chart" in verdict(values, "nfd.enabled").text
    assert verdict(values, "nfd.nameOverride").text.endswith("NVIDIA's default: as nfd.enabled")


def test_node_feature_discovery_goes_as_the_charts_condition_says() -> None:
    """NVIDIA's chart has it on condition nfd.enabled,gfd.enabled: Helm takes the first that is set."""

    def told(values: Values) -> bool:
        return any(one.key == "v.yaml: affinity" for one in judge(values).verdicts)

    assert told({"gfd": {"enabled": True}})
    assert told({"gfd": {"enabled": False}, "nfd": {"enabled": True}})
    assert told({"gfd": {"enabled": True}, "nfd": {"enabled": None}})
    assert not told({"gfd": {"enabled": True}, "nfd": {"enabled": False}})
    selected = {"feature.node.kubernetes.io/pci-10de.present": "true"}
    without = {"gfd": {"enabled": True}, "nfd": {"enabled": False}, "nodeSelector": selected}
    assert verdict(without, "nodeSelector").fate is Fate.STAYS


def test_a_mirror_of_nvidias_image_is_pointed_out() -> None:
    values = {"image": {"repository": "harbor.example/gpu/k8s-device-plugin", "tag": "v0.17.4"}}
    assert {verdict(values, f"image.{key}").fate for key in values["image"]} == {Fate.CHANGES}


def test_an_empty_file_sets_nothing_but_where_our_image_is() -> None:
    (found,) = read_chart_values(b"", "v.yaml").verdicts
    assert (found.key, found.fate) == ("v.yaml: image.repository", Fate.CHANGES)
