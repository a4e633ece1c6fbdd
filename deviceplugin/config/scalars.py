"""Single values: what a scalar must look like for each type. Nothing is coerced (design 4)."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from deviceplugin.config.document import MappingNode, Node, Scalar, SequenceNode, quote
from deviceplugin.config.memory import parse_memory_mib, parse_percentage
from deviceplugin.config.suggest import nearest
from deviceplugin.config.types import Boolean, Choice, Duration, MemoryLimit, Period, ResourceName, Text, Type, Whole
from deviceplugin.model.names import name_problem, qualified

_WORDS_FOR_BOOLEANS = frozenset({"yes", "no", "on", "off", "y", "n"})
# As Go's time.ParseDuration takes it, without signs and the units below a millisecond.
PERIOD_PART = r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(ms|s|m|h)"
_SECONDS_IN = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"[-+]?([0-9]+(\.[0-9]*)?(ns|us|µs|ms|s|m|h))+|0")


@dataclass(frozen=True, slots=True)
class MemoryShare:
    """`memoryLimit`: exactly one of the two is set."""

    mib: int | None = None
    percent: int | None = None


class Refused(Exception):
    """A value that does not fit. Caught by the reader, which makes one line of `expected` and `hint` with its place."""

    def __init__(self, expected: str, hint: str = "") -> None:
        super().__init__(expected)
        self.expected = expected
        self.hint = hint


def read_scalar(node: Scalar, kind: Type) -> object:
    """The value of a scalar by its type: bool, int, float, str, or a MemoryShare. Raises Refused."""
    return _READERS[type(kind)](node, kind)


def describe(node: Node) -> str:
    """What was found, in words on one line: `the text "4"`, `the number 1e3`, `a list`."""
    match node:
        case MappingNode():
            return "a mapping"
        case SequenceNode():
            return "a list" if node.items else "an empty list"
        case Scalar(value=None):
            return "nothing"
        case Scalar(value=str()):
            return f"the text {quote(node.text)}"
        case Scalar(value=bool()):
            return f"the boolean {node.text}"
    return f"the number {node.text}"


def _boolean(node: Scalar, kind: Boolean) -> bool:
    if isinstance(node.value, bool):
        return node.value
    hint = ""
    if node.text.lower() in _WORDS_FOR_BOOLEANS:
        hint = f"YAML 1.2 takes {node.text} for text"
    elif node.text.lower() in {"true", "false"}:
        hint = "remove the quotes" if node.quoted else "write it in lower case"
    raise Refused(kind.expected, hint)


def _text(node: Scalar, kind: Text | Choice | ResourceName | MemoryLimit) -> str:
    if isinstance(node.value, str):
        return node.value
    hint = "" if node.value is None or isinstance(kind, Choice) else f'write "{node.text}" in quotes to mean text'
    raise Refused(kind.expected, hint)


def _choice(node: Scalar, kind: Choice) -> str:
    text = _text(node, kind)
    if text in kind.options:
        return text
    near = nearest(text, kind.options)
    raise Refused(kind.expected, f"did you mean {near}?" if near and len(kind.options) > 1 else "")


def _whole(node: Scalar, kind: Whole) -> int:
    value = node.value
    if isinstance(value, bool) or not isinstance(value, int):
        hint = ""
        if isinstance(value, str) and value.isdecimal():
            hint = "remove the quotes"
        elif isinstance(value, float):
            hint = "write it with digits only"
        raise Refused(kind.expected, hint)
    if value < kind.minimum:
        raise Refused(kind.expected, kind.below)
    if value > kind.maximum:
        raise Refused(kind.expected, kind.above)
    return value


def _duration(node: Scalar, kind: Duration) -> str:
    # NVIDIA's feature discovery takes a bare number for nanoseconds.
    bare_number = isinstance(node.value, int | float) and not isinstance(node.value, bool)
    if bare_number or node.text in kind.words or _DURATION.fullmatch(node.text):
        return node.text
    raise Refused(kind.expected)


def _period(node: Scalar, kind: Period) -> float:
    if isinstance(node.value, int | float) and not isinstance(node.value, bool):
        raise Refused(kind.expected, "a number needs a unit")
    if not isinstance(node.value, str) or not re.fullmatch(f"({PERIOD_PART})+", node.text):
        raise Refused(kind.expected)
    seconds = sum(float(number) * _SECONDS_IN[unit] for number, unit in re.findall(PERIOD_PART, node.text))
    if not kind.minimum_s <= seconds <= kind.maximum_s:
        raise Refused(kind.expected)
    return seconds


def _name(node: Scalar, kind: ResourceName) -> str:
    name = qualified(_text(node, kind))
    problem = name_problem(name)
    if problem:
        raise Refused("a name that the kubelet takes", problem)
    return name


def _memory(node: Scalar, kind: MemoryLimit) -> MemoryShare:
    if isinstance(node.value, int | float) and not isinstance(node.value, bool):
        raise Refused(kind.expected, "a number needs a unit")
    text = _text(node, kind)
    try:
        percent = parse_percentage(text)
        return MemoryShare(percent=percent) if percent is not None else MemoryShare(mib=parse_memory_mib(text))
    except ValueError as error:
        raise Refused(kind.expected, str(error)) from None


# One function for each type that a single value can have.
_READERS: dict[type, Callable[[Scalar, Any], object]] = {
    Boolean: _boolean,
    Text: _text,
    Choice: _choice,
    Whole: _whole,
    Duration: _duration,
    Period: _period,
    ResourceName: _name,
    MemoryLimit: _memory,
}
