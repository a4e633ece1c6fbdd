"""Every value does something, with NVIDIA's meaning where the key is NVIDIA's (drop-in.md 5)."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from deviceplugin.app.supervisor import STOP_S
from deviceplugin.cli.main import COMMANDS
from tests.deploy.chart import (
    CHART,
    Values,
    only,
    plugin_container,
    plugin_env,
    plugin_pod,
    refusal,
    render,
    render_text,
)

FILE = {"config": {"map": {"default": "version: v1\n"}}}
MPS = {"config": {"map": {"default": "sharing: {mps: {resources: [{name: gpu, replicas: 2}]}}"}}}
TWO_FILES = {"config": {"map": {"a": "version: v1\n", "b": "version: v1\n"}}}
PROBE = {"periodSeconds": 7, "timeoutSeconds": 8, "failureThreshold": 9}

# Path of a value -> (values that set it, values to compare the rendering with).
CHANGES: dict[str, tuple[Values, Values]] = {
    "config.name": ({"config": {"name": "c", "default": "k"}}, {}),
    "config.map": (FILE, {}),
    "config.default": ({"config": {"name": "c", "default": "k"}}, {"config": {"name": "c", "default": "j"}}),
    "compatWithCPUManager": ({"compatWithCPUManager": True}, {}),
    "migStrategy": ({"migStrategy": "single"}, {}),
    "failOnInitError": ({"failOnInitError": True}, {}),
    "deviceListStrategy": ({"deviceListStrategy": "volume-mounts"}, {}),
    "deviceIDStrategy": ({"deviceIDStrategy": "index"}, {}),
    "nvidiaDriverRoot": ({"nvidiaDriverRoot": "/run/nvidia/driver"}, {}),
    "nvidiaDevRoot": ({"nvidiaDevRoot": "/run/nvidia/driver"}, {}),
    "gdrcopyEnabled": ({"gdrcopyEnabled": True}, {}),
    "gdsEnabled": ({"gdsEnabled": True}, {}),
    "mofedEnabled": ({"mofedEnabled": True}, {}),
    "deviceDiscoveryStrategy": ({"deviceDiscoveryStrategy": "nvml"}, {}),
    "nameOverride": ({"nameOverride": "gpus"}, {}),
    "fullnameOverride": ({"fullnameOverride": "gpus"}, {}),
    "namespaceOverride": ({"namespaceOverride": "gpus"}, {}),
    "selectorLabelsOverride": ({"selectorLabelsOverride": {"app": "x"}}, {}),
    "podLabels": ({"podLabels": {"app": "x"}}, {}),
    "imagePullSecrets": ({"imagePullSecrets": [{"name": "secret"}]}, {}),
    "image.repository": ({"image": {"repository": "registry.example/gpu-device-plugin"}}, {}),
    "image.pullPolicy": ({"image": {"pullPolicy": "Always"}}, {}),
    "image.tag": ({"image": {"tag": "edge"}}, {}),
    "updateStrategy": ({"updateStrategy": {"type": "OnDelete"}}, {}),
    "podAnnotations": ({"podAnnotations": {"a": "b"}}, {}),
    "rolloutOnConfigChange": (FILE | {"rolloutOnConfigChange": True}, FILE),
    "podSecurityContext": ({"podSecurityContext": {"runAsUser": 0}}, {}),
    "securityContext": ({"securityContext": {"privileged": True}}, {}),
    "privileges.mig": ({"privileges": {"mig": True}}, {}),
    "resources.requests": ({"resources": {"requests": {"cpu": "1"}}}, {}),
    "resources.limits": ({"resources": {"limits": {"memory": "1Gi"}}}, {}),
    "resources.claims": ({"resources": {"claims": [{"name": "x"}]}}, {}),
    "nodeSelector": ({"nodeSelector": {"gpu": "yes"}}, {}),
    "affinity": ({"affinity": {"nodeAffinity": None}}, {}),
    "tolerations": ({"tolerations": [{"operator": "Exists"}]}, {}),
    "priorityClassName": ({"priorityClassName": "high"}, {}),
    "runtimeClassName": ({"runtimeClassName": "nvidia"}, {}),
    "devicePlugin.enabled": ({"devicePlugin": {"enabled": False}}, {}),
    "devicePlugin.enableHostNetwork": ({"devicePlugin": {"enableHostNetwork": True}}, {}),
    "kubelet.rootDir": ({"kubelet": {"rootDir": "/var/lib/k0s/kubelet"}}, {}),
    "kubelet.devicePluginsDir": ({"kubelet": {"devicePluginsDir": "/snap/device-plugins"}}, {}),
    "log.format": ({"log": {"format": "json"}}, {}),
    "log.level": ({"log": {"level": "debug"}}, {}),
    "configStrictness": ({"configStrictness": "lenient"}, {}),
    "healthChecks.disable": ({"healthChecks": {"disable": "79"}}, {}),
    "healthChecks.enable": ({"healthChecks": {"enable": "79"}}, {}),
    "extraEnv": ({"extraEnv": [{"name": "A", "value": "b"}]}, {}),
    **{f"probes.readiness.{key}": ({"probes": {"readiness": {key: 42}}}, {}) for key in PROBE},
    **{f"probes.liveness.{key}": ({"probes": {"liveness": {key: 42}}}, {}) for key in PROBE},
    "probes.readiness.initialDelaySeconds": ({"probes": {"readiness": {"initialDelaySeconds": 42}}}, {}),
    "probes.liveness.initialDelaySeconds": ({"probes": {"liveness": {"initialDelaySeconds": 42}}}, {}),
    "mps.root": ({"mps": {"root": "/var/mps"}}, {}),
    "mps.enabled": ({"mps": {"enabled": True}}, {}),
    "mps.enableHostPID": (MPS | {"mps": {"enableHostPID": False}}, MPS),
    "mps.resources.requests": (MPS | {"mps": {"resources": {"requests": {"cpu": "1"}}}}, MPS),
    "mps.resources.limits": (MPS | {"mps": {"resources": {"limits": {"memory": "4Gi"}}}}, MPS),
    "mps.resources.claims": (MPS | {"mps": {"resources": {"claims": [{"name": "x"}]}}}, MPS),
    "mps.shmSize": (MPS | {"mps": {"shmSize": "8Gi"}}, MPS),
    "mps.enableHostNetwork": (MPS | {"mps": {"enableHostNetwork": True}}, MPS),
    "mps.securityContext": (MPS | {"mps": {"securityContext": {"privileged": True}}}, MPS),
    "cdi.nvidiaHookPath": ({"cdi": {"nvidiaHookPath": "/usr/bin/nvidia-cdi-hook"}}, {}),
    "cdi.enabled": ({"cdi": {"enabled": True}}, {}),
}

# Path of a value -> (values that set it, what the refusal names).
REFUSED: dict[str, tuple[Values, str]] = {
    "namespace": ({"namespace": "gpus"}, "namespace: found gpus"),
    "cdi.featureFlags": (
        {"cdi": {"featureFlags": "enable-coherent-annotations"}},
        "cdi.featureFlags: found enable-coherent-annotations",
    ),
    **{
        f"gfd.{key}": ({"gfd": {key: value}}, f"gfd.{key}: found ")
        for key, value in {
            "enabled": True,
            "nameOverride": "x",
            "namespaceOverride": "x",
            "noTimestamp": True,
            "sleepInterval": "30s",
            "securityContext": {"privileged": False},
            "enableHostNetwork": True,
        }.items()
    },
    **{
        f"nfd.{key}": ({"nfd": {key: value}}, f"nfd.{key}: found ")
        for key, value in {
            "enabled": True,
            "nameOverride": "x",
            "master": {"replicas": 2},
            "worker": {"tolerations": []},
        }.items()
    },
}

# What NVIDIA's chart 0.20.0 has (drop-in.md 5); gfd and nfd are sections here that take any key.
NVIDIAS = {
    *("config.name", "config.map", "config.default", "config.fallbackStrategies"),
    *("compatWithCPUManager", "migStrategy", "failOnInitError", "deviceListStrategy", "deviceIDStrategy"),
    *("nvidiaDriverRoot", "nvidiaDevRoot", "gdrcopyEnabled", "gdsEnabled", "mofedEnabled", "deviceDiscoveryStrategy"),
    *("nameOverride", "fullnameOverride", "namespaceOverride", "selectorLabelsOverride", "allowDefaultNamespace"),
    *("imagePullSecrets", "image.repository", "image.pullPolicy", "image.tag", "updateStrategy", "podAnnotations"),
    *("podSecurityContext", "securityContext", "nodeSelector", "affinity", "tolerations"),
    *("resources.requests", "resources.limits", "priorityClassName", "runtimeClassName"),
    *("devicePlugin.enabled", "devicePlugin.enableHostNetwork", "mps.root", "mps.enableHostPID"),
    *("mps.enableHostNetwork", "cdi.nvidiaHookPath", "cdi.featureFlags", "namespace"),
    *(f"gfd.{key}" for key in ("enabled", "nameOverride", "namespaceOverride", "noTimestamp", "sleepInterval")),
    *("gfd.securityContext", "gfd.enableHostNetwork", "nfd.enabled", "nfd.nameOverride", "nfd.master", "nfd.worker"),
}
TESTED_APART = {"allowDefaultNamespace", "config.fallbackStrategies", "countMatchingNodes", "enabled", "global"}
SECTIONS = {
    *("config", "image", "devicePlugin", "kubelet", "log", "healthChecks", "probes", "privileges", "mps", "cdi"),
}
"""Mappings whose keys the chart needs; with null Helm removes the defaults below them."""
NVIDIAS_NULL_SECTIONS = {
    *("affinity", "gfd", "imagePullSecrets", "nfd", "nodeSelector", "podAnnotations", "podSecurityContext"),
    *("resources", "securityContext", "selectorLabelsOverride", "tolerations", "updateStrategy"),
}
NVIDIAS_RUNTIME = {"NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES", "NVIDIA_MIG_MONITOR_DEVICES"}
"""Variables for the container's runtime; whoever knows theirs may say otherwise."""
NEVER_NULL = {"kubelet.rootDir", "kubelet.devicePluginsDir", "mps.root", "image.repository", "image.pullPolicy"}


def leaves(schema: dict[str, Any], path: str = "") -> Iterator[str]:
    for key, value in schema["properties"].items():
        here = f"{path}{key}"
        if "properties" in value:
            yield from leaves(value, f"{here}.")
        elif key not in {"gfd", "nfd"}:
            yield here


def test_the_tables_have_every_value() -> None:
    known = set(leaves(json.loads((CHART / "values.schema.json").read_text())))
    assert known <= CHANGES.keys() | REFUSED.keys() | TESTED_APART, "a value that no test sets"
    assert CHANGES.keys() <= known
    assert CHANGES.keys() | REFUSED.keys() | TESTED_APART >= NVIDIAS


@pytest.mark.parametrize("path", CHANGES)
def test_a_value_changes_the_rendering(path: str) -> None:
    values, without = CHANGES[path]
    assert render_text(values) != render_text(without)


@pytest.mark.parametrize("path", REFUSED)
def test_a_value_that_is_not_offered_is_refused_by_name(path: str) -> None:
    values, named = REFUSED[path]
    assert named in refusal(values)


@pytest.mark.parametrize("path", sorted(CHANGES.keys() - NEVER_NULL))
def test_null_is_as_good_as_no_value(path: str) -> None:
    """Helm removes what is null; what a values file leaves at null, as NVIDIA's does, must render."""
    values: Any = None
    for key in reversed(path.split(".")):
        values = {key: values}
    assert render(values)


@pytest.mark.parametrize("section", sorted(NVIDIAS_NULL_SECTIONS))
def test_a_key_with_nothing_below_it_is_as_good_as_none(section: str) -> None:
    """`resources:` and comments below it, as NVIDIA's chart takes it."""
    assert render({section: None})


@pytest.mark.parametrize("section", sorted(SECTIONS))
def test_a_section_that_the_chart_cannot_do_without_is_refused_by_name(section: str) -> None:
    assert f"'{section}'" in refusal({section: None}) or f"/{section}'" in refusal({section: None})


@pytest.mark.parametrize("path", sorted(NEVER_NULL - {"image.pullPolicy"}))
def test_a_value_that_the_chart_cannot_do_without_is_refused_by_name(path: str) -> None:
    section, key = path.split(".")
    assert key in refusal({section: {key: None}})


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("flags: abc", 'config.map.default: flags: found "abc"'),
        ("flags: {plugin: [envvar]}", 'flags.plugin: found ["envvar"]'),
        ("sharing: 4", "sharing: found 4"),
    ],
)
def test_a_section_of_the_file_that_is_no_mapping_is_refused_by_name(text: str, named: str) -> None:
    assert named in refusal({"config": {"map": {"default": text}}})


def test_a_file_that_is_named_but_not_there_is_refused_by_name() -> None:
    assert "config.default: found a" in refusal({"config": {"default": "a", "map": None}})


def test_unknown_values_are_refused() -> None:
    assert "migStratgy" in refusal({"migStratgy": "none"})
    assert "tagg" in refusal({"image": {"tagg": "x"}})
    assert "migStrategy" in refusal({"migStrategy": "both"})
    assert "deviceListStrategy" in refusal({"deviceListStrategy": "envvar,cdi"})
    assert "deviceDiscoveryStrategy: found tegra" in refusal({"deviceDiscoveryStrategy": "tegra"})


# Where it is installed, and under which names.


def test_the_default_namespace_must_be_meant() -> None:
    assert "allowDefaultNamespace" in refusal({}, namespace="default")
    assert only(render({"allowDefaultNamespace": True}, namespace="default"), "DaemonSet")
    assert only(render({"namespaceOverride": "gpus"}, namespace="default"), "DaemonSet")


@pytest.mark.parametrize(
    ("release", "values", "name"),
    [
        ("nvdp", {}, "nvdp-nvidia-device-plugin"),
        ("nvidia-device-plugin", {}, "nvidia-device-plugin"),
        ("nvdp", {"nameOverride": "gpus"}, "nvdp-gpus"),
        ("nvdp", {"fullnameOverride": "gpus"}, "gpus"),
        ("n" * 50, {}, f"{'n' * 50}-nvidia-devic"),
    ],
)
def test_names_and_selectors_are_those_of_nvidias_chart(release: str, values: Values, name: str) -> None:
    """An upgrade in place needs the same name and, as they are immutable, the same selectors."""
    daemon_set = only(render(values, release=release), "DaemonSet")
    app = values.get("nameOverride", "nvidia-device-plugin")
    assert daemon_set["metadata"]["name"] == name
    identity = {"app.kubernetes.io/name": app, "app.kubernetes.io/instance": release}
    assert daemon_set["spec"]["selector"] == {"matchLabels": identity}
    assert daemon_set["spec"]["template"]["metadata"]["labels"] == identity
    assert only(render(values, release=release), "ServiceAccount")["metadata"]["name"] == f"{name}-service-account"


def test_selector_labels_stand_beside_the_usual_ones() -> None:
    template = only(render({"selectorLabelsOverride": {"app": "x"}, "podLabels": {"b": "c"}}), "DaemonSet")["spec"]
    assert template["selector"] == {"matchLabels": {"app": "x"}}
    assert template["template"]["metadata"]["labels"] == {
        "app.kubernetes.io/name": "nvidia-device-plugin",
        "app.kubernetes.io/instance": "nvdp",
        "app": "x",
        "b": "c",
    }


def test_a_label_that_is_selected_by_stands_once() -> None:
    text = render_text({"selectorLabelsOverride": {"app.kubernetes.io/name": "x"}})
    assert "app.kubernetes.io/name: nvidia-device-plugin" not in text
    template = only(list(yaml.safe_load_all(text)), "DaemonSet")["spec"]
    assert template["selector"] == {"matchLabels": {"app.kubernetes.io/name": "x"}}
    assert template["template"]["metadata"]["labels"]["app.kubernetes.io/name"] == "x"


@pytest.mark.parametrize("surge", [1, "1", "25%"])
def test_two_plugins_on_one_node_are_refused(surge: object) -> None:
    values = {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": 0}}}
    assert f"updateStrategy.rollingUpdate.maxSurge: found {surge}" in refusal(values)


@pytest.mark.parametrize("unavailable", [0, "0", "0%"])
def test_an_update_that_could_replace_no_pod_is_refused(unavailable: object) -> None:
    values = {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": unavailable}}}
    assert f"updateStrategy.rollingUpdate.maxUnavailable: found {unavailable}" in refusal(values)


@pytest.mark.parametrize("surge", [0, "0", "0%", None])
def test_one_after_the_other_is_taken(surge: object) -> None:
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": "20%"}}
    assert only(render({"updateStrategy": strategy}), "DaemonSet")


@pytest.mark.parametrize("label", ["app.kubernetes.io/name", "app.kubernetes.io/instance", "mine"])
def test_a_label_that_the_pods_are_known_by_is_refused(label: str) -> None:
    """The API server would refuse it, or a selector would lose its pods."""
    values = {"podLabels": {label: "x"}} | ({"selectorLabelsOverride": {label: "y"}} if label == "mine" else {})
    assert f"podLabels.{label}: found x" in refusal(values)


@pytest.mark.parametrize(("name", "value"), [("MIG_STRATEGY", "migStrategy"), ("LOG_LEVEL", "log.level")])
def test_a_variable_that_a_value_hands_on_is_refused_beside_it(name: str, value: str) -> None:
    """Otherwise rights and mounts would follow the one, and the process the other."""
    assert f"extraEnv: found {name}, " in refusal({"extraEnv": [{"name": name, "value": "x"}]})
    assert f"set {value}" in refusal({"extraEnv": [{"name": name, "value": "x"}]})


def test_every_variable_of_a_value_is_known_as_one() -> None:
    for values, _ in CHANGES.values():
        if values.get("devicePlugin", {}).get("enabled", True) and "extraEnv" not in values:
            for name in plugin_env(values).keys() - NVIDIAS_RUNTIME:
                assert f"extraEnv: found {name}, " in refusal({"extraEnv": [{"name": name, "value": "x"}]})


def test_nvidias_image_is_refused() -> None:
    assert "image.repository: found nvcr.io/nvidia/k8s-device-plugin" in refusal(
        {"image": {"repository": "nvcr.io/nvidia/k8s-device-plugin", "tag": "v0.20.0"}}
    )


# Memory.


@pytest.mark.parametrize("limit", ["50Mi", "20M", "65536Ki", 52428800])
def test_a_memory_limit_for_another_program_is_refused(limit: object) -> None:
    assert f"resources.limits.memory: found {limit}" in refusal({"resources": {"limits": {"memory": limit}}})


@pytest.mark.parametrize("limit", ["80Mi", "128Mi", "0.5Gi", "100M", 134217728])
def test_a_memory_limit_that_fits_is_taken_as_it_is(limit: object) -> None:
    values = {"resources": {"limits": {"memory": limit}}}
    assert plugin_container(values)["resources"] == {"limits": {"memory": limit}}, "ours would not fit to theirs"


# The config file.


@pytest.mark.parametrize(
    ("config", "key"),
    [
        ({"map": {"only": "version: v1"}}, "only"),
        ({"map": {"default": "version: v1"}}, "default"),
        ({"map": {"only": "version: v1"}, "default": "only"}, "only"),
        ({"map": {"default": "version: v1"}, "fallbackStrategies": ["single"]}, "default"),
        ({"name": "mine", "default": "a"}, "a"),
    ],
)
def test_the_file_is_chosen_as_nvidias_chart_does(config: Values, key: str) -> None:
    pod = plugin_pod({"config": config})
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert volumes["config"]["configMap"]["items"] == [{"key": key, "path": "config.yaml"}]
    (mount,) = (mount for mount in pod["containers"][0]["volumeMounts"] if mount["name"] == "config")
    assert mount == {"name": "config", "mountPath": "/config", "readOnly": True}, "never by subPath: no updates"
    assert plugin_env({"config": config})["CONFIG_FILE"] == "/config/config.yaml"


def test_without_a_file_none_is_named() -> None:
    assert "CONFIG_FILE" not in plugin_env()
    assert "config" not in [volume["name"] for volume in plugin_pod()["volumes"]]


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({"name": "x", "default": "a", "map": {"a": "version: v1"}}, "found both name and map"),
        ({"name": "x"}, "config.default: found nothing"),
        ({"map": {"a": "version: v1"}, "default": "b"}, "config.default: found b, expected a key of config.map: a"),
        ({"default": "b"}, "config.default: found b"),
        (TWO_FILES["config"], "config.default: found nothing, expected which key of config.map is the plugin's file"),
        (TWO_FILES["config"] | {"default": "a"}, "config.map.b: a node could only get it by its label"),
        ({"map": {"a": "version: v1"}, "fallbackStrategies": ["empty"]}, "config.map.a: a node could only get it by"),
        ({"map": {"a": "version: v1"}, "fallbackStrategies": ["named"]}, "config.map.a: a node could only get it by"),
        ({"map": {"a": "version: [v1"}}, "config.map.a: is no YAML mapping"),
    ],
)
def test_a_config_that_no_node_would_read_is_refused(config: Values, named: str) -> None:
    assert named in refusal({"config": config})


def test_the_text_of_the_file_arrives_as_it_is() -> None:
    text = "# comment\nversion: v1\n\nsharing:\n  mps:   {resources: [{name: gpu, devices: ['0:1'], replicas: 2}]}"
    config_map = only(render({"config": {"map": {"default": text}}}), "ConfigMap")
    assert config_map["metadata"]["name"] == "nvdp-nvidia-device-plugin-configs"
    assert config_map["data"] == {"default": text}


def test_an_edit_replaces_no_pod_unless_asked() -> None:
    one, other = ({"config": {"map": {"a": f"version: v1 # {number}"}}} for number in "12")

    def template(values: Values) -> Values:
        return dict(only(render(values), "DaemonSet")["spec"]["template"])

    assert template(one) == template(other)
    assert template(one | {"rolloutOnConfigChange": True}) != template(other | {"rolloutOnConfigChange": True})
    mine = {"rolloutOnConfigChange": True, "podAnnotations": {"checksum/config": "mine"}}
    assert template(one | mine)["metadata"]["annotations"] == {"checksum/config": "mine"}


@pytest.mark.parametrize(
    ("values", "variable"),
    [
        ({}, "false"),
        ({"failOnInitError": None}, "false"),
        ({"failOnInitError": True}, "true"),
        ({"failOnInitError": False}, "false"),
        ({"config": {"map": {"a": "flags: {failOnInitError: true}"}}}, None),
        ({"config": {"map": {"a": "flags: {failOnInitError: true}"}}, "failOnInitError": False}, "false"),
        ({"config": {"name": "c", "default": "k"}}, "false"),
    ],
)
def test_a_failed_start_waits_unless_told(values: Values, variable: str | None) -> None:
    assert plugin_env(values).get("FAIL_ON_INIT_ERROR") == variable


# Features that need more.


@pytest.mark.parametrize(
    ("values", "given"),
    [
        ({}, False),
        ({"migStrategy": "none"}, False),
        ({"migStrategy": "mixed"}, True),
        ({"migStrategy": "single"}, True),
        ({"migStrategy": "mixed", "privileges": {"mig": False}}, False),
        ({"config": {"map": {"a": "flags: {migStrategy: mixed}"}}}, True),
        ({"config": {"map": {"a": "flags: {migStrategy: mixed}"}}, "migStrategy": "none"}, False),
        ({"config": {"name": "c", "default": "k"}}, False),
        ({"config": {"name": "c", "default": "k"}, "privileges": {"mig": True}}, True),
    ],
)
def test_rights_for_mig_follow_what_is_asked(values: Values, given: bool) -> None:
    """NVIDIA's chart gives SYS_ADMIN to every installation with a config file (drop-in.md 5a)."""
    assert (plugin_env(values).get("NVIDIA_MIG_MONITOR_DEVICES") == "all") is given
    assert plugin_container(values)["securityContext"]["capabilities"] == {
        "drop": ["ALL"],
        **({"add": ["SYS_ADMIN"]} if given else {}),
    }


@pytest.mark.parametrize(
    "values",
    [
        {"cdi": {"enabled": True}},
        {"config": {"map": {"a": "flags: {plugin: {deviceListStrategy: [cdi-cri]}}"}}},
        {"config": {"map": {"a": "flags: {plugin: {deviceListStrategy: cdi-cri}}"}}},
    ],
)
def test_the_place_for_cdi_is_mounted_where_it_is_asked_for(values: Values) -> None:
    assert "/var/run/cdi" in [mount["mountPath"] for mount in plugin_container(values)["volumeMounts"]]
    without = values | {"cdi": {"enabled": False}}
    assert "/var/run/cdi" not in [mount["mountPath"] for mount in plugin_container(without)["volumeMounts"]]


def test_values_are_given_on_as_they_are() -> None:
    env = plugin_env(
        {
            "deviceListStrategy": ["envvar", "volume-mounts"],
            "gdsEnabled": False,
            "extraEnv": [{"name": "IMEX_CHANNEL_IDS", "value": "0"}],
        }
    )
    assert env["DEVICE_LIST_STRATEGY"] == "envvar,volume-mounts"
    assert env["GDS_ENABLED"] == "false"
    assert env["IMEX_CHANNEL_IDS"] == "0"
    assert "MIG_STRATEGY" not in env, "null: the file decides"


def test_values_and_schema_have_the_same_keys() -> None:
    """What values.yaml leaves out, nobody learns of."""
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())["properties"]
    assert set(schema) - set(values) == {"enabled", "global", "namespace", "nfd"}
    assert set(values) <= set(schema)


# The MPS supervisor.


def supervisor(values: Values) -> Values:
    return only(render(values), "DaemonSet", "-mps")


@pytest.mark.parametrize(
    ("values", "runs"),
    [
        ({}, False),
        (FILE, False),
        (MPS, True),
        (MPS | {"mps": {"enabled": False}}, False),
        ({"mps": {"enabled": True}}, True),
        ({"config": {"name": "c", "default": "k"}}, False),
        (MPS | {"devicePlugin": {"enabled": False}}, False),
    ],
)
def test_the_supervisor_runs_where_the_file_has_mps(values: Values, runs: bool) -> None:
    names = [one["metadata"]["name"] for one in render(values) if one["kind"] == "DaemonSet"]
    assert ("nvdp-nvidia-device-plugin-mps" in names) is runs


def test_the_supervisor_reads_what_the_plugin_reads() -> None:
    """It plans with the same code: what one is told the other must be told."""
    (container,) = supervisor(MPS)["spec"]["template"]["spec"]["containers"]
    assert {one["name"]: one["value"] for one in container["env"]} == plugin_env(MPS)
    assert {"/mps", "/dev/shm", "/config"} <= {mount["mountPath"] for mount in container["volumeMounts"]}
    assert {"/mps", "/dev/shm", "/config"} <= {mount["mountPath"] for mount in plugin_container(MPS)["volumeMounts"]}
    assert container["command"] == ["gpu-device-plugin", "mps"]
    assert container["command"][1] in COMMANDS


def test_the_supervisor_is_never_replaced_by_itself() -> None:
    assert supervisor(MPS)["spec"]["updateStrategy"] == {"type": "OnDelete"}
    assert (
        supervisor(MPS | {"updateStrategy": {"type": "RollingUpdate"}})["spec"]["updateStrategy"]["type"] == "OnDelete"
    )
    edited = MPS | {"rolloutOnConfigChange": True}
    assert "annotations" not in supervisor(edited)["spec"]["template"]["metadata"]


def test_the_supervisor_gets_time_to_end_its_daemons() -> None:
    assert supervisor(MPS)["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] > STOP_S
