"""What becomes of a value of NVIDIA's chart beside its type: the rules for one key, with what others say."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

from deviceplugin.config.chart_shapes import shown
from deviceplugin.config.memory import MIB, parse_memory_mib

LEAST_MEMORY_MIB: Final = 80
"""What the chart takes as a limit."""
OUR_MEMORY_MIB: Final = 128
OUR_REQUEST_MIB: Final = 64
LEAST_CPU_MILLI: Final = 50
"""What the chart takes as a limit: two probes at a time, of 0.1 s of CPU time each, last 4 s then, and may last 5 s."""
ENOUGH_CPU_MILLI: Final = 100
LABELLERS: Final = ("gfd", "nfd")
"""The subcharts that bring what labels nodes."""


class Fate(IntEnum):
    """What becomes of a setting; a greater one is worse."""

    STAYS = 0
    CHANGES = 1
    REFUSED = 2


@dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of one setting.

    Attributes:
        key: its path, with file and line where they are known.
        text: what happens, and what to do where something must be done.
    """

    fate: Fate
    key: str
    text: str


def ruled(path: str, where: str, value: Any, given: Mapping[str, Any]) -> Verdict | None:
    """The verdict of the rule that a path has, on a value of the right type; None: none, or the rule finds nothing.

    Takes the path, the same for messages, the value, and every value of the file by its path.
    """
    rule = _RULES.get(path)
    return rule(where, value, given) if rule else None


def unset(given: Mapping[str, Any], source: str) -> Iterator[Verdict]:
    """What changes by being left to the chart, where its default is another than NVIDIA's (docs/install.md).

    Takes every value of the file by its path, and the file's name for messages.
    """
    if given.get("image.repository") is None:
        text = "not set: set it to where your cluster pulls our image from; no registry has it"
        yield Verdict(Fate.CHANGES, f"{source}: image.repository", text)
    if (leaving := _leaving(given)) and _is_placed_by_default(given):
        yield Verdict(
            Fate.CHANGES,
            f"{source}: affinity",
            f"not set: pods are placed by labels of Node Feature Discovery, which goes with {leaving}. First install "
            "it on its own, or label the nodes: kubectl label node NODE nvidia.com/gpu.present=true",
        )


def _image(where: str, value: Any, _: Mapping[str, Any]) -> Verdict | None:
    if "@" in value:
        return Verdict(Fate.REFUSED, where, "a digest belongs into image.tag, as TAG@sha256:...")
    if _is_nvidias(value):
        return Verdict(Fate.REFUSED, where, "names NVIDIA's image: set it to where ours is, and remove image.tag")
    return None


def _is_nvidias(repository: Any) -> bool:
    return re.search("nvidia.*k8s-device-plugin", str(repository)) is not None


def _tag(where: str, value: Any, given: Mapping[str, Any]) -> Verdict | None:
    repository = given.get("image.repository")
    if repository is not None and not _is_nvidias(repository):
        return None
    return Verdict(
        Fate.CHANGES, where, f"found {shown(value)}: a version of NVIDIA's means nothing to our image, remove it"
    )


def _files(where: str, value: Any, given: Mapping[str, Any]) -> Verdict | None:
    if len(value) > 1:
        kept = given.get("config.default") or ("default" if "default" in value else "")
        others = ", ".join(name for name in value if name != kept)
        text = "choosing a file by the node label nvidia.com/device-plugin.config is not offered: remove all but one "
        return Verdict(Fate.REFUSED, where, f"{text}(found {others} too), or install once for each node group")
    if given.get("rolloutOnConfigChange") is not None:
        return None
    text = "an edit no longer replaces the pods: the plugin reads it (rolloutOnConfigChange: false; true replaces them)"
    return Verdict(Fate.CHANGES, where, text)


def _name(where: str, _: Any, given: Mapping[str, Any]) -> Verdict | None:
    if not given.get("config.default"):
        return Verdict(Fate.REFUSED, where, "set config.default to the key that is the file: our chart can't look")
    return None


def _limits(where: str, value: Any, _: Mapping[str, Any]) -> Verdict | None:
    """Of memory what is sure to kill is refused; both what is little of memory and of CPU are pointed out."""
    memory, cpu = value.get("memory"), value.get("cpu")
    memory_mib = OUR_MEMORY_MIB if memory is None else _mib(memory)
    cpu_milli = ENOUGH_CPU_MILLI if cpu is None else _millicores(cpu)
    findings = []
    if memory_mib < OUR_MEMORY_MIB:
        findings.append(
            f"found memory: {memory}, expected at least {LEAST_MEMORY_MIB}Mi, better {OUR_MEMORY_MIB}Mi as by default: "
            "our process has about 50 MiB (NVIDIA's 17), and a probe is a second one for a moment"
        )
    if cpu_milli < ENOUGH_CPU_MILLI:
        findings.append(
            f"found cpu: {cpu}, expected none or at least {LEAST_CPU_MILLI}m, better {ENOUGH_CPU_MILLI}m: probes are "
            "processes of 0.1 s of CPU time; where they last longer than their timeout the pod is restarted"
        )
    if not findings:
        return Verdict(Fate.STAYS, where, "same key, same meaning, and enough for our process")
    is_refused = memory_mib < LEAST_MEMORY_MIB or cpu_milli < LEAST_CPU_MILLI
    return Verdict(Fate.REFUSED if is_refused else Fate.CHANGES, where, "; ".join(findings))


def _requests(where: str, value: Any, _: Mapping[str, Any]) -> Verdict | None:
    memory = value.get("memory")
    if memory is None or _mib(memory) >= OUR_REQUEST_MIB:
        return None
    text = f"found memory: {memory}, expected {OUR_REQUEST_MIB}Mi or more: our process has about 50 MiB, NVIDIA's 17"
    return Verdict(Fate.CHANGES, where, text)


def _mib(quantity: Any) -> int:
    """Of memory; what is no quantity is the API server's business."""
    if isinstance(quantity, int | float):
        return int(quantity) // MIB
    try:
        return parse_memory_mib(quantity)
    except ValueError:
        return int(quantity) // MIB if quantity.isascii() and quantity.isdecimal() else OUR_MEMORY_MIB


def _millicores(quantity: Any) -> float:
    """Of CPU; what is no quantity is the API server's business."""
    match = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(m?)", str(quantity))
    return float(match[1]) * (1 if match[2] else 1000) if match else ENOUGH_CPU_MILLI


def _surge(where: str, value: Any, _: Mapping[str, Any]) -> Verdict | None:
    surge = (value.get("rollingUpdate") or {}).get("maxSurge")
    if str(surge or 0) in ("0", "0%"):
        return None
    text = f"found rollingUpdate.maxSurge: {surge}, expected 0: two plugins on a node take it from each other"
    return Verdict(Fate.REFUSED, where, text)


def _enabled(where: str, value: Any, _: Mapping[str, Any]) -> Verdict | None:
    if value is False:
        return Verdict(
            Fate.REFUSED, where, "found false, expected nothing: devicePlugin.enabled switches the plugin off"
        )
    return Verdict(Fate.STAYS, where, "the condition of a chart that has this one in it")


def _namespace(where: str, _: Any, __: Mapping[str, Any]) -> Verdict | None:
    return Verdict(Fate.REFUSED, where, "as by NVIDIA's chart: use helm's --namespace")


def _fail(where: str, value: Any, _: Mapping[str, Any]) -> Verdict | None:
    if value is True:
        return Verdict(Fate.STAYS, where, "a failed start ends the process; our default is to wait, not ready")
    return None


def _node_selector(where: str, value: Any, given: Mapping[str, Any]) -> Verdict | None:
    return _placed_by(where, value, given)


def _affinity(where: str, value: Any, given: Mapping[str, Any]) -> Verdict | None:
    return _placed_by(where, set(_label_keys(value.get("nodeAffinity"))), given)


def _placed_by(where: str, labels: "Mapping[str, Any] | set[str]", given: Mapping[str, Any]) -> Verdict | None:
    """That nobody writes a label any more by which pods are placed, when the subcharts that do are left out."""
    leaving = _leaving(given)
    lost = sorted(label for label in labels if _WRITTEN_BY_DISCOVERY.match(label))
    if not (leaving and lost):
        return None
    return Verdict(
        Fate.CHANGES,
        where,
        f"found {', '.join(lost)}, which feature discovery writes: without {leaving} nobody does, and no pod of ours "
        "starts on a node that loses it. First install feature discovery on its own, or select by a label of yours",
    )


def _leaving(given: Mapping[str, Any]) -> str:
    """The subcharts in use that label nodes, which our chart has not; empty when there are none."""
    return " and ".join(f"{part}.enabled" for part in LABELLERS if given.get(f"{part}.enabled") is True)


_WRITTEN_BY_DISCOVERY = re.compile(
    r"feature\.node\.kubernetes\.io/|nvidia\.com/(?:cuda\.|gfd\.|mig-|mig\.(?:capable|strategy)$|mps\.capable$|vgpu\.|"
    r"gpu\.(?!present$|deploy\.))"
)
"""Labels of Node Feature Discovery and of GPU feature discovery (drop-in.md 6), not those of people and operators."""


def _is_placed_by_default(given: Mapping[str, Any]) -> bool:
    """Whether the terms of the chart's own affinity count: Helm merges mappings, and null takes them away."""
    part: Any = {"affinity": given.get("affinity", {})}
    for key in ("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms"):
        if not isinstance(part, dict) or part.get(key, {}) is None:
            return False
        if key not in part:
            return True
        part = part[key]
    return False


def _label_keys(part: Any) -> Iterator[str]:
    """The labels that an affinity names, however deep."""
    if isinstance(part, dict):
        if isinstance(part.get("key"), str):
            yield part["key"]
        for below in part.values():
            yield from _label_keys(below)
    elif isinstance(part, list):
        for below in part:
            yield from _label_keys(below)


_RULES = {
    "updateStrategy": _surge,
    "image.repository": _image,
    "image.tag": _tag,
    "config.map": _files,
    "config.name": _name,
    "resources.limits": _limits,
    "resources.requests": _requests,
    "nodeSelector": _node_selector,
    "affinity": _affinity,
    "namespace": _namespace,
    "enabled": _enabled,
    "failOnInitError": _fail,
}
