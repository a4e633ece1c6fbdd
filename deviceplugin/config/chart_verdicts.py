"""What becomes of a value of NVIDIA's chart beside its type: the rules for one key, with what others say."""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

from deviceplugin.config.chart_shapes import shown
from deviceplugin.config.document import quote_key
from deviceplugin.config.memory import MIB

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

    Takes the path, the same for messages, the value, and every value of the file by its path: of these any may be of a
    wrong type, which is told at its own path.
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
    if _nfd_leaves(given) and _is_placed_by_default(given):
        leaving = "nfd.enabled" if given.get("nfd.enabled") else "gfd.enabled"
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
    if _is_named_like_nvidias(value):
        return Verdict(Fate.CHANGES, where, "has the name of NVIDIA's image: set it to where ours is, or rename ours")
    return None


def _is_nvidias(repository: Any) -> bool:
    return re.search("nvidia.*k8s-device-plugin", str(repository)) is not None


def _is_named_like_nvidias(repository: Any) -> bool:
    return str(repository).rpartition("/")[2] == "k8s-device-plugin"


def _tag(where: str, value: Any, given: Mapping[str, Any]) -> Verdict | None:
    repository = given.get("image.repository")
    if repository is not None and not _is_nvidias(repository) and not _is_named_like_nvidias(repository):
        return None
    return Verdict(
        Fate.CHANGES, where, f"found {shown(value)}: a version of NVIDIA's means nothing to our image, remove it"
    )


def _files(where: str, value: Any, given: Mapping[str, Any]) -> Verdict | None:
    if len(value) > 1:
        kept = given.get("config.default") or ("default" if "default" in value else "")
        others = ", ".join(quote_key(name) for name in value if name != kept)
        text = f"{_BY_LABEL} is not offered: remove all but one "
        return Verdict(Fate.REFUSED, where, f"{text}(found {others} too), or install once for each node group")
    (only,) = value
    chosen = given.get("config.fallbackStrategies")
    fallbacks = chosen if isinstance(chosen, list) and chosen else ["named", "single"]
    if not (given.get("config.default") or "single" in fallbacks or (only == "default" and "named" in fallbacks)):
        text = f"config.fallbackStrategies do not choose {quote_key(only)}: set config.default to it"
        return Verdict(Fate.REFUSED, where, text)
    if given.get("rolloutOnConfigChange") is not None:
        return None
    text = "an edit no longer replaces the pods: the plugin reads it (rolloutOnConfigChange: false; true replaces them)"
    return Verdict(Fate.CHANGES, where, text)


def _name(where: str, value: Any, given: Mapping[str, Any]) -> Verdict | None:
    if given.get("config.map"):
        return Verdict(Fate.REFUSED, where, "found beside config.map, expected one of them: remove the other")
    if not given.get("config.default"):
        text = "set config.default to the key that is the file: our chart can't look into a ConfigMap of yours, and "
        return Verdict(Fate.REFUSED, where, f"{text}{_BY_LABEL} is not offered")
    return Verdict(
        Fate.CHANGES,
        where,
        f"every node gets {quote_key(str(given['config.default']))} of ConfigMap {value}: {_BY_LABEL} is not offered. "
        "Nodes that have "
        "the label (kubectl get nodes -L nvidia.com/device-plugin.config) and another file need an installation of "
        "their own, with a nodeSelector",
    )


def _default(where: str, value: Any, given: Mapping[str, Any]) -> Verdict | None:
    files = given.get("config.map")
    files = files if isinstance(files, dict) else {}
    if given.get("config.name") or value in files:
        return None
    names = ", ".join(quote_key(name) for name in files) or "none"
    return Verdict(Fate.REFUSED, where, f"found {shown(value)}, expected a key of config.map: {names}")


def _limits(where: str, value: Any, _: Mapping[str, Any]) -> Verdict | None:
    """Of memory what is sure to kill is refused; both what is little of memory and of CPU are pointed out."""
    memory, cpu = value.get("memory"), value.get("cpu")
    memory_mib = _amount(memory) / MIB
    cpu_milli = _amount(cpu) * 1000
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
    if _amount(memory) >= OUR_REQUEST_MIB * MIB:
        return None
    text = f"found memory: {memory}, expected {OUR_REQUEST_MIB}Mi or more: our process has about 50 MiB, NVIDIA's 17"
    return Verdict(Fate.CHANGES, where, text)


_SUFFIXES: Final = {
    **{letter: 1000.0**power for power, letter in zip((-3, -2, -1, 1, 2, 3, 4, 5, 6), "numkMGTPE", strict=True)},
    **{f"{letter}i": 1024.0**power for power, letter in enumerate("KMGTPE", 1)},
}


def _amount(quantity: Any) -> float:
    """Of memory in bytes, of CPU in cores; infinite for what is no quantity, which is told otherwise."""
    match = re.fullmatch(r"([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+|[A-Za-z]*)", str(quantity))
    if match is None:
        return math.inf
    if match[2] in _SUFFIXES:
        return float(match[1]) * _SUFFIXES[match[2]]
    try:
        return float(match[0])
    except ValueError:
        return math.inf


def _surge(where: str, value: Any, _: Mapping[str, Any]) -> Verdict | None:
    rolling = value.get("rollingUpdate") or {}
    surge, unavailable = rolling.get("maxSurge"), rolling.get("maxUnavailable")
    findings = []
    if str(surge or 0) not in ("0", "0%"):
        findings.append(
            f"found rollingUpdate.maxSurge: {shown(surge)}, expected 0: two plugins on a node take it from each other"
        )
    if str(unavailable) in ("0", "0%"):
        findings.append(
            f"found rollingUpdate.maxUnavailable: {shown(unavailable)}, expected more: no pod could be replaced"
        )
    return Verdict(Fate.REFUSED, where, "; ".join(findings)) if findings else None


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
    nfd_leaves = _nfd_leaves(given)
    lost = sorted(
        quote_key(label)
        for label in labels
        if _WRITTEN_BY_DISCOVERY.match(label) and (nfd_leaves or not label.startswith(_OF_NFD))
    )
    if not (leaving and lost):
        return None
    return Verdict(
        Fate.CHANGES,
        where,
        f"found {', '.join(lost)}, which feature discovery writes: without {leaving} nobody does, and a node that is "
        "chosen by it gets no pod of ours once it loses it. First install feature discovery on its own, or select by a "
        "label of yours",
    )


def _leaving(given: Mapping[str, Any]) -> str:
    """The subcharts in use that label nodes, which our chart has not; empty when there are none."""
    return " and ".join(f"{part}.enabled" for part in LABELLERS if given.get(f"{part}.enabled") is True)


def _nfd_leaves(given: Mapping[str, Any]) -> bool:
    """Whether the release has Node Feature Discovery: NVIDIA's chart goes by the first of both that is set."""
    nfd = given.get("nfd.enabled")
    return (given.get("gfd.enabled") if nfd is None else nfd) is True


_OF_NFD = "feature.node.kubernetes.io/"
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


_BY_LABEL = "choosing a file by the node label nvidia.com/device-plugin.config"
_RULES = {
    "updateStrategy": _surge,
    "image.repository": _image,
    "image.tag": _tag,
    "config.map": _files,
    "config.name": _name,
    "config.default": _default,
    "resources.limits": _limits,
    "resources.requests": _requests,
    "nodeSelector": _node_selector,
    "affinity": _affinity,
    "namespace": _namespace,
    "enabled": _enabled,
    "failOnInitError": _fail,
}
