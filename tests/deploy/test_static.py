"""The static manifests beside the plain one (tests/project/test_manifest.py): what differs, and nothing else."""

import copy
import re
from typing import Any

import pytest
import yaml

from deviceplugin.config.load import parse_config
from tests.deploy.chart import Manifest, cases, only, render, static_manifests
from tests.project import ROOT

PLAIN = "nvidia-device-plugin.yml"
MANIFESTS = static_manifests()


def daemon_set(name: str) -> Manifest:
    (found,) = (one for one in MANIFESTS[name] if one["metadata"]["name"] == "nvidia-device-plugin-daemonset")
    return copy.deepcopy(found)


def container(of: Manifest) -> Manifest:
    (only,) = of["spec"]["template"]["spec"]["containers"]
    return dict(only)


CONFIG_MOUNT: dict[str, tuple[str, dict[str, Any]]] = {
    "config": ("/config", {"configMap": {"name": "nvidia-device-plugin-config"}}),
}
MPS_MOUNTS = {
    **CONFIG_MOUNT,
    "mps-root": ("/mps", {"hostPath": {"path": "/run/nvidia/mps", "type": "DirectoryOrCreate"}}),
    "mps-shm": ("/dev/shm", {"hostPath": {"path": "/run/nvidia/mps/shm", "type": "DirectoryOrCreate"}}),
}
DIFFERENCES: dict[str, dict[str, Any]] = {
    "nvidia-device-plugin-config.yml": {"env": {"CONFIG_FILE": "/config/config.yaml"}, "mounts": CONFIG_MOUNT},
    "nvidia-device-plugin-mps.yml": {
        "env": {"CONFIG_FILE": "/config/config.yaml", "MPS_ROOT": "/run/nvidia/mps"},
        "mounts": MPS_MOUNTS,
    },
    "nvidia-device-plugin-compat-with-cpumanager.yml": {
        "env": {"PASS_DEVICE_SPECS": "true"},
        "securityContext": {"runAsUser": 0, "readOnlyRootFilesystem": True, "privileged": True},
    },
    "nvidia-device-plugin-mig.yml": {
        "env": {"MIG_STRATEGY": "mixed", "NVIDIA_MIG_MONITOR_DEVICES": "all"},
        "securityContext": {
            "runAsUser": 0,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"], "add": ["SYS_ADMIN"]},
        },
    },
}


def test_every_manifest_is_compared() -> None:
    assert set(MANIFESTS) == {PLAIN, *DIFFERENCES}


@pytest.mark.parametrize("name", DIFFERENCES)
def test_it_is_the_plain_one_but_for_what_its_feature_needs(name: str) -> None:
    found, expected = daemon_set(name), daemon_set(PLAIN)
    (wanted,) = expected["spec"]["template"]["spec"]["containers"]
    wanted["env"] += [{"name": key, "value": value} for key, value in DIFFERENCES[name]["env"].items()]
    wanted["securityContext"] = DIFFERENCES[name].get("securityContext", wanted["securityContext"])
    for volume, (path, source) in DIFFERENCES[name].get("mounts", {}).items():
        read_only = {"readOnly": True} if "configMap" in source else {}
        wanted["volumeMounts"].append({"name": volume, "mountPath": path, **read_only})
        expected["spec"]["template"]["spec"]["volumes"].append({"name": volume, **source})
    assert found == expected


@pytest.mark.parametrize("name", MANIFESTS)
def test_one_replaces_the_other(name: str) -> None:
    """Selectors are immutable: with the same ones `kubectl apply` goes from any manifest to any, NVIDIA's included."""
    assert daemon_set(name)["spec"]["selector"] == {"matchLabels": {"name": "nvidia-device-plugin-ds"}}
    assert container(daemon_set(name))["name"] == "nvidia-device-plugin-ctr"


def test_the_supervisor_reads_what_the_plugin_reads() -> None:
    name = "nvidia-device-plugin-mps.yml"
    (supervisor,) = (one for one in MANIFESTS[name] if one["metadata"]["name"] == "nvidia-device-plugin-mps")
    (container_of_it,) = supervisor["spec"]["template"]["spec"]["containers"]
    assert container_of_it["env"] == container(daemon_set(name))["env"]
    assert supervisor["spec"]["updateStrategy"] == {"type": "OnDelete"}


def test_the_init_container_that_stands_in_it_as_a_comment_is_the_charts() -> None:
    text = (ROOT / "deploy/static/nvidia-device-plugin-mps.yml").read_text()
    commented = re.findall(r"^      # ((?:initContainers:| ).*)$", text, re.MULTILINE)
    (found,) = yaml.safe_load("\n".join(commented))["initContainers"]
    supervisor = only(render(cases()["mps-shm-size"]), "DaemonSet", "-mps")
    (expected,) = supervisor["spec"]["template"]["spec"]["initContainers"]
    for key in ("name", "command", "env", "securityContext", "volumeMounts"):
        assert found[key] == expected[key]


@pytest.mark.parametrize("name", [name for name in MANIFESTS if "ConfigMap" in str(MANIFESTS[name])])
def test_its_file_is_a_good_one_and_the_one_that_is_mounted(name: str) -> None:
    (config_map,) = (one for one in MANIFESTS[name] if one["kind"] == "ConfigMap")
    pod = daemon_set(name)["spec"]["template"]["spec"]
    (volume,) = (one for one in pod["volumes"] if "configMap" in one)
    assert volume["configMap"] == {"name": config_map["metadata"]["name"]}
    assert config_map["metadata"]["namespace"] == daemon_set(name)["metadata"]["namespace"]
    ((key, text),) = config_map["data"].items()
    (mounted,) = (one["mountPath"] for one in container(daemon_set(name))["volumeMounts"] if one["name"] == "config")
    assert {"name": "CONFIG_FILE", "value": f"{mounted}/{key}"} in container(daemon_set(name))["env"]
    config = parse_config(text.encode(), key)
    assert (config.mps is not None, config.time_slicing is not None) == ("-mps" in name, "-mps" not in name)
    assert config.warnings == ()
