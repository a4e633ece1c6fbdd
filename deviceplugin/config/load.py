"""From a file, flags and variables to a Config, or to a ConfigError with every finding at once."""

import errno
import os
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from deviceplugin.config.document import (
    MAX_BYTES,
    Document,
    MappingNode,
    Node,
    Scalar,
    only_document,
    parse_document,
    parse_documents,
    quote,
    quote_key,
)
from deviceplugin.config.health import health_config
from deviceplugin.config.model import (
    Config,
    DeviceFilter,
    DeviceIdStrategy,
    Flags,
    HeldPolicy,
    MigStrategy,
    Origin,
    ResourcePattern,
    SelectAll,
    SelectIndex,
    Selector,
    SelectPci,
    SelectRest,
    SelectUuid,
    Sharing,
    SharingEntry,
)
from deviceplugin.config.notoffered import not_offered
from deviceplugin.config.options import PLUGIN_SETTINGS
from deviceplugin.config.overrides import Given, Overrides, effective
from deviceplugin.config.reader import MAX_FINDINGS, Found, Reader, Values
from deviceplugin.config.scalars import MemoryShare, describe
from deviceplugin.config.schema import ROOT
from deviceplugin.errors import ConfigError, NotOfferedError
from deviceplugin.model.names import name_problem
from deviceplugin.model.plan import AllocationPolicy, Mode

_SHARING_KINDS = (("timeSlicing", Mode.TIME_SLICING, False), ("mps", Mode.MPS, True))
MAX_KEYS_SAID = 5
STANDARD_INPUT = "-"
PIPES = ("/dev/fd/", "/proc/self/fd/")
"""Where bash and zsh put what `<(...)` gives."""
_SUFFIXES = {Mode.TIME_SLICING: ".shared", Mode.MPS: ".mps"}


def load_config(path: str | None, overrides: Overrides | None = None, *, lenient: bool = False) -> Config:
    """The config of a file, or of defaults without one, with what flags and variables override.

    Takes the file's path; `-` is standard input, None means there is none. Raises ConfigError as `read_config_file` and
    `parse_config` do.
    """
    if path is None:
        return parse_config(b"", None, overrides, lenient=lenient)
    source, data = read_input(path, "the config file")
    return parse_config(data, source, overrides, lenient=lenient)


def read_input(path: str, what: str) -> tuple[str, bytes]:
    """What a command was given to read: its name for messages, and at most one byte more than is allowed of it.

    Takes a file's path, or `-` for standard input, and what is expected there. Raises ConfigError as
    `read_config_file` does.
    """
    if path == STANDARD_INPUT:
        return "standard input", sys.stdin.buffer.read(MAX_BYTES + 1) if sys.stdin else b""
    if path.startswith(PIPES):
        # `<(...)` of a shell: a pipe, which a daemon would never wait for.
        with open(path, "rb") as pipe:
            return path, pipe.read(MAX_BYTES + 1)
    return path, read_config_file(path, f"{what}, or - for standard input", "check the path")


def parse_config(
    data: bytes, source: str | None, overrides: Overrides | None = None, *, lenient: bool = False
) -> Config:
    """The config that the bytes of a file make.

    Takes the file's content, its name for messages (None: there is no file, everything is default), what flags and
    variables override, and whether unknown and repeated keys are only warnings (`Config.warnings`). Raises ConfigError
    with every problem, one line each, in order of line: `file:line: path: found X, expected Y`; NotOfferedError, which
    is one, when all that is wrong is that this version does not offer it yet. Nothing else is ever raised, whatever
    the bytes.
    """
    if source is None:
        return _finish({}, Reader("", lenient), overrides or Overrides(), source=None, text="")
    source = " ".join(source.split())
    documents = parse_documents(data, source)
    if refusal := _manifest(documents, source):
        raise ConfigError((refusal,))
    root = only_document(documents, source)
    reader = Reader(source, lenient)
    if isinstance(root, Scalar) and root.value is None:
        # A file that an editor or a script has cut, not written yet, must not unshare a node.
        raise ConfigError((f"{source}:1: found an empty file, expected at least `version: v1` (all defaults)",))
    if not isinstance(root, MappingNode):
        raise ConfigError((f"{source}:{root.line}: found {describe(root)}, expected {ROOT.expected}",))
    values = reader.read(root, ROOT)
    return _finish(values, reader, overrides or Overrides(), source=source, text=data.decode("utf-8-sig"))


def settings_in(data: bytes, source: str) -> Mapping[str, object]:
    """The plugin settings that a file itself gives, by path in it (`flags.failOnInitError`).

    Takes what `parse_config` has taken.
    """
    root = parse_document(data, source)
    assert isinstance(root, MappingNode), "parse_config refuses all else"
    values = Reader(source, lenient=True).read(root, ROOT)
    return {path: given.value for path, given in _file_settings(values)}


def _manifest(documents: Sequence[Document], source: str) -> str:
    """What is wrong with Kubernetes objects in place of the config that one of them carries; empty for a config."""
    roots = (document.root for document in documents)
    manifests = [one for one in roots if isinstance(one, MappingNode) and {"apiVersion", "kind"} <= {*_keys(one)}]
    if not manifests:
        return ""
    # Where there are several, as in `helm template`'s output, the config is in the one with data.
    carrier = next((one for one in manifests if _keys(one.get("data"))), manifests[0])
    kind = carrier.get("kind")
    named = quote(str(kind.value)) if isinstance(kind, Scalar) else "unnamed kind"
    keys = [quote_key(key) for key in _keys(carrier.get("data"))[:MAX_KEYS_SAID]]
    where = f"one of the texts under its `data` ({', '.join(keys)})" if keys else "a text under a ConfigMap's `data`"
    return (
        f"{source}:{carrier.line}: found a Kubernetes manifest (kind {named}), expected the config itself: give a file "
        f"that holds {where}"
    )


def _keys(node: Node | None) -> list[str]:
    return [entry.key for entry in node.entries] if isinstance(node, MappingNode) else []


def read_config_file(
    path: str,
    what: str = "the config file",
    missing: str = "check the path, and the ConfigMap's key and volume mount",
) -> bytes:
    """The bytes of a config file, for `parse_config`.

    At most one byte more than is allowed is read. Never waits: a FIFO or device at the path is refused. Raises
    ConfigError for a file that is missing, not a file or not readable, with what to do.

    Takes the path and, for messages, what is expected there, and what to do where nothing is.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                is_directory = stat.S_ISDIR(os.fstat(descriptor).st_mode)
                raise ConfigError((_not_a_file(path, what, is_directory=is_directory),))
            return file.read(MAX_BYTES + 1)
    except OSError as error:
        if error.errno == errno.EISDIR:
            raise ConfigError((_not_a_file(path, what, is_directory=True),)) from None
        raise ConfigError((f"{path}: found {_reason(error, path, what, missing)}",)) from None
    except ValueError:
        raise ConfigError((f"{path!r}: found a NUL character in the path, expected the path of a file",)) from None


def _reason(error: OSError, path: str, what: str, missing: str) -> str:
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        directory = next((parent for parent in Path(path).parents if os.path.isdir(parent)), Path("/"))
        return f"no such file (the nearest directory that exists is {directory}), expected {what}: {missing}"
    return f"that it can't be read ({os.strerror(error.errno or 0)}), expected a file that this process may read"


def _not_a_file(path: str, what: str, *, is_directory: bool) -> str:
    if is_directory:
        return f"{path}: found a directory, expected a file: give the path of the file in it"
    return f"{path}: found something that is not a regular file, expected {what}"


def _finish(values: Values, reader: Reader, overrides: Overrides, *, source: str | None, text: str) -> Config:
    settings = effective(overrides, dict(_file_settings(values)))
    sharing = {mode: _sharing(values, kind, mode, default) for kind, mode, default in _SHARING_KINDS}
    _check_overlaps(sharing, reader)
    _check_derived_names(sharing, reader)
    health = health_config(_section(values, "health"), reader)
    refused = not_offered(settings)
    if reader.problems:
        raise ConfigError(_lines(reader.problems + refused))
    if refused:
        raise NotOfferedError(_lines(refused))
    resources = _section(values, "resources")
    devices = _section(values, "devices")
    return Config(
        flags=_flags(settings),
        time_slicing=sharing[Mode.TIME_SLICING],
        mps=sharing[Mode.MPS],
        transition=HeldPolicy(_get(_section(values, "sharing"), "transition", HeldPolicy.DRAIN)),
        gpu_patterns=_patterns(resources, "gpus"),
        mig_patterns=_patterns(resources, "mig"),
        devices=DeviceFilter(_selectors(devices, "include"), _selectors(devices, "exclude")),
        health=health,
        warnings=_lines(reader.warnings),
        source=source,
        text=text,
    )


def _lines(findings: list[tuple[int, str]]) -> tuple[str, ...]:
    """In order of line, those of flags and variables first."""
    lines = [text for _, text in sorted(findings, key=lambda finding: finding[0])]
    return tuple(lines[:MAX_FINDINGS]) + ((f"and {len(lines) - MAX_FINDINGS} more",) * (len(lines) > MAX_FINDINGS))


def _section(values: Values, name: str) -> Values:
    found = values.get(name)
    return cast(Values, found.value) if found else {}


def _get(values: Values, name: str, default: Any = None) -> Any:
    """A value whose type the schema has already seen to."""
    found = values.get(name)
    return found.value if found else default


def _file_settings(values: Values) -> Iterator[tuple[str, Given]]:
    """The plugin settings that the file gives, by path."""
    for setting in PLUGIN_SETTINGS:
        *sections, name = setting.path.split(".")
        section = values
        for part in sections:
            section = _section(section, part)
        if found := section.get(name):
            yield setting.path, Given(_plain(found.value), found.origin)


def _plain(value: object) -> object:
    return tuple(item.value for item in value) if isinstance(value, list) else value


def _flags(settings: dict[str, Given]) -> Flags:
    def get(setting: str) -> Any:
        return settings[setting].value

    driver_root: str = get("nvidia_driver_root")
    return Flags(
        mig_strategy=MigStrategy(get("mig_strategy")),
        fail_on_init_error=get("fail_on_init_error"),
        nvidia_driver_root=driver_root,
        nvidia_dev_root=driver_root if get("nvidia_dev_root") is None else get("nvidia_dev_root"),
        device_id_strategy=DeviceIdStrategy(get("device_id_strategy")),
        device_list_strategies=tuple(dict.fromkeys(get("device_list_strategy"))),
        pass_device_specs=get("pass_device_specs"),
        cdi_annotation_prefix=get("cdi_annotation_prefix"),
        cdi_hook_path=get("cdi_hook_path"),
        cdi_disable_hooks=tuple(dict.fromkeys(get("cdi_disable_hooks"))),
        gdrcopy_enabled=get("gdrcopy_enabled"),
        gds_enabled=get("gds_enabled"),
        mofed_enabled=get("mofed_enabled"),
        imex_channel_ids=tuple(dict.fromkeys(get("imex_channel_ids"))),
        imex_required=get("imex_required"),
        container_driver_root=get("container_driver_root"),
        mps_root=get("mps_root"),
        shared_devices_allocation_policy=AllocationPolicy(get("shared_devices_allocation_policy")),
        device_discovery_strategy=get("device_discovery_strategy"),
    )


def _patterns(resources: Values, kind: str) -> tuple[ResourcePattern, ...]:
    found: list[Found] = _get(resources, kind, [])
    return tuple(
        ResourcePattern(_get(entry, "pattern"), _get(entry, "name"), item.origin)
        for item in found
        for entry in (cast(Values, item.value),)
    )


def _selectors(devices: Values, name: str) -> tuple[Selector, ...]:
    return cast(tuple[Selector, ...], _get(devices, name, ()))


def _sharing(values: Values, kind: str, mode: Mode, refuse_more_than_one: bool) -> Sharing | None:
    found = _section(values, "sharing").get(kind)
    if found is None:
        return None
    section = cast(Values, found.value)
    items: list[Found] = _get(section, "resources", [])
    entries = (_entry(mode, cast(Values, item.value), item.origin) for item in items)
    return Sharing(
        entries=tuple(entry for entry in entries if entry is not None),
        rename_by_default=_get(section, "renameByDefault", False),
        refuse_more_than_one=_get(section, "failRequestsGreaterThanOne", refuse_more_than_one),
        origin=found.origin,
    )


def _entry(mode: Mode, values: Values, origin: Origin) -> SharingEntry | None:
    """One entry, None when what it must have is missing or wrong: that is reported already."""
    if "name" not in values or "replicas" not in values:
        return None
    policy = _get(values, "allocationPolicy")
    memory: MemoryShare = _get(values, "memoryLimit", MemoryShare())
    return SharingEntry(
        mode=mode,
        name=_get(values, "name"),
        replicas=_get(values, "replicas"),
        origin=origin,
        rename=_get(values, "rename"),
        selectors=_get(values, "devices", (SelectAll(),)),
        allocation_policy=AllocationPolicy(policy) if policy else None,
        memory_limit_mib=memory.mib,
        memory_limit_percent=memory.percent,
        active_thread_percentage=_get(values, "activeThreadPercentage"),
    )


def _check_overlaps(sharing: dict[Mode, Sharing | None], reader: Reader) -> None:
    """Two entries that take the same devices whatever the node: other overlaps are found when its GPUs are known."""
    taken: dict[tuple[str, Selector], Origin] = {}
    for entry in (entry for section in sharing.values() if section for entry in section.entries):
        for selector in entry.selectors:
            words = _same_everywhere(selector)
            if words is None:
                continue
            first = taken.setdefault((entry.name, selector), entry.origin)
            if first is not entry.origin:
                reader.report(
                    entry.origin,
                    f"found {words} of {entry.name} claimed a second time (first in line {first.line}), expected each "
                    "device in one entry: give the entries different devices",
                )


def _same_everywhere(selector: Selector) -> str | None:
    """What a selector names, if two equal ones take the same devices on every node."""
    match selector:
        case SelectAll():
            return "all"
        case SelectRest():
            return "the rest"
        case SelectIndex(gpu_index=gpu, slot=slot):
            return f"GPU {gpu}" if slot is None else f"MIG instance {gpu}:{slot}"
        case SelectUuid(uuid=uuid):
            return uuid
        case SelectPci(address=address):
            return f"the GPU at {address}"
        case _:
            return None


def _check_derived_names(sharing: dict[Mode, Sharing | None], reader: Reader) -> None:
    """Names that we would make ourselves must be as good as those that are written (contract R4)."""
    for mode, section in sharing.items():
        for entry in section.entries if section else ():
            whole = isinstance(entry.selectors[0], SelectAll) if entry.selectors else True
            assert section is not None
            if entry.rename or (whole and not section.rename_by_default):
                continue
            name = entry.name + (".shared" if section.rename_by_default else _SUFFIXES[mode])
            if problem := name_problem(name):
                reader.report(entry.origin, f"found a name that becomes {name}, expected a shorter one: {problem}")
