"""Reading the mappings of a node description key by key, with every problem at once."""

import re
from collections.abc import Sequence

from deviceplugin.config.document import MappingNode, Node, Scalar, SequenceNode, join_path, quote_key, repeated_keys
from deviceplugin.errors import ConfigError


class Problems:
    """What has been found wrong with a file so far."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._found: list[str] = []

    def add(self, line: int, path: str, found: str, expected: str) -> None:
        """Note one problem."""
        self._found.append(f"{self._source}:{line}: {path}: found {found}, expected {expected}")

    def raise_if_any(self) -> None:
        """Raise ConfigError with all of them, if there are any."""
        if self._found:
            raise ConfigError(tuple(self._found))


class Fields:
    """One mapping that is being read. A key that nothing asked for is a problem once `refuse_others` is called.

    Every method takes the key first and gives None for an absent or null value, and for a wrong one, which is noted.
    Nothing is coerced.

    Args:
        node: where a mapping is expected.
        path: of the mapping in its file.
        problems: where to note them.
    """

    def __init__(self, node: Node, path: str, problems: Problems) -> None:
        self._path = path
        self._problems = problems
        self._asked: set[str] = set()
        self._node = node if isinstance(node, MappingNode) else MappingNode((), node.line)
        if not isinstance(node, MappingNode):
            problems.add(node.line, path or "the file", _shown(node), "a mapping")
        elif not path:
            for where, repeat in repeated_keys(node):
                problems.add(
                    repeat.line, where, "the key a second time", f"it once (first in line {repeat.first_line})"
                )

    @property
    def nothing(self) -> "Fields":
        """A mapping without keys, to read in place of an absent one."""
        return Fields(MappingNode((), self.line), self._path, Problems(""))

    @property
    def line(self) -> int:
        """Where the mapping begins."""
        return self._node.line

    def text(
        self,
        key: str,
        *,
        required: bool = False,
        pattern: str = ".+",
        like: str = "",
        one_of: Sequence[str] = (),
    ) -> str | None:
        """Text, matching `pattern` (messages show `like`), or one of `one_of`."""
        node = self._take(key, required)
        if node is None:
            return None
        expected = f"text like {like}" if like else f"one of {', '.join(one_of)}" if one_of else "text"
        if not isinstance(node, Scalar) or not isinstance(node.value, str):
            self._wrong(key, node, expected + (", in quotes" if isinstance(node, Scalar) and not one_of else ""))
        elif not re.fullmatch(pattern, node.value, re.DOTALL) or (one_of and node.value not in one_of):
            self._wrong(key, node, expected)
        else:
            return node.value
        return None

    def whole(self, key: str, *, required: bool = False) -> int | None:
        """A whole number from 0."""
        node = self._take(key, required)
        if node is None:
            return None
        number = _whole(node)
        if number is None:
            self._wrong(key, node, "a whole number from 0")
        return number

    def whole_numbers(
        self, key: str, meaning: str, *, required: bool = False, count: int | None = None
    ) -> tuple[int, ...] | None:
        """A list of whole numbers from 0, of `count` if that is given."""
        node = self._take(key, required)
        if node is None:
            return None
        numbers = [_whole(item) for item in node.items] if isinstance(node, SequenceNode) else [None]
        known = tuple(number for number in numbers if number is not None)
        if len(known) == len(numbers) and count in (None, len(known)):
            return known
        self._wrong(key, node, f"{meaning}, whole numbers")
        return None

    def texts(self, key: str, meaning: str) -> tuple[str, ...] | None:
        """A list of texts."""
        node = self._take(key, required=False)
        if node is None:
            return None
        items = node.items if isinstance(node, SequenceNode) else (node,)
        texts = tuple(item.value for item in items if isinstance(item, Scalar) and isinstance(item.value, str))
        if isinstance(node, SequenceNode) and len(texts) == len(items):
            return texts
        self._wrong(key, node, f"{meaning}, a list of texts")
        return None

    def flag(self, key: str, *, required: bool = False) -> bool:
        """true or false; false when absent."""
        node = self._take(key, required)
        if isinstance(node, Scalar) and isinstance(node.value, bool):
            return node.value
        if node is not None:
            self._wrong(key, node, "true or false")
        return False

    def fields(self, key: str) -> "Fields | None":
        """A mapping."""
        node = self._take(key, required=False)
        return None if node is None else Fields(node, join_path(self._path, key), self._problems)

    def list_of_fields(self, key: str) -> "tuple[Fields, ...]":
        """A list of mappings; empty when absent."""
        node = self._take(key, required=False)
        if node is None:
            return ()
        if not isinstance(node, SequenceNode):
            self._wrong(key, node, "a list")
            return ()
        path = join_path(self._path, key)
        return tuple(Fields(item, f"{path}[{number}]", self._problems) for number, item in enumerate(node.items))

    def refuse(self, key: str, found: str, expected: str) -> None:
        """Note a problem with the value of `key`."""
        node = self._node.get(key)
        self._problems.add(node.line if node else self.line, join_path(self._path, key), found, expected)

    def refuse_others(self) -> None:
        """Note every key that nothing asked for."""
        for entry in self._node.entries:
            if entry.key not in self._asked:
                path = join_path(self._path, quote_key(entry.key))
                self._problems.add(entry.line, path, "an unknown key", f"one of {', '.join(sorted(self._asked))}")

    def _take(self, key: str, required: bool) -> Node | None:
        self._asked.add(key)
        node = self._node.get(key)
        if node is None or (isinstance(node, Scalar) and node.value is None):
            if required:
                self._problems.add(self.line, join_path(self._path, key), "nothing", "a value")
            return None
        return node

    def _wrong(self, key: str, node: Node, expected: str) -> None:
        self._problems.add(node.line, join_path(self._path, key), _shown(node), expected)


def _whole(node: Node) -> int | None:
    value = node.value if isinstance(node, Scalar) else None
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _shown(node: Node) -> str:
    match node:
        case Scalar():
            return repr(node.text) if node.quoted else node.text or "nothing"
        case SequenceNode():
            return "a list"
        case _:
            return "a mapping"
