"""Checks a document against the schema: every finding at once, nothing coerced, each value with its place."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from deviceplugin.config.document import (
    Entry,
    MappingNode,
    Node,
    Scalar,
    SequenceNode,
    join_path,
    quote_key,
    repeated_keys,
)
from deviceplugin.config.model import Origin, SelectAll, SelectCount, Selector, SelectRest
from deviceplugin.config.scalars import Refused, describe, read_scalar
from deviceplugin.config.selectors import ONE_DEVICE, read_alone, read_selector
from deviceplugin.config.suggest import KNOWN_KEYS, nearest, right_places, written_keys
from deviceplugin.config.types import (
    GpuList,
    Key,
    ListOf,
    Section,
    SharedDevices,
    Type,
    Whole,
)


@dataclass(frozen=True, slots=True)
class Found:
    """A value that the file sets, by the schema's type: bool, str, int, a tuple of selectors, a list or a Values."""

    value: object
    origin: Origin


# A file in which everything is wrong still makes a report that fits a screen, a log and a status document.
MAX_FINDINGS = 100

# The keys of one section that are set, by name.
Values = dict[str, Found]


@dataclass(slots=True)
class Reader:
    """Reads one document.

    Attributes:
        source: the file's name for messages.
        lenient: unknown and repeated keys are warnings instead of problems; a repeated key's last value counts.
        problems, warnings: findings as (line, text), in the order found; a warning refuses nothing.
        written: the keys of the file, which tell where a stray one belongs.
    """

    source: str
    lenient: bool = False
    problems: list[tuple[int, str]] = field(default_factory=list)
    warnings: list[tuple[int, str]] = field(default_factory=list)
    written: frozenset[str] = frozenset()

    def read(self, root: MappingNode, section: Section) -> Values:
        """The values of a whole document by the section that describes its root."""
        self.written = written_keys(root)
        for path, repeat in repeated_keys(root):
            findings = self.warnings if self.lenient else self.problems
            text = f"found the key a second time (first in line {repeat.first_line}), expected it once"
            counts = "; the last one counts" if self.lenient else ""
            findings.append((repeat.line, f"{self.source}:{repeat.line}: {path}: {text}{counts}"))
        return self._section(root, section, "")

    def report(self, origin: Origin, text: str) -> None:
        """Add a problem about a value that was found at `origin`."""
        self.problems.append((origin.line or 0, f"{origin}: {text}"))

    def warn(self, origin: Origin, text: str) -> None:
        """Add a warning about a value that was found at `origin`."""
        self.warnings.append((origin.line or 0, f"{origin}: {text}"))

    def _origin(self, path: str, line: int) -> Origin:
        return Origin(path, self.source, line)

    def _section(self, node: MappingNode, section: Section, path: str) -> Values:
        values: Values = {}
        misspelt: set[str] = set()
        for entry in node.entries:
            below = join_path(path, quote_key(entry.key))
            key = section.get(entry.key)
            if key is None:
                # What it holds is read as what is meant: whoever mends the key shall find no further mistakes below it.
                key = self._unknown_key(entry, section, below)
                if key is None:
                    continue
                if section.get(key.name) is not key:
                    self._entry(entry, key.type, below)
                    continue
                misspelt.add(key.name)
            value = self._entry(entry, key.type, below)
            if value is not None:
                values.setdefault(key.name, Found(value, self._origin(below, entry.line)))
        self._require(node, section, path, misspelt)
        return values

    def _entry(self, entry: Entry, kind: Type, path: str) -> object | None:
        """The value of a key; None when it has none, or none that fits: that is reported."""
        if _is_null(entry.value):
            if isinstance(kind, Section) and kind.null_hint:
                self._refuse(entry.line, path, entry.value, Refused(kind.expected, kind.null_hint))
            return None
        try:
            return self._value(entry.value, kind, path)
        except Refused as refused:
            # A collection begins on the line after its key: the key is where one looks.
            line = entry.value.line if isinstance(entry.value, Scalar) else entry.line
            self._refuse(line, path, entry.value, refused)
            return None

    def _require(self, node: MappingNode, section: Section, path: str, misspelt: Collection[str]) -> None:
        for key in section.keys:
            value = node.get(key.name)
            if not key.required or not (value is None or _is_null(value)):
                continue
            if value is None and key.name in misspelt:
                continue  # that error says it already: one mistake, one line
            line = next((entry.line for entry in node.entries if entry.key == key.name), node.line)
            origin = self._origin(join_path(path, key.name), line)
            self.report(origin, f"found no {key.name}, expected {key.type.expected}")

    def _unknown_key(self, entry: Entry, section: Section, path: str) -> Key | None:
        """Reports a key; returns the one that is meant if that is clear, of this section or another."""
        findings = self.warnings if self.lenient else self.problems
        # Suggestions take time, and nobody sees those beyond the bound.
        sought = len(findings) <= MAX_FINDINGS and entry.key != "<<"
        near = nearest(entry.key, section.names) if sought else None
        places = right_places(entry.key, path, self.written) if sought and not near else ()
        hint = "; merge keys are not read" if entry.key == "<<" else ""
        if near or places:
            lost_indentation = " (lost indentation?)" if places and "." not in path else ""
            hint = f"; did you mean {near or ' or '.join(places)}?{lost_indentation}"
        ignored = ", ignored" if self.lenient else ""
        text = f"found an unknown key{ignored}, expected one of: {', '.join(section.names)}{hint}"
        findings.append((entry.line, f"{self.source}:{entry.line}: {path}: {text}"))
        if self.lenient:
            return None
        return section.get(near) if near else KNOWN_KEYS[places[0]] if len(places) == 1 else None

    def _refuse(self, line: int, path: str, node: Node, refused: Refused) -> None:
        hint = f" ({refused.hint})" if refused.hint else ""
        self.report(self._origin(path, line), f"found {describe(node)}, expected {refused.expected}{hint}")

    def _value(self, node: Node, kind: Type, path: str) -> object:
        match kind:
            case Section():
                if isinstance(node, MappingNode):
                    return self._section(node, kind, path)
                raise Refused(kind.expected, self._misplaced_list(node, path))
            case ListOf():
                return self._list(node, kind, path)
            case SharedDevices():
                return self._shared_devices(node, kind, path)
            case GpuList():
                return self._gpu_list(node, kind, path)
        if not isinstance(node, Scalar):
            raise Refused(kind.expected)
        value = read_scalar(node, kind)
        if isinstance(kind, Whole) and isinstance(value, int) and value > (kind.useful or kind.maximum):
            origin = self._origin(path, node.line)
            self.warn(origin, f"found {describe(node)}, expected {kind.expected} ({kind.beyond})")
        return value

    def _misplaced_list(self, node: Node, path: str) -> str:
        if not isinstance(node, SequenceNode):
            return ""
        places = right_places(path.rpartition(".")[2], path, self.written, for_list=True)
        return f"did you mean {' or '.join(places)}? lost indentation?" if places else ""

    def _list(self, node: Node, kind: ListOf, path: str) -> list[Found]:
        if kind.alone and isinstance(node, Scalar) and isinstance(node.value, str):
            parts = [part.strip() for part in node.value.split(",")]
            node = SequenceNode(tuple(Scalar(part, part, node.line, node.quoted) for part in parts), node.line)
        if not isinstance(node, SequenceNode):
            raise Refused(kind.expected, "write a list: each item after a dash" if not kind.alone else "")
        if len(node.items) < kind.minimum:
            raise Refused(kind.expected, "an empty list says nothing")
        found: list[Found] = []
        for number, item in enumerate(node.items):
            below = f"{path}[{number}]"
            try:
                found.append(Found(self._value(item, kind.item, below), self._origin(below, item.line)))
            except Refused as refused:
                self._refuse(item.line, below, item, refused)
        return found

    def _shared_devices(self, node: Node, kind: SharedDevices, path: str) -> tuple[Selector, ...]:
        if isinstance(node, Scalar):
            return (_selector(read_alone, node),)
        if not isinstance(node, SequenceNode):
            raise Refused(kind.expected)
        if not node.items:
            raise Refused(kind.expected, "an empty list shares nothing: remove the entry, or the key for all devices")
        return self._selectors(node, path)

    def _gpu_list(self, node: Node, kind: GpuList, path: str) -> tuple[Selector, ...]:
        if isinstance(node, Scalar) and isinstance(node.value, str):
            selector = _selector(read_alone, node)
            if isinstance(selector, SelectAll | SelectRest | SelectCount):
                raise Refused(kind.expected, "for all GPUs leave the key out" if path.endswith("include") else "")
            node = SequenceNode((node,), node.line)
        if not isinstance(node, SequenceNode):
            raise Refused(kind.expected, f"one GPU is written [{node.text}]" if isinstance(node, Scalar) else "")
        if not node.items and path.endswith("include"):
            raise Refused(kind.expected, "an empty list includes no GPU: remove the key for all")
        return self._selectors(node, path)

    def _selectors(self, node: SequenceNode, path: str) -> tuple[Selector, ...]:
        """The selectors of a list, each once: NVIDIA's plugin takes a list with one twice, so it is only a warning."""
        first: dict[Selector, int] = {}
        for number, item in enumerate(node.items):
            try:
                if not isinstance(item, Scalar):
                    raise Refused(ONE_DEVICE, _mig_index_hint(item))
                selector = _selector(read_selector, item)
            except Refused as refused:
                self._refuse(item.line, f"{path}[{number}]", item, refused)
                continue
            if selector in first:
                self.warn(
                    self._origin(f"{path}[{number}]", item.line),
                    f"found {item.text} a second time (first at [{first[selector]}]), expected each device once; is "
                    "another one meant?",
                )
            first.setdefault(selector, number)
        return tuple(first)


def _is_null(node: Node) -> bool:
    return isinstance(node, Scalar) and node.value is None


def _selector(read: Callable[[Scalar], Selector], node: Scalar) -> Selector:
    try:
        return read(node)
    except ValueError as error:
        raise Refused(str(error)) from None


def _mig_index_hint(item: Node) -> str:
    return "write 1:0 without a space after the colon" if isinstance(item, MappingNode) else ""
