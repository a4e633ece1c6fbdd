"""Which part of a file is the values of NVIDIA's chart: people have other files at hand, and charts with it in them."""

from deviceplugin.config.chart_shapes import shown
from deviceplugin.config.document import Entry, MappingNode, Node, Scalar, load_document, quote, to_plain
from deviceplugin.errors import ConfigError

_CONFIG = frozenset(("version", "flags", "sharing"))
"""Keys that a config file has and a values file has not."""
_OPERATORS = frozenset(
    ("operator", "driver", "toolkit", "dcgm", "dcgmExporter", "migManager", "validator", "vgpuManager")
)
"""Keys that the GPU operator's chart has and the plugin's has not."""
_NAMES = frozenset(("nvidia-device-plugin", "k8s-device-plugin"))
"""Of the chart, where it is part of another."""
_OF_EVERY_CHART = frozenset(("global", "enabled"))


def values_in(data: bytes, source: str, known: frozenset[str]) -> tuple[str, MappingNode]:
    """The values of NVIDIA's chart in a file, and the path that they stand below: empty for a values file of its own.

    Takes the bytes, the file's name for messages, and the keys that a chart has. Raises ConfigError for what is no YAML
    mapping, and for what people have at hand besides, by its name instead of a verdict on each of its keys.
    """
    try:
        root = load_document(data, source)
    except ConfigError as error:
        # Helm takes both, and so a file may have them that works.
        problems = (
            f"{one}; `helm get values` writes them out" if " are not read" in one else one for one in error.problems
        )
        raise ConfigError(tuple(problems)) from None
    path: list[str] = []
    while (below := _part(root, known)) is not None:
        path.append(below.key)
        root = below.value
    if isinstance(root, Scalar) and root.value is None:
        return ".".join(path), MappingNode((), root.line)
    if not isinstance(root, MappingNode):
        found = shown(to_plain(root))
        raise ConfigError((f"{source}:{root.line}: found {found}, expected the values of a chart: a mapping",))
    _refuse_others(root, source, known)
    return ".".join(path), root


def _part(root: Node, known: frozenset[str]) -> Entry | None:
    """Where another chart's values hold those of this one: below its name, or the one key that can be an alias."""
    if not isinstance(root, MappingNode):
        return None
    named = [entry for entry in root.entries if entry.key in _NAMES]
    if named or {entry.key for entry in root.entries} & (known - _OF_EVERY_CHART):
        return named[0] if named else None
    inside = [
        entry
        for entry in root.entries
        if isinstance(entry.value, MappingNode) and {inner.key for inner in entry.value.entries} & (known | _NAMES)
    ]
    return inside[0] if len(inside) == 1 else None


def _refuse_others(root: MappingNode, source: str, known: frozenset[str]) -> None:
    def found(what: str, cure: str) -> ConfigError:
        return ConfigError((f"{source}:{root.line}: found {what}, expected the values of NVIDIA's chart: {cure}",))

    def text(key: str) -> str:
        node = root.get(key)
        return node.text if isinstance(node, Scalar) else ""

    keys = {entry.key for entry in root.entries}
    if text("apiVersion") and text("kind"):
        raise found(
            f"a Kubernetes manifest (kind {quote(text('kind'))})",
            "give the values in it, or an empty file where there is no Helm, and the config file after it",
        )
    if keys & _CONFIG and not (keys - {"resources"}) & known:
        raise found("a config file of the plugin", "give that second: migrate VALUES CONFIG")
    if len(keys & _OPERATORS) > 1:
        raise found(
            "the values of the GPU operator", "see docs/migration.md, From the GPU operator; its device plugin has none"
        )


def refuse_values(data: bytes, source: str, known: frozenset[str]) -> None:
    """Raises ConfigError for a values file in place of a config file; everything else is the loader's business.

    Takes the bytes, the file's name for messages, and the keys that a chart has.
    """
    try:
        root = load_document(data, source)
    except ConfigError:
        return
    keys = {entry.key for entry in root.entries} if isinstance(root, MappingNode) else set()
    if (keys - {"resources"}) & (known | _NAMES) and not keys & _CONFIG:
        raise ConfigError(
            (
                f"{source}:{root.line}: found the values of a chart, expected a config file: give them first: "
                "migrate VALUES CONFIG",
            )
        )
