"""The values of NVIDIA's chart (nvidia-device-plugin 0.20.0, drop-in.md 5), and what becomes of each under ours.

deploy/helm/gpu-device-plugin does what this says; a test holds the two together.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from deviceplugin.config.chart_shapes import problems, shown
from deviceplugin.config.document import join_path, load_plain
from deviceplugin.config.memory import MIB, parse_memory_mib
from deviceplugin.config.model import Origin
from deviceplugin.config.options import PATH, PLUGIN_SETTINGS
from deviceplugin.config.overrides import Given, Overrides
from deviceplugin.config.settings import value_of
from deviceplugin.config.suggest import nearest
from deviceplugin.config.types import Boolean, ListOf, Type
from deviceplugin.errors import ConfigError


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


@dataclass(frozen=True, slots=True)
class ChartValues:
    """A values file as it concerns the plugin.

    Attributes:
        verdicts: of every key that is set, in the order of the file.
        files: config files that it carries, by name.
        overrides: what it sets above the file, as the chart does by variables.
    """

    verdicts: tuple[Verdict, ...]
    files: Mapping[str, str]
    overrides: Overrides


_SETTINGS = {
    "migStrategy": "mig_strategy",
    "failOnInitError": "fail_on_init_error",
    "compatWithCPUManager": "pass_device_specs",
    "deviceListStrategy": "device_list_strategy",
    "deviceIDStrategy": "device_id_strategy",
    "nvidiaDriverRoot": "nvidia_driver_root",
    "nvidiaDevRoot": "nvidia_dev_root",
    "gdrcopyEnabled": "gdrcopy_enabled",
    "gdsEnabled": "gds_enabled",
    "mofedEnabled": "mofed_enabled",
    "deviceDiscoveryStrategy": "device_discovery_strategy",
    "mps.root": "mps_root",
    "cdi.nvidiaHookPath": "cdi_hook_path",
    "cdi.featureFlags": "cdi_feature_flags",
}

_TYPES: Mapping[str, Type] = {
    path: one.type for path, setting in _SETTINGS.items() for one in PLUGIN_SETTINGS if one.id == setting
}

_SECTIONS: Mapping[str, tuple[str, ...]] = {
    "config": ("name", "map", "default", "fallbackStrategies"),
    "image": ("repository", "pullPolicy", "tag"),
    "devicePlugin": ("enabled", "enableHostNetwork"),
    "mps": ("root", "enableHostPID", "enableHostNetwork"),
    "cdi": ("nvidiaHookPath", "featureFlags"),
    "resources": ("requests", "limits", "claims"),
}
_NEEDED = frozenset(("config", "image", "image.repository", "devicePlugin", "mps", "mps.root", "cdi"))
"""What neither chart can do without: null there removes the default."""
_WHOLE = (
    *("nameOverride", "fullnameOverride", "namespaceOverride", "selectorLabelsOverride", "allowDefaultNamespace"),
    *("imagePullSecrets", "updateStrategy", "podAnnotations", "podSecurityContext", "securityContext", "nodeSelector"),
    *("affinity", "tolerations", "priorityClassName", "runtimeClassName", "global", "namespace", "gfd", "nfd"),
)
_KNOWN = (
    *(key for key in _SETTINGS if "." not in key),
    *_WHOLE,
    *_SECTIONS,
)
_NVIDIAS_GFD_AND_NFD: Mapping[str, Mapping[str, Any]] = {
    "gfd": {
        "enabled": False,
        "nameOverride": "gpu-feature-discovery",
        "namespaceOverride": "",
        "noTimestamp": None,
        "sleepInterval": None,
        "enableHostNetwork": False,
        "securityContext": {"privileged": True},
    },
    "nfd": {
        "enabled": False,
        "nameOverride": "node-feature-discovery",
        "master": {
            "serviceAccount": {"name": "node-feature-discovery", "create": True},
            "config": {"extraLabelNs": ["nvidia.com"]},
        },
        "worker": {
            "tolerations": [
                {"key": "node-role.kubernetes.io/master", "operator": "Equal", "value": "", "effect": "NoSchedule"},
                {"key": "nvidia.com/gpu", "operator": "Equal", "value": "present", "effect": "NoSchedule"},
            ],
            "config": {"sources": {"pci": {"deviceClassWhitelist": ["02", "03"], "deviceLabelFields": ["vendor"]}}},
        },
    },
}
_ELSEWHERE = {
    "gfd": "GPU feature discovery is not part of our chart: remove the key, and run NVIDIA's own beside it if you need "
    "its labels",
    "nfd": "Node Feature Discovery is not part of our chart: remove the key, and install it with its own chart, or "
    "label nodes by hand (nvidia.com/gpu.present=true)",
}
LEAST_MEMORY_MIB = 80
_MEMORY = (
    "Our process has about 50 MiB, NVIDIA's 17: the chart refuses less than 80Mi; remove the key for ours (request "
    "64Mi, limit 128Mi). It is not the MPS supervisor's any more: that has mps.resources, and no limit by itself"
)


def read_chart_values(data: bytes, source: str) -> ChartValues:
    """What becomes of the values of NVIDIA's chart.

    Takes the bytes of a values file and its name for messages. Raises ConfigError when it is no YAML mapping.
    """
    values = load_plain(data, source)
    if values is None:
        values = {}
    if not isinstance(values, dict):
        raise ConfigError((f"{source}: found a {type(values).__name__}, expected the values of a chart: a mapping",))
    given = dict(_given(values))
    files = given.get("config.map")
    settings = {path: given[path] for path in _SETTINGS if given.get(path) is not None}
    return ChartValues(
        tuple(_judge(path, value, given, source) for path, value in given.items() if _asks(path, value)),
        {name: text for name, text in files.items() if isinstance(text, str)} if isinstance(files, dict) else {},
        Overrides(
            {
                _SETTINGS[path]: Given(_setting(path, value), Origin(f"{source}: {path}"))
                for path, value in settings.items()
                if not _problem(path, value)
            }
        ),
    )


def _asks(path: str, value: Any) -> bool:
    """Whether a key asks for anything: null is unset where it may be, and so is an empty value of the right type."""
    if value is None:
        return path in _NEEDED
    section, _, key = path.partition(".")
    if section in _ELSEWHERE and value in ("", {}, []):
        return not _is_nvidias_default(section, key, value)
    return value not in ("", {}, []) or path in _SETTINGS or not _is_known(section, key) or bool(_problem(path, value))


def _is_known(section: str, key: str) -> bool:
    """Whether NVIDIA's chart has such a value, outside what is not part of ours."""
    return section in _KNOWN and (not key or key in _SECTIONS.get(section, ()))


def _is_nvidias_default(section: str, key: str, value: Any) -> bool:
    """Whether a key of a chart that is not part of ours has the default of NVIDIA's; 0 is not false there."""
    defaults = _NVIDIAS_GFD_AND_NFD[section]
    return key in defaults and json.dumps(value, sort_keys=True) == json.dumps(defaults[key], sort_keys=True)


def _setting(path: str, value: Any) -> object:
    """A value as the plugin gets it: by a variable, a list with commas. Raises ValueError for one of another type."""
    kind = _TYPES[path]
    if isinstance(kind, Boolean):
        if not isinstance(value, bool):
            raise ValueError
        return value
    words = value if isinstance(value, list) and isinstance(kind, ListOf) else [value]
    if not all(isinstance(word, str) for word in words) or (kind is PATH and not words[0].startswith("/")):
        raise ValueError
    return value_of(kind, ",".join(words))


def _problem(path: str, value: Any) -> str:
    """Why the chart refuses what a key is set to, where that is the key's own matter; empty when it does not."""
    if value is None:
        return "found nothing, which removes the default: remove the key"
    try:
        if path in _TYPES:
            _setting(path, value)
    except ValueError:
        return f"found {shown(value)}, expected {_TYPES[path].expected}, or remove the key"
    return "; ".join(problems(path, value))


def _given(values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Every value by its path, as deep as a key has a meaning of its own."""
    for key, value in values.items():
        if isinstance(value, dict) and (key in _SECTIONS or key in _ELSEWHERE):
            yield from ((join_path(key, below), deeper) for below, deeper in value.items())
        else:
            yield key, value


def _judge(path: str, value: Any, given: Mapping[str, Any], source: str) -> Verdict:
    section, _, key = path.partition(".")
    where = f"{source}: {path}"
    if section in _ELSEWHERE:
        if _is_nvidias_default(section, key, value):
            return Verdict(Fate.STAYS, where, "NVIDIA's default; asks for nothing")
        return Verdict(
            Fate.REFUSED, where, f"found {shown(value)}, expected nothing or NVIDIA's default: {_ELSEWHERE[section]}"
        )
    if not _is_known(section, key):
        options = _SECTIONS[section] if key else _KNOWN
        near = nearest(key or section, options)
        hint = f"; did you mean {near}?" if near else "; remove it"
        return Verdict(Fate.REFUSED, where, f"no value of NVIDIA's chart, which ignores it; ours refuses it{hint}")
    if problem := _problem(path, value):
        return Verdict(Fate.REFUSED, where, problem)
    special = _SPECIAL.get(path)
    return (special and special(where, value, given)) or Verdict(Fate.STAYS, where, "same key, same meaning")


def _image(where: str, value: Any, _: Mapping[str, Any]) -> Verdict | None:
    if "nvidia" in str(value) and "k8s-device-plugin" in str(value):
        return Verdict(Fate.REFUSED, where, "names NVIDIA's image: set it to where ours is, and remove image.tag")
    return None


def _tag(where: str, _: Any, __: Mapping[str, Any]) -> Verdict:
    return Verdict(Fate.CHANGES, where, "a version of NVIDIA's means nothing to our image: remove it")


def _files(where: str, value: Any, given: Mapping[str, Any]) -> Verdict | None:
    if len(value) > 1:
        kept = given.get("config.default") or ("default" if "default" in value else "")
        others = ", ".join(name for name in value if name != kept)
        text = "choosing a file by the node label nvidia.com/device-plugin.config is not offered: remove all but one "
        return Verdict(Fate.REFUSED, where, f"{text}(found {others} too), or install once for each node group")
    return Verdict(Fate.CHANGES, where, "an edit no longer replaces the pods: the plugin reads it")


def _name(where: str, _: Any, given: Mapping[str, Any]) -> Verdict | None:
    if not given.get("config.default"):
        return Verdict(Fate.REFUSED, where, "set config.default to the key that is the file: our chart can't look")
    return Verdict(
        Fate.CHANGES, where, "the rights that the file needs must be values: privileges.mig, cdi.enabled, ..."
    )


def _memory(where: str, value: Any, _: Mapping[str, Any]) -> Verdict | None:
    limit = value.get("memory") if isinstance(value, dict) else None
    if limit is None:
        return None
    fate = Fate.REFUSED if _mib(limit) < LEAST_MEMORY_MIB else Fate.CHANGES
    return Verdict(fate, where, f"found memory: {limit}. {_MEMORY}")


def _mib(quantity: Any) -> int:
    """Of a memory limit; what is no quantity is the API server's business."""
    if isinstance(quantity, int):
        return quantity // MIB
    try:
        return parse_memory_mib(str(quantity))
    except ValueError:
        return LEAST_MEMORY_MIB


def _surge(where: str, value: Any, _: Mapping[str, Any]) -> Verdict | None:
    rolling = value.get("rollingUpdate") if isinstance(value, dict) else None
    surge = rolling.get("maxSurge") if isinstance(rolling, dict) else None
    if str(surge or 0) in ("0", "0%"):
        return None
    text = f"found rollingUpdate.maxSurge: {surge}, expected 0: two plugins on a node take it from each other"
    return Verdict(Fate.REFUSED, where, text)


def _namespace(where: str, _: Any, __: Mapping[str, Any]) -> Verdict:
    return Verdict(Fate.REFUSED, where, "as by NVIDIA's chart: use helm's --namespace")


def _fail(where: str, value: Any, _: Mapping[str, Any]) -> Verdict | None:
    if value is True:
        return Verdict(Fate.STAYS, where, "a failed start ends the process; our default is to wait, not ready")
    return None


_SPECIAL = {
    "updateStrategy": _surge,
    "image.repository": _image,
    "image.tag": _tag,
    "config.map": _files,
    "config.name": _name,
    "resources.limits": _memory,
    "namespace": _namespace,
    "failOnInitError": _fail,
}
