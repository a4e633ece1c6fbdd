"""The static manifests beside the plain one (tests/project/test_manifest.py): what differs, and nothing else."""

import copy
from typing import Any

import pytest

from tests.deploy.chart import Manifest, static_manifests

PLAIN = "nvidia-device-plugin.yml"
MANIFESTS = static_manifests()


def daemon_set(name: str) -> Manifest:
    (found,) = (one for one in MANIFESTS[name] if one["metadata"]["name"] == "nvidia-device-plugin-daemonset")
    return copy.deepcopy(found)


def container(of: Manifest) -> Manifest:
    (only,) = of["spec"]["template"]["spec"]["containers"]
    return dict(only)


DIFFERENCES: dict[str, dict[str, Any]] = {
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
    wanted["securityContext"] = DIFFERENCES[name]["securityContext"]
    assert found == expected


@pytest.mark.parametrize("name", MANIFESTS)
def test_one_replaces_the_other(name: str) -> None:
    """Selectors are immutable: with the same ones `kubectl apply` goes from any manifest to any, NVIDIA's included."""
    assert daemon_set(name)["spec"]["selector"] == {"matchLabels": {"name": "nvidia-device-plugin-ds"}}
    assert container(daemon_set(name))["name"] == "nvidia-device-plugin-ctr"
