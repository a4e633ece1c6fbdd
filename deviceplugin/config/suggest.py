"""What someone who wrote an unknown key may have meant: the nearest known key, or the same one in its right place."""

from collections.abc import Collection, Iterator, Mapping, Sequence

from deviceplugin.config.document import MappingNode, join_path
from deviceplugin.config.schema import ROOT
from deviceplugin.config.types import Key, ListOf, Section

_ALIASES = {"time-slicing": "timeSlicing", "time_slicing": "timeSlicing"}


def _known_keys(section: Section, path: str = "") -> Iterator[tuple[str, Key]]:
    for key in section.keys:
        below = join_path(path, key.name)
        yield below, key
        match key.type:
            case Section():
                yield from _known_keys(key.type, below)
            case ListOf(item=Section() as item):
                yield from _known_keys(item, f"{below}[]")


KNOWN_KEYS: Mapping[str, Key] = dict(_known_keys(ROOT))
"""Every key by its path; `[]` in one: the key of each item of a list."""


def edit_distance(first: str, second: str) -> int:
    """How many characters must be inserted, deleted or replaced to make one text of the other."""
    row = list(range(len(second) + 1))
    for number, left in enumerate(first, 1):
        diagonal, row[0] = row[0], number
        for column, right in enumerate(second, 1):
            diagonal, row[column] = row[column], min(diagonal + (left != right), row[column] + 1, row[column - 1] + 1)
    return row[-1]


def nearest(word: str, options: Sequence[str]) -> str | None:
    """The option that is closest to `word`, case aside; None when none is within a third of its length."""
    lowered = word.lower().replace("-", "").replace("_", "")[:64]
    best = min(options, key=lambda option: edit_distance(lowered, option.lower()), default=None)
    if best is None or edit_distance(lowered, best.lower()) > max(1, len(best) // 3):
        return None
    return best


def right_places(name: str, wrong_path: str, written: Collection[str], *, for_list: bool = False) -> tuple[str, ...]:
    """Paths at which a key of that name is known, other than where it was found.

    Takes the key's name, its path in the file and the keys of the file (`written_keys`). Where several fit, those whose
    parent section the file already names, anywhere, come alone: beside `mps:` a stray `resources:` belongs to
    `sharing.mps`. With `for_list` only keys that take a list.
    """
    name = _ALIASES.get(name, name).lower()
    found = [
        path
        for path, key in KNOWN_KEYS.items()
        if path.rpartition(".")[2].lower() == name
        and path != wrong_path
        and (not for_list or isinstance(key.type, ListOf))
    ]
    named = [path for path in found if path.rpartition(".")[0].rpartition(".")[2].removesuffix("[]") in written]
    inside = [path for path in named if not path.rpartition(".")[0].endswith("[]")]
    return tuple(inside or named or found)


def written_keys(root: MappingNode) -> frozenset[str]:
    """The keys of a file's upper levels, where sections are."""
    return frozenset(_keys(root, depth=3))


def _keys(node: MappingNode, depth: int) -> Iterator[str]:
    for entry in node.entries:
        yield entry.key
        if isinstance(entry.value, MappingNode) and depth > 1:
            yield from _keys(entry.value, depth - 1)
