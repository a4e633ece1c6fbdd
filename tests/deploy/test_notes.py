"""What Helm prints at the end: how many nodes match, and what to run next."""

import re
import shutil
from pathlib import Path
from typing import Any

import helm_python
import pytest

from deviceplugin.cli.main import COMMANDS
from tests.deploy.chart import CHART, NAMESPACE, RELEASE, notes

Labels = dict[str, str]

BY_HAND = {"nvidia.com/gpu.present": "true"}
DISCOVERED = {"feature.node.kubernetes.io/pci-10de.present": "true"}


@pytest.fixture(scope="module")
def probe(tmp_path_factory: pytest.TempPathFactory) -> helm_python.Chart:
    """The chart, printing what its notes say of nodes that are given: `lookup` finds none without a cluster."""
    copy = tmp_path_factory.mktemp("chart") / CHART.name
    shutil.copytree(CHART, copy)
    text = '{{ include "gdp.matching" (dict "values" .Values "nodes" .Values.global.nodes) }}\n'
    for template in (copy / "templates").glob("*.yaml"):
        template.unlink()
    Path(copy / "templates/NOTES.txt").write_text(text)
    return helm_python.Chart.load(copy)


def matching(probe: helm_python.Chart, *labels: Labels, **values: Any) -> str:
    nodes = [{"metadata": {"name": f"n{number}", "labels": one}} for number, one in enumerate(labels)]
    rendered = probe.render({"global": {"nodes": nodes}} | values, name=RELEASE, namespace=NAMESPACE)
    return str(next(iter(rendered.values())))


def test_matching_nodes_are_counted(probe: helm_python.Chart) -> None:
    found = matching(probe, BY_HAND, DISCOVERED, {"other": "x"}, {**BY_HAND, "nvidia.com/gpu.present": "false"})
    assert found.startswith("2 of 4 nodes match the affinity and nodeSelector now: n0, n1")
    assert matching(probe, BY_HAND).startswith("1 of 1 nodes matches ")


def test_a_long_list_is_cut(probe: helm_python.Chart) -> None:
    assert matching(probe, *[BY_HAND] * 12).rstrip().endswith("n8, n9, ...")


def test_no_match_is_a_warning_with_the_cure(probe: helm_python.Chart) -> None:
    """Reports O1: installed, but 0 pods, without a word; the label has the device class in it."""
    found = matching(probe, {"feature.node.kubernetes.io/pci-0302_10de.present": "true"}, {})
    assert found.startswith("WARNING: none of 2 nodes matches")
    assert "pci-0302_10de.present" in found
    assert "kubectl label node NODE nvidia.com/gpu.present=true" in found


@pytest.mark.parametrize(
    ("operator", "values", "labels", "expected"),
    [
        ("In", ["a"], {"k": "a"}, True),
        ("In", ["a"], {"k": "b"}, False),
        ("In", ["a"], {}, False),
        ("NotIn", ["a"], {}, True),
        ("NotIn", ["a"], {"k": "a"}, False),
        ("Exists", None, {"k": ""}, True),
        ("Exists", None, {}, False),
        ("DoesNotExist", None, {}, True),
        ("DoesNotExist", None, {"k": "a"}, False),
        ("Gt", ["1"], {"k": "2"}, True),
    ],
)
def test_every_operator_counts(
    probe: helm_python.Chart, operator: str, values: list[str] | None, labels: Labels, expected: bool
) -> None:
    expression = {"key": "k", "operator": operator} | ({"values": values} if values else {})
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    assert matching(probe, labels, affinity=affinity).startswith("1 of 1" if expected else "WARNING")


def test_the_node_selector_counts(probe: helm_python.Chart) -> None:
    assert matching(probe, BY_HAND, BY_HAND | {"a": "b"}, nodeSelector={"a": "b"}).startswith("1 of 2 nodes matches")
    assert matching(probe, {}, affinity={"nodeAffinity": None}).startswith("1 of 1")


def test_nodes_are_only_listed_where_they_are_to_be_counted(tmp_path: Path) -> None:
    """Helm fails where its user may not list them."""
    copy = tmp_path / CHART.name
    shutil.copytree(CHART, copy)
    text = (copy / "templates/NOTES.txt").read_text()
    asked = 'lookup "v1" "Node" "" ""'
    assert text.count(asked) == 1
    (copy / "templates/NOTES.txt").write_text(text.replace(asked, 'fail "nodes is forbidden"'))
    chart = helm_python.Chart.load(copy)
    with pytest.raises(helm_python.HelmError, match="nodes is forbidden"):
        chart.render({}, name=RELEASE, namespace=NAMESPACE)
    assert chart.render({"countMatchingNodes": False}, name=RELEASE, namespace=NAMESPACE)


def test_without_a_cluster_it_says_how_to_count() -> None:
    assert "kubectl get nodes -L feature.node.kubernetes.io/pci-10de.present" in notes()


@pytest.mark.parametrize("values", [{}, {"config": {"map": {"a": "version: v1"}}}])
def test_the_commands_exist(values: dict[str, Any]) -> None:
    commands = re.findall(r"gpu-device-plugin (\w+)", notes(values))
    assert "status" in commands
    assert set(commands) <= set(COMMANDS)
    assert f"-n {NAMESPACE} exec daemonset/{RELEASE}-nvidia-device-plugin --" in notes(values)


def test_a_rollout_is_only_followed_where_there_is_one() -> None:
    """kubectl: "rollout status is only available for RollingUpdate strategy type"."""
    assert f"kubectl -n {NAMESPACE} rollout status daemonset/{RELEASE}-" in notes({"updateStrategy": None})
    by_hand = notes({"updateStrategy": {"type": "OnDelete"}})
    assert "rollout status" not in by_hand
    assert f"kubectl -n {NAMESPACE} get pods -o wide\n" in by_hand


def test_cdi_without_the_drivers_files_is_pointed_out() -> None:
    assert "set nvidiaDriverRoot" in notes({"deviceListStrategy": "cdi-cri"})
    assert "set nvidiaDriverRoot" not in notes({"deviceListStrategy": "cdi-cri", "nvidiaDriverRoot": "/"})
    assert "set nvidiaDriverRoot" not in notes()


def test_the_supervisor_is_named_where_it_runs() -> None:
    assert "daemonset/nvdp-nvidia-device-plugin-mps" in notes({"mps": {"enabled": True}})
    assert "-mps" not in notes()


def test_what_the_chart_cannot_see_is_said() -> None:
    unsaid: dict[str, dict[str, Any]] = {
        "privileges.mig: true": {"privileges": {"mig": True}},
        "mps.enabled: true": {"mps": {"enabled": False}},
        "cdi.enabled: true": {"cdi": {"enabled": True}},
        "deviceListStrategy: the same": {"deviceListStrategy": "volume-mounts"},
        "failOnInitError: true": {"failOnInitError": True},
    }
    by_name = {"config": {"name": "c", "default": "k"}}
    for value, said in unsaid.items():
        assert f" {value}" in notes(by_name)
        assert f" {value}" not in notes(by_name | said)
        assert value not in notes({"config": {"map": {"a": "version: v1"}}})
    everything = {key: value for said in unsaid.values() for key, value in said.items()}
    assert "can't look into" in notes(by_name)
    assert "can't look into" not in notes(by_name | everything)
    assert " privileges.mig: true" not in notes(by_name | {"migStrategy": "mixed"})


def test_nothing_that_runs_is_said_so() -> None:
    assert "nothing runs" in notes({"devicePlugin": {"enabled": False}})
