"""The values of NVIDIA's chart (nvidia-device-plugin 0.20.0, drop-in.md 5), and what becomes of each under ours.

deploy/helm/gpu-device-plugin does what this says; a test holds the two together.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from deviceplugin.config.chart_files import values_in
from deviceplugin.config.chart_shapes import problems, shown
from deviceplugin.config.chart_verdicts import Fate, Verdict, ruled, unset
from deviceplugin.config.document import MappingNode, join_path, quote_key, to_plain
from deviceplugin.config.model import Origin
from deviceplugin.config.options import PATH, PLUGIN_SETTINGS
from deviceplugin.config.overrides import Given, Overrides
from deviceplugin.config.settings import value_of
from deviceplugin.config.suggest import nearest
from deviceplugin.config.types import Boolean, ListOf, Type


@dataclass(frozen=True, slots=True)
class ChartValues:
    """A values file as it concerns the plugin.

    Attributes:
        verdicts: of every key that is set, in the order of the file, and of what is not set and has another default.
        given: every value that is set, by path; null too.
        lines: where each stands, by path, from 1.
        source: the file's name, for messages.
        overrides: what it sets above the config file, as the chart does by variables.
    """

    verdicts: tuple[Verdict, ...]
    given: Mapping[str, Any]
    lines: Mapping[str, int]
    source: str
    overrides: Overrides

    def where(self, path: str) -> str:
        """A path for messages, with file and line where it is set."""
        return _where(path, self.source, self.lines)

    @property
    def files(self) -> Mapping[str, str]:
        """The config files that it carries, by name."""
        files = self.given.get("config.map")
        return {name: text for name, text in files.items() if isinstance(text, str)} if isinstance(files, dict) else {}


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

SECTIONS: Mapping[str, tuple[str, ...]] = {
    "config": ("name", "map", "default", "fallbackStrategies"),
    "image": ("repository", "pullPolicy", "tag"),
    "devicePlugin": ("enabled", "enableHostNetwork"),
    "mps": ("root", "enableHostPID", "enableHostNetwork"),
    "cdi": ("nvidiaHookPath", "featureFlags"),
    "resources": ("requests", "limits", "claims"),
}
OUR_SECTIONS: Mapping[str, tuple[str, ...]] = {
    "podLabels": (),
    "rolloutOnConfigChange": (),
    "configStrictness": (),
    "extraEnv": (),
    "countMatchingNodes": (),
    "enabled": (),
    "privileges": ("mig",),
    "kubelet": ("rootDir", "devicePluginsDir"),
    "log": ("format", "level"),
    "healthChecks": ("disable", "enable"),
    "probes": ("readiness", "liveness"),
    "mps": ("enabled", "securityContext", "resources", "shmSize"),
    "cdi": ("enabled",),
}
"""What only our chart has; a file that has been made ready for it holds them already."""
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
    *SECTIONS,
)
KEYS = frozenset((*_KNOWN, *OUR_SECTIONS))
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
        "enableNodeFeatureApi": False,
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
"""Of every release from 0.15 to 0.20."""
_ELSEWHERE = {
    "gfd": "GPU feature discovery is not part of our chart: remove the key, and run NVIDIA's own beside it if you need "
    "its labels",
    "nfd": "Node Feature Discovery is not part of our chart: remove the key, and install it with its own chart, or "
    "label nodes by hand (nvidia.com/gpu.present=true)",
}


def read_chart_values(data: bytes, source: str) -> ChartValues:
    """What becomes of the values of NVIDIA's chart.

    Takes the bytes of a values file and its name for messages. Raises ConfigError when it is no YAML mapping.
    """
    part, root = values_in(data, source, KEYS)
    values = list(_given(root))
    given = {path: value for path, _, value in values}
    lines = {path: line for path, line, _ in values}
    inside = f"{source}: {quote_key(part)}", "the values of NVIDIA's chart, as a part of another chart's"
    return ChartValues(
        verdicts=(
            *([Verdict(Fate.STAYS, *inside)] if part else []),
            *(
                _judge(path, value, given, _where(path, source, lines))
                for path, value in given.items()
                if _asks(path, value)
            ),
            *unset(given, source),
        ),
        given=given,
        lines=lines,
        source=source,
        overrides=Overrides(
            {
                setting: Given(_setting(path, given[path]), Origin(path, source, lines[path]))
                for path, setting in _SETTINGS.items()
                if given.get(path) is not None and not _problem(path, given[path])
            }
        ),
    )


def _where(path: str, source: str, lines: Mapping[str, int]) -> str:
    shown_path = quote_key(path)
    return str(Origin(shown_path, source, lines[path])) if path in lines else f"{source}: {shown_path}"


def _asks(path: str, value: Any) -> bool:
    """Whether a key asks for anything: null is unset where it may be, and so is an empty value of the right type."""
    if value is None:
        return path in _NEEDED
    section, _, key = path.partition(".")
    if section in _ELSEWHERE and value in ("", {}, []):
        return not _is_nvidias_default(section, key, value)
    return value not in ("", {}, []) or path in _SETTINGS or not _is_known(section, key) or bool(_problem(path, value))


def _is_known(section: str, key: str) -> bool:
    """Whether a chart has such a value, outside what is not part of ours."""
    return _is_ours(section, key) or (section in _KNOWN and (not key or key in SECTIONS.get(section, ())))


def _is_ours(section: str, key: str) -> bool:
    """Whether only our chart has such a value."""
    return (not key and section in OUR_SECTIONS.keys() - {*SECTIONS}) or key in OUR_SECTIONS.get(section, ())


def _is_nvidias_default(section: str, key: str, value: Any) -> bool:
    """Whether a key of a chart that is not part of ours has the default of NVIDIA's; 0 is not false there."""
    defaults = _NVIDIAS_GFD_AND_NFD[section]
    return key in defaults and json.dumps(value, sort_keys=True) == json.dumps(defaults[key], sort_keys=True)


def _is_refused(path: str, value: Any) -> bool:
    """Whether a key of a chart that is not part of ours asks for something."""
    section, _, key = path.partition(".")
    return _asks(path, value) and not _is_nvidias_default(section, key, value)


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


def _given(root: MappingNode) -> Iterator[tuple[str, int, Any]]:
    """Path, line and value of everything that is set, as deep as a key has a meaning of its own."""
    for entry in root.entries:
        if isinstance(entry.value, MappingNode) and _has_keys(entry.key):
            for below in entry.value.entries:
                yield join_path(entry.key, below.key), below.line, to_plain(below.value)
        else:
            yield entry.key, entry.line, to_plain(entry.value)


def _has_keys(section: str) -> bool:
    return section in SECTIONS or section in _ELSEWHERE or bool(OUR_SECTIONS.get(section))


def _judge(path: str, value: Any, given: Mapping[str, Any], where: str) -> Verdict:
    section, _, key = path.partition(".")
    if section in _ELSEWHERE:
        if _is_nvidias_default(section, key, value):
            return Verdict(Fate.STAYS, where, "NVIDIA's default; asks for nothing")
        first = next((one for one in given if one.startswith(f"{section}.") and _is_refused(one, given[one])), path)
        cure = _ELSEWHERE[section] if path == first else f"as {quote_key(first)}"
        return Verdict(Fate.REFUSED, where, f"found {shown(value)}, expected nothing or NVIDIA's default: {cure}")
    if not _is_known(section, key):
        options = (*SECTIONS.get(section, ()), *OUR_SECTIONS.get(section, ())) if key else (*_KNOWN, *OUR_SECTIONS)
        near = nearest(key or section, options)
        hint = f"; did you mean {near}?" if near else "; remove it"
        return Verdict(Fate.REFUSED, where, f"no value of NVIDIA's chart, which ignores it; ours refuses it{hint}")
    if problem := _problem(path, value):
        return Verdict(Fate.REFUSED, where, problem)
    same = "a value of our chart; NVIDIA's ignores it" if _is_ours(section, key) else "same key, same meaning"
    return ruled(path, where, value, given) or Verdict(Fate.STAYS, where, same)
