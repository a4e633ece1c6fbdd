"""What the values of NVIDIA's chart look like: a value of another shape is a mistake, whatever a chart makes of it."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from deviceplugin.config.document import join_path, quote, quote_key

LONGEST: Final = 80
"""Characters of a value in a message."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What a value must be; null is none and fits everywhere.

    Attributes:
        expected: in words, for messages.
        types: of Python, as YAML is read; true is no number.
        options: the only texts there are; empty: any.
        items: of a list, each item.
        keys: of a mapping, those that are known.
        others: of a mapping, every other key; None: anything.
    """

    expected: str
    types: tuple[type, ...]
    options: tuple[str, ...] = ()
    items: "Shape | None" = None
    keys: "Mapping[str, Shape]" = field(default_factory=dict)
    others: "Shape | None" = None


@dataclass(frozen=True, slots=True)
class Misfit:
    """A value that is not what it must be.

    Attributes:
        path: below the value that was checked; empty: that value itself.
        found, expected: in words.
    """

    path: str
    found: str
    expected: str

    def __str__(self) -> str:
        return (f"{self.path}: " if self.path else "") + f"found {self.found}, expected {self.expected}"


def misfits(value: Any, shape: Shape, path: str = "") -> Iterator[Misfit]:
    """Where a value, as plain data, is not of a shape."""
    if value is None:
        return
    if type(value) not in shape.types or (shape.options and value not in shape.options):
        yield Misfit(path, shown(value), shape.expected)
    elif isinstance(value, list) and shape.items is not None:
        for number, item in enumerate(value):
            yield from misfits(item, shape.items, f"{path}[{number}]")
    elif isinstance(value, dict):
        for key, below in value.items():
            if (expected := shape.keys.get(key, shape.others)) is not None:
                yield from misfits(below, expected, join_path(path, quote_key(key)))


def shown(value: Any) -> str:
    """A value for messages, on one line: texts in quotes, all else as JSON has it, which is YAML."""
    if isinstance(value, str):
        return quote(value)
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= LONGEST and text.isprintable() else quote(text)


TEXT: Final = Shape("a text", (str,))
FLAG: Final = Shape("true or false", (bool,))
QUANTITY: Final = Shape("a quantity such as 2 or 128Mi", (str, int, float))
MAPPING: Final = Shape("a mapping", (dict,))
LIST: Final = Shape("a list", (list,))
TEXTS: Final = Shape("a mapping of texts", (dict,), others=TEXT)
QUANTITIES: Final = Shape("a mapping of quantities", (dict,), others=QUANTITY)


def _choice(*options: str) -> Shape:
    return Shape(f"one of: {', '.join(options)}", (str,), options)


def _mapping(**keys: Shape) -> Shape:
    return Shape("a mapping", (dict,), keys=keys)


def _list(items: Shape) -> Shape:
    return Shape(f"a list, each {items.expected}", (list,), items=items)


def _terms(*names: str) -> Shape:
    """Node selector terms, as Kubernetes has them."""
    requirement = _mapping(key=TEXT, operator=TEXT, values=_list(TEXT))
    return _mapping(**dict.fromkeys(names, _list(requirement)))


_TERM = _terms("matchExpressions", "matchFields")
_SCHEDULING = ("requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution")
_NODE_AFFINITY = dict(zip(_SCHEDULING, (_mapping(nodeSelectorTerms=_list(_TERM)), _list(MAPPING)), strict=True))
_POD_AFFINITY = dict.fromkeys(_SCHEDULING, _list(MAPPING))

_OURS: Mapping[str, Shape] = {
    "podLabels": TEXTS,
    "rolloutOnConfigChange": FLAG,
    "countMatchingNodes": FLAG,
    "enabled": FLAG,
    "configStrictness": _choice("strict", "lenient"),
    "extraEnv": _list(_mapping(name=TEXT)),
    **dict.fromkeys(("privileges", "kubelet", "log", "healthChecks", "probes"), MAPPING),
    "privileges.mig": FLAG,
    "kubelet.rootDir": TEXT,
    "kubelet.devicePluginsDir": TEXT,
    "log.format": _choice("text", "json"),
    "log.level": _choice("debug", "info", "warning", "error"),
    "healthChecks.disable": TEXT,
    "healthChecks.enable": TEXT,
    "probes.readiness": _mapping(),
    "probes.liveness": _mapping(),
    "mps.enabled": FLAG,
    "mps.securityContext": MAPPING,
    "mps.resources": _mapping(requests=QUANTITIES, limits=QUANTITIES, claims=_list(_mapping(name=TEXT))),
    "mps.shmSize": TEXT,
    "cdi.enabled": FLAG,
}
"""Of the values that only our chart has."""

SHAPES: Final[Mapping[str, Shape]] = {
    "config": MAPPING,
    "config.name": TEXT,
    "config.map": Shape(
        "files by name", (dict,), others=Shape("the text of a file: `name: |-`, and the file below", (str,))
    ),
    "config.default": TEXT,
    "config.fallbackStrategies": _list(_choice("named", "single", "empty")),
    "nameOverride": TEXT,
    "fullnameOverride": TEXT,
    "namespaceOverride": TEXT,
    "selectorLabelsOverride": TEXTS,
    "allowDefaultNamespace": FLAG,
    "imagePullSecrets": _list(_mapping(name=TEXT)),
    "image": MAPPING,
    "image.repository": TEXT,
    "image.pullPolicy": _choice("Always", "IfNotPresent", "Never"),
    "image.tag": TEXT,
    "updateStrategy": _mapping(type=TEXT, rollingUpdate=MAPPING),
    "podAnnotations": TEXTS,
    "podSecurityContext": MAPPING,
    "securityContext": _mapping(capabilities=_mapping(add=_list(TEXT), drop=_list(TEXT)), privileged=FLAG),
    "resources": MAPPING,
    "resources.requests": QUANTITIES,
    "resources.limits": QUANTITIES,
    "resources.claims": _list(_mapping(name=TEXT)),
    "nodeSelector": TEXTS,
    "affinity": _mapping(
        nodeAffinity=_mapping(**_NODE_AFFINITY),
        podAffinity=_mapping(**_POD_AFFINITY),
        podAntiAffinity=_mapping(**_POD_AFFINITY),
    ),
    "tolerations": _list(
        _mapping(key=TEXT, operator=TEXT, value=TEXT, effect=TEXT, tolerationSeconds=Shape("a whole number", (int,)))
    ),
    "priorityClassName": TEXT,
    "runtimeClassName": TEXT,
    "devicePlugin": MAPPING,
    "devicePlugin.enabled": FLAG,
    "devicePlugin.enableHostNetwork": FLAG,
    "mps": MAPPING,
    "mps.enableHostPID": FLAG,
    "mps.enableHostNetwork": FLAG,
    "cdi": MAPPING,
    "global": MAPPING,
    "namespace": TEXT,
    "gfd": MAPPING,
    "nfd": MAPPING,
    **_OURS,
}
"""By path, of all but the settings of the plugin itself, whose types config.options has."""


def problems(path: str, value: Any) -> Sequence[str]:
    """What is wrong with the shape of the value at a path; nothing of a path that has none here."""
    shape = SHAPES.get(path)
    return [] if shape is None else [str(one) for one in misfits(value, shape)]
