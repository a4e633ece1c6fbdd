"""The static manifest: what NVIDIA's users rely on (drop-in.md 5), and the least rights that the plugin can do with."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from deviceplugin.config.settings import DEFAULT_STATUS_SOCKET, Settings
from tests.project import ROOT

DEFAULT_SETTINGS = Settings()
MANIFEST = ROOT / "deploy/static/nvidia-device-plugin.yml"
COMMANDS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]


@pytest.fixture(scope="module")
def daemon_set() -> dict[str, Any]:
    (document,) = yaml.safe_load_all(MANIFEST.read_text())
    assert (document["apiVersion"], document["kind"]) == ("apps/v1", "DaemonSet")
    return dict(document)


@pytest.fixture(scope="module")
def pod(daemon_set: dict[str, Any]) -> dict[str, Any]:
    return dict(daemon_set["spec"]["template"]["spec"])


@pytest.fixture(scope="module")
def container(pod: dict[str, Any]) -> dict[str, Any]:
    (only,) = pod["containers"]
    return dict(only)


def test_names_are_nvidias(daemon_set: dict[str, Any], container: dict[str, Any]) -> None:
    assert daemon_set["metadata"]["name"] == "nvidia-device-plugin-daemonset"
    assert daemon_set["metadata"]["namespace"] == "kube-system"
    assert daemon_set["spec"]["selector"] == {"matchLabels": {"name": "nvidia-device-plugin-ds"}}
    assert daemon_set["spec"]["template"]["metadata"]["labels"]["name"] == "nvidia-device-plugin-ds"
    assert container["name"] == "nvidia-device-plugin-ctr"


def test_one_plugin_on_a_node_at_a_time(daemon_set: dict[str, Any]) -> None:
    """Contract R12: when an older stream ends, the kubelet drops the newer connection."""
    assert daemon_set["spec"]["updateStrategy"] == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1},
    }


def test_it_runs_where_the_gpus_are(pod: dict[str, Any]) -> None:
    assert pod["priorityClassName"] == "system-node-critical"
    assert pod["tolerations"] == [
        {"key": "CriticalAddonsOnly", "operator": "Exists"},
        {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
    ]
    assert pod["nodeSelector"] == {"kubernetes.io/os": "linux"}


def test_it_has_the_least_rights(pod: dict[str, Any], container: dict[str, Any]) -> None:
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"] == {"seccompProfile": {"type": "RuntimeDefault"}}
    assert container["securityContext"] == {
        "runAsUser": 0,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {"hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace", "serviceAccountName"}.isdisjoint(pod)


def test_it_sees_the_driver_and_waits_for_it(container: dict[str, Any]) -> None:
    assert {variable["name"]: variable["value"] for variable in container["env"]} == {
        "NVIDIA_VISIBLE_DEVICES": "all",
        "NVIDIA_DRIVER_CAPABILITIES": "compute,utility",
        "FAIL_ON_INIT_ERROR": "false",
    }


def test_memory_fits_a_python_process(container: dict[str, Any]) -> None:
    assert container["resources"] == {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "128Mi"}}


@pytest.mark.parametrize(("probe", "option"), [("readinessProbe", "--ready"), ("livenessProbe", "--live")])
def test_probes_ask_the_plugin_itself(container: dict[str, Any], probe: str, option: str) -> None:
    command = container[probe]["exec"]["command"]
    assert command == ["gpu-device-plugin", "status", option]
    assert command[0] in COMMANDS
    assert container[probe]["timeoutSeconds"] >= 5, "the default of 1 s is short for a process start on a busy node"


def test_mounts_and_volumes_match(pod: dict[str, Any], container: dict[str, Any]) -> None:
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    host = {volume["name"]: volume["hostPath"] for volume in pod["volumes"] if "hostPath" in volume}
    empty = {volume["name"] for volume in pod["volumes"] if "emptyDir" in volume}
    assert mounts == {
        "device-plugins": "/var/lib/kubelet/device-plugins",
        "pod-resources": "/var/lib/kubelet/pod-resources",
        "run": "/run/gpu-device-plugin",
    }
    assert host == {name: {"path": mounts[name], "type": "Directory"} for name in ("device-plugins", "pod-resources")}
    assert empty == {"run"}
    assert str(Path(DEFAULT_STATUS_SOCKET).parent) == mounts["run"]
    assert str(DEFAULT_SETTINGS.kubelet_root_dir) + "/pod-resources" == mounts["pod-resources"]
    assert str(Path(DEFAULT_SETTINGS.kubelet_socket).parent) == mounts["device-plugins"]


def test_the_image_names_this_version_and_no_registry(container: dict[str, Any]) -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert re.fullmatch(rf"gpu-device-plugin:v{re.escape(version)}", container["image"])
    assert "command" not in container, "the image's entry point is the drop-in name"
