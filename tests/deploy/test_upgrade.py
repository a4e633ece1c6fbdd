"""Upgrades and roll-backs in place: what is immutable is the same in every version and with every value.

Against NVIDIA's chart: `test_names_and_selectors_are_those_of_nvidias_chart`; on the node: tests/serving/test_swap.py.
"""

import shutil
from pathlib import Path

import helm_python
import pytest
import yaml

from tests.deploy.chart import CHART, NAMESPACE, RELEASE, Manifest, Values, cases, chart, only, render
from tests.deploy.test_values import CHANGES

# The only values that make other objects of what is there; values.yaml says so beside each.
MAKE_OTHERS = {"nameOverride", "fullnameOverride", "namespaceOverride", "selectorLabelsOverride"}
MAKE_NONE = {"devicePlugin.enabled"}

Identity = tuple[str, str, str, str]


def identities(manifests: list[Manifest]) -> set[Identity]:
    """Kind, namespace, name and, of a DaemonSet, selector: another one can't replace what is there."""
    return {
        (
            one["kind"],
            one["metadata"]["namespace"],
            one["metadata"]["name"],
            str(sorted(one.get("spec", {}).get("selector", {}).get("matchLabels", {}).items())),
        )
        for one in manifests
    }


@pytest.fixture(scope="module")
def later(tmp_path_factory: pytest.TempPathFactory) -> helm_python.Chart:
    """This chart, in a version to come."""
    copy = tmp_path_factory.mktemp("later") / CHART.name
    shutil.copytree(CHART, copy)
    metadata = yaml.safe_load((copy / "Chart.yaml").read_text())
    (copy / "Chart.yaml").write_text(yaml.safe_dump(metadata | {"version": "7.8.9", "appVersion": "7.8.9"}))
    return helm_python.Chart.load(copy)


@pytest.mark.parametrize("name", cases())
def test_a_later_version_replaces_this_one_and_is_replaced_by_it(name: str, later: helm_python.Chart) -> None:
    rendered = later.render(cases()[name], name=RELEASE, namespace=NAMESPACE)
    texts = (text for path, text in rendered.items() if not Path(path).name.startswith("NOTES"))
    manifests = [one for text in texts for one in yaml.safe_load_all(text) if one]
    assert identities(manifests) == identities(render(cases()[name]))
    assert "7.8.9" in str(manifests), "it is another version"
    assert chart().metadata["version"] not in str([one["spec"]["selector"] for one in manifests if "spec" in one])


@pytest.mark.parametrize("path", sorted(CHANGES.keys() - MAKE_OTHERS - MAKE_NONE))
def test_no_other_value_makes_an_upgrade_fail(path: str) -> None:
    values, without = CHANGES[path]

    def daemon_sets(values: Values) -> set[Identity]:
        return {one for one in identities(render(values)) if one[0] == "DaemonSet"}

    fewer, more = sorted((daemon_sets(without), daemon_sets(values)), key=len)
    assert fewer <= more, "the plugin's is the same; the supervisor's may come or go"


@pytest.mark.parametrize("path", sorted(MAKE_OTHERS))
def test_those_that_do_are_known(path: str) -> None:
    values, without = CHANGES[path]
    assert identities(render(values)).isdisjoint(identities(render(without))) or path == "selectorLabelsOverride"
    assert identities(render(values)) != identities(render(without))


def test_the_supervisor_is_none_of_nvidias_daemon_sets() -> None:
    """Theirs is `<release>-...-mps-control-daemon` with the plugin's own selector (their issue 982)."""
    daemon_sets = {one[2]: one[3] for one in identities(render({"mps": {"enabled": True}})) if one[0] == "DaemonSet"}
    assert set(daemon_sets) == {"nvdp-nvidia-device-plugin", "nvdp-nvidia-device-plugin-mps"}
    assert len(set(daemon_sets.values())) == len(daemon_sets)


@pytest.fixture(scope="module")
def looking(tmp_path_factory: pytest.TempPathFactory) -> helm_python.Chart:
    """The chart, finding in the cluster what `global.found` says: `lookup` finds nothing without one."""
    copy = tmp_path_factory.mktemp("looking") / CHART.name
    shutil.copytree(CHART, copy)
    path = copy / "templates/_check.tpl"
    question = '(lookup "apps/v1" "DaemonSet" (include "gdp.namespace" .) $name)'
    assert path.read_text().count(question) == 1
    path.write_text(path.read_text().replace(question, "(.Values.global.found | default dict)"))
    return helm_python.Chart.load(copy)


WITH_MPS = {"config": {"map": {"a": "sharing: {mps: {resources: [{name: gpu, replicas: 2}]}}"}}}
WITHOUT: Values = {"config": {"map": {"a": "version: v1"}}}
SUPERVISOR = only(render(WITH_MPS), "DaemonSet", "-mps")


def refusal(looking: helm_python.Chart, values: Values, found: Manifest) -> str:
    """Why the chart does not render; empty: it does."""
    try:
        looking.render(values | {"global": {"found": found}}, name=RELEASE, namespace=NAMESPACE)
    except helm_python.HelmError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("values", "found", "expected"),
    [
        (WITHOUT, SUPERVISOR, True),
        ({}, SUPERVISOR, True),
        ({"config": {"name": "c", "default": "k"}}, SUPERVISOR, True),
        (WITHOUT, {}, False),
        (WITH_MPS, SUPERVISOR, False),
        (WITHOUT | {"mps": {"enabled": True}}, SUPERVISOR, False),
        (WITHOUT | {"mps": {"enabled": False}}, SUPERVISOR, False),
        ({"devicePlugin": {"enabled": False}}, SUPERVISOR, False),
        (WITHOUT, {"metadata": {"name": "nvdp-nvidia-device-plugin-mps", "labels": {"app": "another's"}}}, False),
        (WITHOUT, {"metadata": {"name": "nvdp-nvidia-device-plugin-mps"}}, False),
    ],
)
def test_the_supervisor_is_not_taken_from_under_its_pods_unasked(
    looking: helm_python.Chart, values: Values, found: Manifest, expected: bool
) -> None:
    """Decision 0731: Helm would delete it at once, with the CUDA contexts of every client."""
    said = "mps.enabled: found nothing, and the file asks for no MPS, but DaemonSet nvdp-nvidia-device-plugin-mps runs"
    reason = refusal(looking, values, found)
    assert (said in reason, bool(reason)) == (expected, expected)
