"""Renders the Helm chart with real Helm (its Go SDK, v4, in the package helm-python-sdk), without a cluster."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import helm_python
import yaml

from tests.project import ROOT

CHART = ROOT / "deploy/helm/gpu-device-plugin"
STATIC = ROOT / "deploy/static"
CASES = Path(__file__).with_name("renderings")
RELEASE, NAMESPACE = "nvdp", "nvidia-device-plugin"

Values = dict[str, Any]
Manifest = dict[str, Any]
RenderingRefused = helm_python.HelmError


@cache
def chart() -> helm_python.Chart:
    """The chart, loaded once."""
    loaded: helm_python.Chart = helm_python.Chart.load(CHART)
    return loaded


def render_text(values: Values | None = None, *, release: str = RELEASE, namespace: str = NAMESPACE) -> str:
    """Every object of the chart as one YAML stream, in the order of the templates. Raises RenderingRefused."""
    rendered = chart().render(values or {}, name=release, namespace=namespace)
    texts = [text.strip("\n") for name, text in sorted(rendered.items()) if not name.endswith("NOTES.txt")]
    return "".join(f"---\n{text}\n" for text in texts if text.strip())


def render(values: Values | None = None, *, release: str = RELEASE, namespace: str = NAMESPACE) -> list[Manifest]:
    """Every object of the chart. Raises RenderingRefused."""
    return list(yaml.safe_load_all(render_text(values, release=release, namespace=namespace)))


def notes(values: Values | None = None) -> str:
    """What Helm prints after the installation. Raises RenderingRefused."""
    rendered = chart().render(values or {}, name=RELEASE, namespace=NAMESPACE)
    text: str
    (text,) = (text for name, text in rendered.items() if name.endswith("NOTES.txt"))
    return text


def refusal(values: Values, **release: str) -> str:
    """Why the chart does not render with these values."""
    try:
        render(values, **release)
    except RenderingRefused as refused:
        return str(refused)
    raise AssertionError(f"rendered, expected a refusal: {values}")


def only(manifests: list[Manifest], kind: str, suffix: str = "") -> Manifest:
    """The one object of a kind whose name ends so."""
    (manifest,) = (one for one in manifests if one["kind"] == kind and one["metadata"]["name"].endswith(suffix))
    return manifest


def plugin_pod(values: Values | None = None) -> Manifest:
    """The plugin's pod as rendered from these values."""
    daemon_sets = [one for one in render(values) if one["kind"] == "DaemonSet"]
    (pod,) = (
        one["spec"]["template"]["spec"]
        for one in daemon_sets
        if one["spec"]["template"]["spec"]["containers"][0]["name"] == "nvidia-device-plugin-ctr"
    )
    return dict(pod)


def plugin_container(values: Values | None = None) -> Manifest:
    """The plugin's container as rendered from these values."""
    (container,) = plugin_pod(values)["containers"]
    return dict(container)


def plugin_env(values: Values | None = None) -> dict[str, str]:
    """The variables of the plugin's container."""
    return {one["name"]: one["value"] for one in plugin_container(values)["env"]}


def static_manifests() -> dict[str, list[Manifest]]:
    """Every static manifest by file name."""
    return {path.name: list(yaml.safe_load_all(path.read_text())) for path in sorted(STATIC.glob("*.yml"))}


def cases() -> dict[str, Values]:
    """The values of each golden rendering, by name."""
    return {path.parent.name: yaml.safe_load(path.read_text()) or {} for path in sorted(CASES.glob("*/values.yaml"))}


def pods(manifests: list[Manifest]) -> Iterator[tuple[str, Manifest]]:
    """The pods that the objects make, with the name of the object that makes them."""
    for manifest in manifests:
        template = manifest.get("spec", {}).get("template")
        if template is not None:
            yield manifest["metadata"]["name"], template["spec"]
