"""From bytes to a tree of nodes that know their lines: YAML by the 1.2 core rules, and so JSON. And back to text.

The only importer of yaml. Only libyaml's event parser is used: PyYAML's own resolvers follow YAML 1.1, which makes 60
of the MIG index `1:0` and false of the word `no` (design 4). What a file may cost is bounded before and while it is
read.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from yaml._yaml import CParser
from yaml.error import MarkedYAMLError, YAMLError
from yaml.events import (
    AliasEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
)

from deviceplugin.errors import ConfigError

MAX_BYTES = 1024 * 1024
MAX_DEPTH = 64
MAX_NODES = 20_000
MAX_NUMBER_LENGTH = 40

PlainScalar = str | int | float | bool | None
# JSON-like data, for callers that need no positions.
Plain = PlainScalar | Sequence["Plain"] | Mapping[str, "Plain"]

# YAML 1.2.2 section 10.3.2, the core schema's tag resolution.
_CONSTANTS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_BASES = {"0o": 8, "0x": 16}

# Text that every reader, of YAML 1.1 too, takes for text without quotes.
_SAFE_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_./+-]*( [A-Za-z0-9_./+-]+)*")
_WORDS_OF_YAML_1_1 = frozenset({"y", "n", "yes", "no", "on", "off"})


@dataclass(frozen=True, slots=True)
class Scalar:
    """One value.

    Attributes:
        value: by the core rules; always text when quoted.
        text: as written, without quotes.
        line: from 1.
        quoted: whether quotes (or a block scalar) made it text.
    """

    value: PlainScalar
    text: str
    line: int
    quoted: bool = False


@dataclass(frozen=True, slots=True)
class SequenceNode:
    """A list; `line` is where it begins, from 1."""

    items: tuple["Node", ...]
    line: int


@dataclass(frozen=True, slots=True)
class Entry:
    """One key of a mapping with its value; a key is its text as written, so `1` and `"1"` are one key."""

    key: str
    line: int
    value: "Node"


@dataclass(frozen=True, slots=True)
class Repeat:
    """A key given again: its line and the line of the one before it."""

    key: str
    line: int
    first_line: int


@dataclass(frozen=True, slots=True)
class MappingNode:
    """A mapping.

    Attributes:
        entries: in file order, one for each key: the last where a key is repeated.
        line: where it begins, from 1.
        repeats: keys given more than once.
    """

    entries: tuple[Entry, ...]
    line: int
    repeats: tuple[Repeat, ...] = ()

    def get(self, key: str) -> "Node | None":
        """The value of `key`, None when it is absent."""
        return next((entry.value for entry in self.entries if entry.key == key), None)


Node = Scalar | SequenceNode | MappingNode


@dataclass(frozen=True, slots=True)
class Document:
    """One document of a stream; `line` is that of its `---`, or of its beginning if it has none."""

    root: Node
    line: int


def resolve_plain(text: str) -> PlainScalar:
    """What an unquoted scalar means by YAML 1.2's core schema. Raises ValueError for a number that is absurdly long."""
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if _INTEGER.fullmatch(text):
        if len(text) > MAX_NUMBER_LENGTH:
            raise ValueError(f"a number of {len(text)} digits")
        return int(text, _BASES.get(text[:2], 10))
    if _FLOAT.fullmatch(text):
        return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
    return text


def parse_document(data: bytes, source: str) -> Node:
    """Read one YAML or JSON document.

    Takes the bytes of the file and its name for messages. Raises ConfigError with one problem, the first: text that
    doesn't parse has no second one worth reading. Refused besides: more than 1 MiB, nesting deeper than 64, more than
    20,000 values, tags, anchors and aliases (no alias bombs), several documents. An empty file is a null scalar.
    """
    return only_document(parse_documents(data, source), source)


def parse_documents(data: bytes, source: str) -> tuple[Document, ...]:
    """As `parse_document`, with every document of a stream; together they keep within the same bounds."""
    return tuple(_Builder(_decode(data, source), source).documents())


def only_document(documents: Sequence[Document], source: str) -> Node:
    """The one document of `parse_documents`; a null scalar if there is none. Raises ConfigError for several."""
    if len(documents) > 1:
        raise _refused(source, documents[1].line, "a second document (`---`)", "one document")
    return documents[0].root if documents else Scalar(None, "", line=1)


def load_document(data: bytes, source: str) -> Node:
    """Read a document in which no key stands twice, within the bounds of `parse_document`.

    For callers that check the content themselves. Raises ConfigError, with every repeated key.
    """
    root = parse_document(data, source)
    problems = tuple(
        f"{source}:{repeat.line}: {path}: found the key a second time, expected it once (first in line "
        f"{repeat.first_line})"
        for path, repeat in repeated_keys(root)
    )
    if problems:
        raise ConfigError(problems)
    return root


def to_plain(node: Node) -> Plain:
    """The node as plain data, without its positions."""
    match node:
        case Scalar():
            return node.value
        case SequenceNode():
            return [to_plain(item) for item in node.items]
        case MappingNode():
            return {entry.key: to_plain(entry.value) for entry in node.entries}


def join_path(path: str, key: str) -> str:
    """The path of `key` below `path`: `flags.plugin`."""
    return f"{path}.{key}" if path else key


def repeated_keys(node: Node, path: str = "") -> Iterator[tuple[str, Repeat]]:
    """Every repeated key at or below a node with its path, in file order within each mapping."""
    match node:
        case SequenceNode():
            for number, item in enumerate(node.items):
                yield from repeated_keys(item, f"{path}[{number}]")
        case MappingNode():
            for repeat in node.repeats:
                yield join_path(path, quote_key(repeat.key)), repeat
            for entry in node.entries:
                yield from repeated_keys(entry.value, join_path(path, quote_key(entry.key)))


def dump_document(value: Plain) -> str:
    """YAML text in block style that `load_document` reads back to an equal value.

    Takes dicts with string keys, lists, strings, whole numbers, floats, booleans, None. Text is quoted wherever YAML
    1.1 or 1.2 would take it for something else. Raises TypeError for other values.
    """
    return "\n".join(_block(value)) + "\n"


def quote(text: str, limit: int = 80) -> str:
    """Text in double quotes on one line, cut after `limit` characters: for messages and for dumping."""
    shown = text if len(text) <= limit else text[: limit - 3] + "..."
    return '"' + "".join(_escape(character) for character in shown) + '"'


def quote_key(key: str) -> str:
    """A key as a path shows it: bare, or quoted and cut where it is long or strange."""
    return key if re.fullmatch(r"[A-Za-z0-9_./:-]{1,60}", key) else quote(key, 60)


def _escape(character: str) -> str:
    if character in '"\\':
        return "\\" + character
    if character.isprintable():
        return character
    return f"\\U{ord(character):08x}"


def _block(value: Plain) -> Iterator[str]:
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _attach(f"{_scalar(key)}:", item, indent="  ")
    elif isinstance(value, Sequence) and not isinstance(value, str) and value:
        for item in value:
            nested = list(_block(item))
            yield f"- {nested[0]}"
            yield from (f"  {line}" for line in nested[1:])
    else:
        yield _scalar(value)


def _attach(head: str, value: Plain, indent: str) -> Iterator[str]:
    nested = list(_block(value))
    if isinstance(value, Mapping | Sequence) and not isinstance(value, str) and value:
        yield head
        yield from (indent + line for line in nested)
    else:
        yield f"{head} {nested[0]}"


def _scalar(value: Plain) -> str:
    if isinstance(value, str):
        safe = _SAFE_PLAIN.fullmatch(value) and value.lower() not in _WORDS_OF_YAML_1_1
        return value if safe and resolve_plain(value) == value else quote(value, len(value))
    if isinstance(value, Mapping | Sequence):
        return "{}" if isinstance(value, Mapping) else "[]"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int | float):
        return {"inf": ".inf", "-inf": "-.inf", "nan": ".nan"}.get(repr(value), repr(value))
    raise TypeError(f"cannot write a {type(value).__name__} as YAML")


def _decode(data: bytes, source: str) -> str:
    if len(data) > MAX_BYTES:
        raise ConfigError(
            (f"{source}: found more than {MAX_BYTES} bytes (1 MiB), expected at most that: is it the right file?",)
        )
    nul = data.find(b"\0")
    if nul >= 0:
        line = data.count(b"\n", 0, nul) + 1
        raise ConfigError((f"{source}:{line}: found a NUL byte, expected YAML or JSON text in UTF-8: is it binary?",))
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        found = f"byte 0x{data[error.start]:02x}"
        raise ConfigError((f"{source}:{line}: found {found}, expected text in UTF-8: is it binary?",)) from None


class _Builder:
    """Pulls libyaml's events and builds nodes, refusing what the bounds forbid as soon as it is seen."""

    def __init__(self, text: str, source: str) -> None:
        self._text = text
        self._source = source
        self._nodes = 0
        self._parser = CParser(text)

    def documents(self) -> Iterator[Document]:
        self._next()  # the stream's start
        while not isinstance(start := self._next(), StreamEndEvent):
            yield Document(self._node(self._next(), depth=1), _line(start))
            self._next()  # the document's end

    def _next(self) -> Event:
        try:
            event = self._parser.get_event()
        except YAMLError as error:
            raise self._malformed(error) from None
        assert event is not None, "libyaml ends every stream with an event"
        return event

    def _node(self, event: Event, depth: int) -> Node:
        line = _line(event)
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise self._refused(line, f"more than {MAX_NODES} values", "a config: is it the right file?")
        if depth > MAX_DEPTH:
            raise self._refused(line, f"nesting deeper than {MAX_DEPTH} levels", "less: check the brackets")
        if isinstance(event, AliasEvent):
            raise self._refused(line, f"an alias (*{event.anchor})", "the value itself: aliases are not read")
        assert isinstance(event, ScalarEvent | SequenceStartEvent | MappingStartEvent), "nothing else begins a node"
        if event.anchor is not None:
            raise self._refused(line, f"an anchor (&{event.anchor})", "plain values: anchors are not read")
        if event.tag is not None:
            raise self._refused(line, f"a tag ({quote(event.tag)})", "plain values: tags are not read")
        if isinstance(event, ScalarEvent):
            return self._scalar(event, line)
        return self._sequence(line, depth) if isinstance(event, SequenceStartEvent) else self._mapping(line, depth)

    def _scalar(self, event: ScalarEvent, line: int) -> Scalar:
        text: str = event.value
        if not event.implicit[0]:
            return Scalar(text, text, line, quoted=True)
        try:
            return Scalar(resolve_plain(text), text, line)
        except ValueError as error:
            raise self._refused(line, str(error), "a shorter one, or quotes if it is text") from None

    def _sequence(self, line: int, depth: int) -> SequenceNode:
        items: list[Node] = []
        while not isinstance(event := self._next(), SequenceEndEvent):
            items.append(self._node(event, depth + 1))
        return SequenceNode(tuple(items), line)

    def _mapping(self, line: int, depth: int) -> MappingNode:
        entries: dict[str, Entry] = {}
        repeats: list[Repeat] = []
        while not isinstance(event := self._next(), MappingEndEvent):
            key = self._node(event, depth + 1)
            if not isinstance(key, Scalar):
                raise self._refused(key.line, "a list or mapping as a key", "a word as the key")
            if key.text in entries:
                repeats.append(Repeat(key.text, key.line, entries.pop(key.text).line))
            entries[key.text] = Entry(key.text, key.line, self._node(self._next(), depth + 1))
        return MappingNode(tuple(entries.values()), line, tuple(repeats))

    def _refused(self, line: int, found: str, expected: str) -> ConfigError:
        return _refused(self._source, line, found, expected)

    def _malformed(self, error: YAMLError) -> ConfigError:
        """libyaml's complaint with its line, and our guess where its words alone would not help."""
        mark = error.problem_mark if isinstance(error, MarkedYAMLError) else None
        if not isinstance(error, MarkedYAMLError) or mark is None:
            # A character that YAML forbids: the reader knows only an offset, in bytes and not always exact.
            line, bad = next(
                ((number, bad) for number, text in enumerate(self._text.split("\n"), 1) if (bad := _forbidden(text))),
                (1, ""),
            )
            found = f"the character U+{ord(bad):04X}" if bad else " ".join(str(error).split())
            return self._refused(line, found, "printable text: is it binary?")
        lines = self._text.rstrip().split("\n")
        # At the end of the file libyaml is one line further than anyone can look.
        line = min(mark.line + 1, len(lines))
        before = lines[line - 1]
        if "\t" in before[: len(before) - len(before.lstrip())]:
            return self._refused(line, "a tab in the indentation", "spaces: YAML forbids tabs there")
        opened = error.context_mark
        context = f" {error.context}" if error.context else ""
        if opened is not None and opened.line + 1 != line:
            context += f" that began in line {opened.line + 1}"
        return self._refused(
            line,
            f"text that is not YAML ({error.problem}{context})",
            "YAML or JSON: check indentation, brackets and quotes there and in the line before",
        )


def _refused(source: str, line: int, found: str, expected: str) -> ConfigError:
    return ConfigError((f"{source}:{line}: found {found}, expected {expected}",))


def _line(event: Event) -> int:
    mark = event.start_mark
    assert mark is not None, "libyaml marks every event"
    return int(mark.line) + 1


def _forbidden(text: str) -> str:
    """The first character of a line that YAML 1.2 section 5.1 forbids, empty when there is none."""
    found = re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\ufffe\uffff]", text)
    return found.group() if found else ""
