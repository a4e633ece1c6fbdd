"""What the values of NVIDIA's chart look like: a value of another shape is a mistake, whatever a chart makes of it."""

import json
import re
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
        pattern: of a text, and of the keys of a mapping: what it must match as a whole; empty: anything.
        items: of a list, each item.
        keys: of a mapping, those that are known.
        others: of a mapping, every other key; None: anything.
        closed: of a mapping, whether there are no other keys.
        is_needed: whether null does not do.
    """

    expected: str
    types: tuple[type, ...]
    options: tuple[str, ...] = ()
    pattern: str = ""
    items: "Shape | None" = None
    keys: "Mapping[str, Shape]" = field(default_factory=dict)
    others: "Shape | None" = None
    closed: bool = False
    is_needed: bool = False


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
        if shape.is_needed:
            yield Misfit(path, "nothing", shape.expected)
    elif type(value) not in shape.types or (shape.options and value not in shape.options) or _is_odd(value, shape):
        yield Misfit(path, shown(value), shape.expected)
    elif isinstance(value, list) and shape.items is not None:
        for number, item in enumerate(value):
            yield from misfits(item, shape.items, f"{path}[{number}]")
    elif isinstance(value, dict):
        for key, below in value.items():
            if (shape.closed and key not in shape.keys) or (shape.pattern and not re.fullmatch(shape.pattern, key)):
                yield Misfit(path, f"the key {quote(key)}", shape.expected)
            elif (expected := shape.keys.get(key, shape.others)) is not None:
                yield from misfits(below, expected, join_path(path, quote_key(key)))


def _is_odd(value: Any, shape: Shape) -> bool:
    """Whether a text does not match, or a number is less than nothing."""
    if isinstance(value, str):
        return bool(shape.pattern) and not re.fullmatch(shape.pattern, value)
    return isinstance(value, int | float) and value < 0 and bool(shape.pattern)


def shown(value: Any) -> str:
    """A value for messages, on one line: texts in quotes, all else as JSON has it, which is YAML."""
    if isinstance(value, str):
        return quote(value)
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= LONGEST and text.isprintable() else quote(text)


TEXT: Final = Shape("a text", (str,))
FLAG: Final = Shape("true or false", (bool,))
_LABEL = "[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?"
_DOMAIN = "[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
# As the chart's schema has them, and the API server. Empty texts are none.
NAME: Final = Shape("the name of an object: small letters, digits, - and .", (str,), pattern=f"({_DOMAIN})?")
LABEL: Final = Shape("the value of a label", (str,), pattern=f"(?=.{{0,63}}$)({_LABEL})?", is_needed=True)
LABELS: Final = Shape(
    "labels: texts of at most 63 characters by keys such as example.com/gpu",
    (dict,),
    pattern=f"({_DOMAIN}/)?{_LABEL}",
    others=LABEL,
)
QUANTITY: Final = Shape(
    "a quantity such as 2 or 128Mi",
    (str, int, float),
    pattern=r"([0-9]+(\.[0-9]*)?|\.[0-9]+)([numkMGTPE]|[KMGTPE]i|[eE][-+]?[0-9]+)?",
)
COUNT: Final = Shape("a number or a percentage", (int, str))
MAPPING: Final = Shape("a mapping", (dict,))
LIST: Final = Shape("a list", (list,))
TEXTS: Final = Shape("a mapping of texts", (dict,), others=TEXT)
QUANTITIES: Final = Shape("a mapping of quantities", (dict,), others=QUANTITY)


def _choice(*options: str) -> Shape:
    return Shape(f"one of: {', '.join(options)}", (str,), options)


def _mapping(**keys: Shape) -> Shape:
    return Shape("a mapping", (dict,), keys=keys)


def _closed(**keys: Shape) -> Shape:
    return Shape(f"a mapping with only {', '.join(keys)}", (dict,), keys=keys, closed=True)


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
    "podLabels": LABELS,
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
    "config.name": NAME,
    "config.map": Shape(
        "files by name (letters, digits, -, _ and .)",
        (dict,),
        pattern="[-._A-Za-z0-9]+",
        others=Shape("the text of a file: `name: |-`, and the file below", (str,)),
    ),
    "config.default": TEXT,
    "config.fallbackStrategies": _list(_choice("named", "single", "empty")),
    "nameOverride": NAME,
    "fullnameOverride": NAME,
    "namespaceOverride": NAME,
    "selectorLabelsOverride": LABELS,
    "allowDefaultNamespace": FLAG,
    "imagePullSecrets": _list(_closed(name=NAME)),
    "image": MAPPING,
    "image.repository": Shape("a text without tag and digest", (str,), pattern="[-a-zA-Z0-9._/:@]+"),
    "image.pullPolicy": _choice("Always", "IfNotPresent", "Never"),
    "image.tag": Shape(
        "a tag, or TAG@sha256:...", (str,), pattern="([A-Za-z0-9_][-A-Za-z0-9_.]*(@sha256:[0-9a-f]{64})?)?"
    ),
    "updateStrategy": _closed(
        type=_choice("RollingUpdate", "OnDelete"), rollingUpdate=_closed(maxSurge=COUNT, maxUnavailable=COUNT)
    ),
    "podAnnotations": TEXTS,
    "podSecurityContext": MAPPING,
    "securityContext": _mapping(capabilities=_mapping(add=_list(TEXT), drop=_list(TEXT)), privileged=FLAG),
    "resources": MAPPING,
    "resources.requests": QUANTITIES,
    "resources.limits": QUANTITIES,
    "resources.claims": _list(_mapping(name=TEXT)),
    "nodeSelector": LABELS,
    "affinity": _mapping(
        nodeAffinity=_mapping(**_NODE_AFFINITY),
        podAffinity=_mapping(**_POD_AFFINITY),
        podAntiAffinity=_mapping(**_POD_AFFINITY),
    ),
    "tolerations": _list(
        _closed(
            key=TEXT,
            operator=_choice("Exists", "Equal", "Lt", "Gt"),
            value=TEXT,
            effect=_choice("", "NoSchedule", "PreferNoSchedule", "NoExecute"),
            tolerationSeconds=Shape("a whole number", (int,)),
        )
    ),
    "priorityClassName": NAME,
    "runtimeClassName": NAME,
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
