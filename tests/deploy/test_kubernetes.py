"""Every manifest is what Kubernetes takes: its own schemas, strictly, for the oldest and the newest version."""

import re

import helm_python
import kubernetes_validate
import pytest

from tests.deploy.chart import CHART, NAMESPACE, Manifest, cases, chart, render, static_manifests

OLDEST = re.sub(r"[^\d.]", "", chart().metadata["kubeVersion"]).rpartition(".")[0]
NEWEST = kubernetes_validate.latest_version()

MANIFESTS = static_manifests() | {name: render(values) for name, values in cases().items()}


def test_the_versions_are_as_the_contract_says() -> None:
    assert OLDEST == "1.26", "design 8: kubelets from 1.26 on"
    assert [int(part) for part in NEWEST.split(".")] >= [1, 37]


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
@pytest.mark.parametrize("name", MANIFESTS)
def test_manifests_are_valid(name: str, version: str) -> None:
    for manifest in MANIFESTS[name]:
        kubernetes_validate.validate(manifest, version, strict=True)


@pytest.mark.parametrize("change", [{"spec": {}}, {"kindd": "x"}])
def test_what_is_not_valid_is_found(change: Manifest) -> None:
    (manifest,) = (one for one in MANIFESTS["no-values"] if one["kind"] == "DaemonSet")
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(manifest | change, NEWEST, strict=True)


@pytest.mark.parametrize("name", MANIFESTS)
def test_pods_are_selected_by_their_own_controller_alone(name: str) -> None:
    """Reports O1: two DaemonSets must never share a selector."""
    controllers = [one["spec"] for one in MANIFESTS[name] if "selector" in one.get("spec", {})]
    selectors = [controller["selector"]["matchLabels"].items() for controller in controllers]
    for controller, own in zip(controllers, selectors, strict=True):
        labels = controller["template"]["metadata"]["labels"].items()
        assert [selector for selector in selectors if selector <= labels] == [own]


@pytest.mark.parametrize("name", MANIFESTS)
def test_mounts_have_volumes_and_volumes_are_mounted(name: str) -> None:
    for manifest in MANIFESTS[name]:
        if "template" in manifest.get("spec", {}):
            pod = manifest["spec"]["template"]["spec"]
            containers = [*pod["containers"], *pod.get("initContainers", [])]
            mounts = [mount for container in containers for mount in container["volumeMounts"]]
            assert {mount["name"] for mount in mounts} == {volume["name"] for volume in pod["volumes"]}
            assert [mount for mount in mounts if "subPath" in mount] == []


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_helms_own_lint_has_nothing_to_say(version: str) -> None:
    kube_version = f"v{version}.0" if version.count(".") == 1 else f"v{version}"
    report = helm_python.lint(CHART, {}, strict=True, namespace=NAMESPACE, kube_version=kube_version)
    said = [one for one in report["messages"] if "icon is recommended" not in one["error"]]
    assert (said, report["errors"]) == ([], [])
