"""Values that are legal and that hardly anybody tries: what they render, every version of Kubernetes takes."""

import itertools
import re
import shutil
from pathlib import Path

import helm_python
import kubernetes_validate
import pytest

from tests.deploy.chart import (
    CHART,
    NAMESPACE,
    RELEASE,
    Manifest,
    Values,
    only,
    plugin_container,
    plugin_env,
    plugin_pod,
    refusal,
    render,
    render_text,
)
from tests.deploy.test_kubernetes import NEWEST, OLDEST
from tests.deploy.test_values import MPS

# Each is a text to whom wrote it, and something else to a YAML parser.
LOOKALIKES = ["123", "0x1f", "1e3", "true", "null", "yes"]
NAMED = ["nameOverride", "fullnameOverride", "namespaceOverride", "priorityClassName", "runtimeClassName"]


def validate(manifests: list[Manifest]) -> None:
    """Raises what Kubernetes' own schemas have against them, and fails on what the API server checks besides."""
    for manifest in manifests:
        for version in (OLDEST, NEWEST):
            kubernetes_validate.validate(manifest, version, strict=True)
        assert isinstance(manifest["metadata"]["namespace"], str)
    daemon_sets = [one["spec"] for one in manifests if one["kind"] == "DaemonSet"]
    for spec in daemon_sets:
        labels = spec["template"]["metadata"]["labels"]
        assert spec["selector"]["matchLabels"].items() <= labels.items()
        assert all(isinstance(value, str) for value in labels.values())
        for container in spec["template"]["spec"]["containers"]:
            for names in (
                [one["name"] for one in container["env"]],
                [one["mountPath"] for one in container["volumeMounts"]],
            ):
                assert len(set(names)) == len(names), "a list with a key, of which server-side apply takes no two"
    for one, other in itertools.permutations(daemon_sets, 2):
        selector = one["selector"]["matchLabels"].items()
        assert not selector <= other["template"]["metadata"]["labels"].items(), "one takes the other's pods for its own"


@pytest.mark.parametrize("text", LOOKALIKES)
def test_a_name_stays_a_text(text: str) -> None:
    validate(render(MPS, release=text))
    for key in NAMED:
        validate(render(MPS | {key: text}))
    validate(render({"config": {"name": text, "default": text}}))
    validate(render({"image": {"repository": text, "tag": text}}))


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("priorityClassName", "a: b"),
        ("runtimeClassName", "*x"),
        ("namespaceOverride", "'q"),
        ("fullnameOverride", "A_b"),
        ("nameOverride", "a{b}"),
    ],
)
def test_what_no_object_can_be_called_is_refused_by_the_values_name(key: str, name: str) -> None:
    assert f"/{key}'" in refusal({key: name})


@pytest.mark.parametrize("path", ["/a: b", "/a #b", '/"q"', "/with space"])
def test_a_path_is_what_it_says(path: str) -> None:
    values = {
        "kubelet": {"rootDir": path, "devicePluginsDir": path},
        "mps": {"enabled": True, "root": path},
        "nvidiaDriverRoot": path,
    }
    validate(render(values))
    paths = {
        volume["name"]: volume["hostPath"]["path"] for volume in plugin_pod(values)["volumes"] if "hostPath" in volume
    }
    assert paths == {
        "kubelet-device-plugins-dir": path,
        "kubelet-pod-resources-dir": f"{path}/pod-resources",
        "driver-root": path,
        "mps-root": path,
        "mps-shm": f"{path}/shm",
    }


@pytest.mark.parametrize("end", ["-x", ".x", "--x", "x"])
@pytest.mark.parametrize("length", [57, 58, 59, 60, 61, 62, 63])
def test_a_long_name_is_cut_where_one_may_end(length: int, end: str) -> None:
    manifests = render(MPS | {"fullnameOverride": "n" * length + end, "nameOverride": "n" * length + end})
    validate(manifests)
    for manifest in manifests:
        assert not re.search(r"[.][-.]|-[.]", manifest["metadata"]["name"])
        assert manifest["metadata"]["name"][-1].isalnum()
        assert len(manifest["metadata"]["labels"]["app.kubernetes.io/name"]) <= 63


# Variables.


@pytest.mark.parametrize("name", ["NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES", "NVIDIA_MIG_MONITOR_DEVICES"])
def test_what_the_runtime_is_asked_can_be_said_otherwise(name: str) -> None:
    values = MPS | {"migStrategy": "mixed", "extraEnv": [{"name": name, "value": "mine"}]}
    validate(render(values))
    assert plugin_env(values)[name] == "mine"


@pytest.mark.parametrize(
    ("name", "value"), [("NVIDIA_CTK_PATH", "cdi.nvidiaHookPath"), ("MPS_SHM_SIZE", "mps.shmSize")]
)
def test_another_name_of_a_variable_is_refused_like_the_first(name: str, value: str) -> None:
    assert f"set {value}" in refusal({"extraEnv": [{"name": name, "value": "x"}]})


def test_a_variable_that_is_said_twice_is_refused() -> None:
    assert "extraEnv: found A twice" in refusal(
        {"extraEnv": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]}
    )


# Who is selected.


@pytest.mark.parametrize(
    "override",
    [{"app.kubernetes.io/instance": RELEASE}, {"app.kubernetes.io/name": "nvidia-device-plugin-mps"}],
)
def test_a_selector_that_takes_the_supervisors_pods_is_refused(override: dict[str, str]) -> None:
    """Reports O1: `kubectl exec daemonset/...` would reach either."""
    assert "selectorLabelsOverride: found " in refusal(MPS | {"selectorLabelsOverride": override})
    assert render({"selectorLabelsOverride": override}), "without a supervisor it takes nothing"


@pytest.mark.parametrize("override", [{"a": ""}, {"app": "x", "app.kubernetes.io/instance": RELEASE}])
def test_one_that_does_not_is_taken(override: dict[str, str]) -> None:
    validate(render(MPS | {"selectorLabelsOverride": override}))


# The config file.


def test_a_flag_that_is_null_in_the_file_is_unset() -> None:
    assert plugin_env({"config": {"map": {"a": "flags: {failOnInitError: null}"}}})["FAIL_ON_INIT_ERROR"] == "false"


@pytest.mark.parametrize("flags", ["migStrategy: 5", "migStrategy: {a: b}", "plugin: {deviceListStrategy: {a: b}}"])
def test_what_the_plugin_will_refuse_gets_no_right(flags: str) -> None:
    """It says what is wrong by line; the chart has no opinion, and no stack trace of templates."""
    values = {"config": {"map": {"a": f"flags: {{{flags}}}"}}}
    validate(render(values))
    assert plugin_container(values)["securityContext"]["capabilities"] == {"drop": ["ALL"]}


# Amounts.


@pytest.mark.parametrize("limit", ["1e7", "50000000000m", "5.0e7", 7.5e7])
def test_a_small_memory_limit_is_seen_however_it_is_written(limit: object) -> None:
    assert "resources.limits.memory: found " in refusal({"resources": {"limits": {"memory": limit}}})


@pytest.mark.parametrize("limit", ["1e9", "100000000000m", "2e+08", 1.5e8, "1Ti", "1.5Gi"])
def test_a_large_one_as_well(limit: object) -> None:
    validate(render({"resources": {"limits": {"memory": limit}}}))


@pytest.mark.parametrize("limit", ["128MB", "abc", -1, "-1", "128 Mi"])
def test_what_is_no_quantity_is_refused(limit: object) -> None:
    assert "/resources/limits/memory'" in refusal({"resources": {"limits": {"memory": limit}}})


@pytest.mark.parametrize(
    ("limit", "fits"), [("10m", False), (0.04, False), ("49m", False), ("50m", True), (1, True), (0.5, True)]
)
def test_a_cpu_limit_leaves_a_probe_its_time(limit: object, fits: bool) -> None:
    """Two probes at a time take 0.2 s of CPU, and have 5 s (decision 0704 has what is only pointed out)."""
    values = {"resources": {"limits": {"cpu": limit}}}
    if fits:
        assert plugin_container(values)["resources"] == values["resources"]
    else:
        assert f"resources.limits.cpu: found {limit}, expected at least 50m" in refusal(values)


@pytest.mark.parametrize("size", ["0Gi", "15Mi", "1M"])
def test_shared_memory_has_room(size: str) -> None:
    """The command that mounts it refuses less than 16 MiB, and a size of 0 would be no limit (tmpfs(5))."""
    assert f"mps.shmSize: found {size}, expected at least 16Mi" in refusal(MPS | {"mps": {"shmSize": size}})


# Shapes.


@pytest.mark.parametrize("probe", ["readiness", "liveness"])
def test_a_probe_that_is_null_is_none(probe: str) -> None:
    validate(render({"probes": {probe: None}}))
    assert f"{probe}Probe" not in plugin_container({"probes": {probe: None}})
    for key in ("periodSeconds", "timeoutSeconds", "failureThreshold"):
        assert f"/probes/{probe}/{key}'" in refusal({"probes": {probe: {key: 0}}})


@pytest.mark.parametrize(
    "values",
    [
        {"tolerations": [{"key": "a", "operator": "Equal", "value": True}]},
        {"tolerations": [{"kee": "a"}]},
        {"updateStrategy": {"type": "Recreate"}},
        {"updateStrategy": {"rollingUpdate": 5}},
        {"extraEnv": [{"name": "A", "value": 1}]},
        {"podLabels": {"no label!": "x"}},
        {"nodeSelector": {"a": "no label!"}},
        {"selectorLabelsOverride": {"a": "x" * 64}},
        {"config": {"map": {"a/b": "version: v1"}}},
        {"image": {"tag": "a b"}},
    ],
)
def test_what_the_api_server_would_refuse_is_refused_by_the_values_name(values: Values) -> None:
    (key,) = values
    assert key in refusal(values)


def test_a_digest_belongs_into_the_tag() -> None:
    digest = f"sha256:{'0' * 64}"
    assert "image.repository: found x@" in refusal({"image": {"repository": f"x@{digest}"}})
    values = {"image": {"repository": "registry.example:5000/x", "tag": f"v0.1.0@{digest}"}}
    assert plugin_container(values)["image"] == f"registry.example:5000/x:v0.1.0@{digest}"


# Rights that belong together.


def test_the_supervisor_keeps_its_gpus_under_the_static_cpu_manager() -> None:
    """What takes the GPUs from the plugin's container takes them from the control daemons'."""
    supervisor = only(render(MPS | {"compatWithCPUManager": True}), "DaemonSet", "-mps")
    (container,) = supervisor["spec"]["template"]["spec"]["containers"]
    assert container["securityContext"] == {"runAsUser": 0, "readOnlyRootFilesystem": True, "privileged": True}


@pytest.mark.parametrize("path", ["securityContext", "mps.securityContext"])
def test_a_security_context_without_what_mig_needs_is_refused(path: str) -> None:
    """NVIDIA's runtime starts no unprivileged container with NVIDIA_MIG_MONITOR_DEVICES."""

    def values(context: Values) -> Values:
        return {
            "migStrategy": "mixed",
            **({path: context} if path == "securityContext" else {"mps": {"securityContext": context}}),
        }

    dropped = {"capabilities": {"drop": ["ALL"]}}
    assert f"{path}: found " in refusal(values(dropped))
    assert render(values(dropped) | {"privileges": {"mig": False}})
    for enough in ({"privileged": True}, {"capabilities": {"add": ["SYS_ADMIN"]}}, {"capabilities": {"add": ["ALL"]}}):
        assert render(values(enough))


def test_a_driver_that_is_mounted_later_is_seen() -> None:
    """A driver in a container is mounted below the driver root when it is ready; a mount does not follow by itself."""
    daemon_sets = [
        one for one in render(MPS | {"nvidiaDriverRoot": "/run/nvidia/driver"}) if one["kind"] == "DaemonSet"
    ]
    for daemon_set in daemon_sets:
        (container,) = daemon_set["spec"]["template"]["spec"]["containers"]
        assert {
            "name": "driver-root",
            "mountPath": "/driver-root",
            "readOnly": True,
            "mountPropagation": "HostToContainer",
        } in container["volumeMounts"]
    assert len(daemon_sets) == 2


# As a part of another chart.


@pytest.fixture(scope="module")
def umbrella(tmp_path_factory: pytest.TempPathFactory) -> helm_python.Chart:
    """A chart that has ours as a dependency, under the name of NVIDIA's, with a condition."""
    chart = tmp_path_factory.mktemp("umbrella")
    shutil.copytree(CHART, chart / "charts" / CHART.name)
    (chart / "templates").mkdir()
    (chart / "values.yaml").write_text("nvidia-device-plugin: {enabled: true}\n")
    (chart / "Chart.yaml").write_text(
        "apiVersion: v2\nname: all\nversion: 1.0.0\ndependencies:\n"
        "- name: gpu-device-plugin\n  alias: nvidia-device-plugin\n  version: '*'\n"
        "  condition: nvidia-device-plugin.enabled\n"
    )
    return helm_python.Chart.load(chart)


def test_another_chart_may_have_it_under_a_condition(umbrella: helm_python.Chart) -> None:
    """Helm hands the condition on as a value of this chart."""

    def rendered(values: Values) -> set[str]:
        texts = umbrella.render(values, name=RELEASE, namespace=NAMESPACE)
        return {Path(path).name for path, text in texts.items() if text.strip()}

    assert rendered({}) == {"NOTES.txt", "plugin.yaml", "service-account.yaml"}
    assert rendered({"nvidia-device-plugin": {"enabled": False}}) == set()


def test_to_switch_the_plugin_off_takes_another_value() -> None:
    assert "/enabled'" in refusal({"enabled": False})
    assert "DaemonSet" not in render_text({"devicePlugin": {"enabled": False}})
