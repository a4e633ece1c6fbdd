"""The types of values that a config key, a flag or a variable can have. What each accepts is in its `expected`."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Boolean:
    """`true` or `false`; in flags and variables the words of Go's strconv.ParseBool, as NVIDIA's plugin."""

    @property
    def expected(self) -> str:
        """In words, for messages."""
        return "true or false"


@dataclass(frozen=True, slots=True)
class Text:
    """Any text, described by `what`."""

    what: str = "text"

    @property
    def expected(self) -> str:
        """In words, for messages."""
        return self.what


@dataclass(frozen=True, slots=True)
class Choice:
    """One word of a few."""

    options: tuple[str, ...]

    @property
    def expected(self) -> str:
        """In words, for messages."""
        return self.options[0] if len(self.options) == 1 else f"one of: {', '.join(self.options)}"


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number within bounds; `below` and `above` say why the bounds are where they are.

    Attributes:
        useful: the largest that makes sense, if that is less than `maximum`; a larger one is taken with a warning.
        beyond: what becomes of a larger one.
    """

    minimum: int
    maximum: int
    below: str = ""
    above: str = ""
    useful: int | None = None
    beyond: str = ""

    @property
    def expected(self) -> str:
        """In words, for messages."""
        bounds = f"from {self.minimum} to {self.useful or self.maximum}"
        return f"the number {self.minimum}" if self.minimum == self.maximum else f"a whole number {bounds}"


@dataclass(frozen=True, slots=True)
class Duration:
    """A duration as Go writes it (`60s`, `1h30m`), or a word such as `infinite`."""

    words: tuple[str, ...] = ()

    @property
    def expected(self) -> str:
        """In words, for messages."""
        return "a duration such as 60s" + "".join(f" or {word}" for word in self.words)


@dataclass(frozen=True, slots=True)
class Period:
    """A length of time as Go writes it (`10s`, `1m30s`), within bounds given in seconds. Read as seconds."""

    minimum_s: int
    maximum_s: int

    @property
    def expected(self) -> str:
        """In words, for messages."""
        return f"a duration from {self.minimum_s}s to {self.maximum_s}s, such as 30s or 5m"


@dataclass(frozen=True, slots=True)
class ResourceName:
    """An extended resource name, `nvidia.com/` before it when it has no domain (contract R4)."""

    @property
    def expected(self) -> str:
        """In words, for messages."""
        return "a resource name such as nvidia.com/gpu"


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """A quantity of memory or a percentage of a device's memory."""

    @property
    def expected(self) -> str:
        """In words, for messages."""
        return "a quantity such as 8Gi or 4096Mi, or a percentage such as 25%"


@dataclass(frozen=True, slots=True)
class MemorySize:
    """A quantity of memory within bounds, given in MiB."""

    maximum_mib: int

    @property
    def expected(self) -> str:
        """In words, for messages."""
        return f"a quantity from 1Mi to {self.maximum_mib >> 20}Ti, such as 64Mi or 8Gi"


@dataclass(frozen=True, slots=True)
class SharedDevices:
    """Which devices of a resource a sharing entry takes."""

    @property
    def expected(self) -> str:
        """In words, for messages."""
        return (
            "all, rest, a count from 1, or a list of: GPU index, MIG index gpu:mig, GPU or MIG UUID, PCI address, "
            "model:<pattern>"
        )


@dataclass(frozen=True, slots=True)
class GpuList:
    """Which GPUs of the node, or MIG instances of them: for `devices.include` and `devices.exclude`."""

    @property
    def expected(self) -> str:
        """In words, for messages."""
        return "a list of: GPU index, MIG index gpu:mig, GPU or MIG UUID, PCI address, model:<pattern>"


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list.

    Attributes:
        item: the type of each item.
        alone: one item may stand in place of the list, several in one text with commas between.
        minimum: how many items at least.
    """

    item: "Type"
    alone: bool = False
    minimum: int = 0

    @property
    def expected(self) -> str:
        """In words, for messages."""
        if isinstance(self.item, Section):
            return f"a list of mappings with {', '.join(self.item.names)}"
        return f"{self.item.expected}; or a list of them" if self.alone else f"a list of: {self.item.expected}"


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a section.

    Attributes:
        doc: one or two sentences for people; `config/schema.json` shows them.
        default: as the file would write it; None where leaving it out means something that has no value.
        required: whether the section is incomplete without it.
    """

    name: str
    type: "Type"
    doc: str
    default: Any = None
    required: bool = False


@dataclass(frozen=True, slots=True)
class Section:
    """A mapping with known keys.

    Attributes:
        keys: every key there is.
        null_hint: empty: nothing below it means unset. Else: nothing below it is a mistake, and this says which.
    """

    keys: tuple[Key, ...]
    null_hint: str = ""

    @property
    def expected(self) -> str:
        """In words, for messages."""
        return f"a mapping with {', '.join(self.names)}"

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the keys."""
        return tuple(key.name for key in self.keys)

    def get(self, name: str) -> Key | None:
        """The key of that name, None when there is none."""
        return next((key for key in self.keys if key.name == name), None)


Type = (
    Boolean
    | Text
    | Choice
    | Whole
    | Duration
    | Period
    | ResourceName
    | MemoryLimit
    | MemorySize
    | SharedDevices
    | GpuList
    | ListOf
    | Section
)
