"""Flags and environment variables: every name of NVIDIA's plugin and ours, flag before variable, unset stays unset.

For a command line the order is `go_style`, then argparse with `add_flags`, then `settings_from`; `parse_settings` does
all three for a process that has no other arguments.
"""

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from deviceplugin.config.document import quote
from deviceplugin.config.memory import parse_memory_mib
from deviceplugin.config.model import Origin
from deviceplugin.config.notoffered import words_not_offered
from deviceplugin.config.options import PATH, PLUGIN_SETTINGS, PROCESS_SETTINGS, Setting
from deviceplugin.config.overrides import Given, Overrides
from deviceplugin.config.schema import MAX_XID
from deviceplugin.config.suggest import nearest
from deviceplugin.config.types import Boolean, Choice, ListOf, MemorySize, Type, Whole
from deviceplugin.errors import UsageError

__all__ = [
    "DEFAULT_STATUS_SOCKET",
    "Overrides",
    "Settings",
    "XidList",
    "add_flags",
    "go_style",
    "help_text",
    "parse_settings",
    "settings_from",
]

SIMULATED = "simulated:"
DEFAULT_STATUS_SOCKET = "/run/gpu-device-plugin/status.sock"
SERVES = "Serves this node's GPUs to the kubelet."

# Go's strconv.ParseBool, which NVIDIA's plugin reads flags and variables with.
_BOOLEANS = {
    **dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True),
    **dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), False),
}
_EVERY_SETTING = (*PLUGIN_SETTINGS, *PROCESS_SETTINGS)
_BY_FLAG: Mapping[str, Setting] = {flag: setting for setting in _EVERY_SETTING for flag in setting.flags}


@dataclass(frozen=True, slots=True)
class XidList:
    """Xids named by DP_DISABLE_HEALTHCHECKS or DP_ENABLE_HEALTHCHECKS; `every` for `all` and `xids`."""

    every: bool = False
    xids: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Settings:
    """What the process was started with.

    Attributes:
        overrides: what beats the config file; for `load_config`.
        config_file: None: no file.
        lenient: unknown and repeated keys in the file are only warnings.
        driver: `nvml`, or `simulated:FILE` with the node description that replaces it; `nvml:ROOT` reads /sys, /proc
            and /dev of the node below ROOT.
        kubelet_root_dir: pod-resources is below it.
        kubelet_socket: the registration socket; its directory is the device-plugins directory.
        mps_container_root: the MPS root as this process sees it; flags.mpsRoot is the same directory on the host.
        cdi_root: where CDI specifications are written.
        mps_multiuser: whether control daemons serve every user id at a time.
        mps_shm_size_mib: of the tmpfs that `mps mount-shm` mounts.
        log_format: `text` or `json`.
        log_level: `debug`, `info`, `warning` or `error`.
        disabled_health_checks, enabled_health_checks: NVIDIA's variables; what is enabled wins (design 8).
        warnings: what was skipped, to be logged.
    """

    overrides: Overrides = field(default_factory=Overrides)
    config_file: str | None = None
    lenient: bool = False
    driver: str = "nvml"
    kubelet_root_dir: str = "/var/lib/kubelet"
    kubelet_socket: str = "/var/lib/kubelet/device-plugins/kubelet.sock"
    cdi_root: str = "/var/run/cdi"
    status_socket: str = DEFAULT_STATUS_SOCKET
    mps_container_root: str = "/mps"
    mps_multiuser: bool = True
    mps_shm_size_mib: int = 64
    log_format: str = "text"
    log_level: str = "info"
    disabled_health_checks: XidList = XidList()
    enabled_health_checks: XidList = XidList()
    warnings: tuple[str, ...] = ()

    @property
    def device_plugins_dir(self) -> str:
        """Where plugin sockets lie; it moves only with the kubelet's socket, not its root (contract R1, design 8)."""
        return os.path.dirname(self.kubelet_socket)

    @property
    def pod_resources_socket(self) -> str:
        """The kubelet's PodResources socket, below its root directory (contract 4b)."""
        return os.path.join(self.kubelet_root_dir, "pod-resources", "kubelet.sock")

    @property
    def simulated_node(self) -> str | None:
        """The file of the node description that replaces the driver; None: the driver is NVML."""
        return self.driver.removeprefix(SIMULATED) if self.driver.startswith(SIMULATED) else None

    @property
    def fail_on_init_error(self) -> bool | None:
        """What a flag or variable says of it, None if neither does: the only ones to ask of a bad file (design 4)."""
        given = self.overrides.given.get("fail_on_init_error")
        return None if given is None else given.value is True


def parse_settings(arguments: Sequence[str], environment: Mapping[str, str]) -> Settings:
    """Read a whole command line, without the program's name, and the environment.

    Raises UsageError with every finding, one a line: exit status 2 if a flag is wrong, 1 if only variables are.
    """
    parser = _parser("nvidia-device-plugin")
    namespace, rest = parser.parse_known_args(go_style(arguments))
    if rest:
        raise UsageError(_unexpected(rest[0]))
    return settings_from(namespace, environment)


def help_text(program: str = "gpu-device-plugin serve", does: str = SERVES) -> str:
    """The help of a process that takes these flags and no other arguments, and `does` what the sentence says."""
    return _parser(program, does).format_help()


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Give an argparse parser every flag, in groups, each with what it does, its variable, key and default."""
    offered = parser.add_argument_group(
        "what is offered", "The config file can say these too; a flag beats a variable, a variable beats the file."
    )
    extra = parser.add_argument_group("container device interface")
    process = parser.add_argument_group("this process")
    for setting in PLUGIN_SETTINGS:
        _add_flag(offered if setting.path else extra, setting)
    for setting in PROCESS_SETTINGS:
        if setting.flags:
            _add_flag(process, setting)
    without_flag = [setting for setting in _EVERY_SETTING if not setting.flags]
    variables = parser.add_argument_group("environment variables without a flag")
    variables.description = " ".join(f"{setting.variables[0]}: {_help(setting)}" for setting in without_flag)


def go_style(arguments: Sequence[str]) -> list[str]:
    """Bring our flags, written as Go programs take them, into the form `--flag=value` that argparse takes.

    Go takes `-flag` for `--flag`, `--flag value`, any text as a value, and a boolean flag without a value for true.
    Everything that is no flag of ours stays as it is. Raises UsageError for a flag without its value, and for a boolean
    one with a separate value, which a Go program takes for true whatever it says.
    """
    result: list[str] = []
    position = 0
    while position < len(arguments):
        argument = arguments[position]
        position += 1
        if argument == "--":
            return [*result, argument, *arguments[position:]]
        dashes = len(argument) - len(argument.lstrip("-"))
        name, equals, value = argument[dashes:].partition("=")
        setting = _BY_FLAG.get(name) if dashes in {1, 2} else None
        following = arguments[position] if position < len(arguments) else None
        if setting is None:
            result.append(argument)
        elif equals:
            result.append(f"--{name}={value}")
        elif isinstance(setting.type, Boolean):
            if following in _BOOLEANS:
                raise UsageError(f"--{name}: found a separate {following}, expected --{name}={following}")
            result.append(f"--{name}=true")
        elif following is None:
            raise UsageError(f"--{name}: found no value, expected {setting.type.expected}")
        else:
            result.append(f"--{name}={following}")
            position += 1
    return result


def settings_from(namespace: argparse.Namespace, environment: Mapping[str, str]) -> Settings:
    """The settings of a parsed command line (see `add_flags`) and the environment. Raises UsageError."""
    problems: list[UsageError] = []
    given: dict[str, Given] = {}
    for setting in _EVERY_SETTING:
        try:
            found = _given(setting, getattr(namespace, setting.id, None) or [], environment)
        except UsageError as problem:
            problems.append(problem)
            continue
        if found is not None:
            given[setting.id] = found
    if problems:
        raise UsageError("\n".join(map(str, problems)), max(problem.exit_status for problem in problems))
    return _settings(given)


def _settings(given: Mapping[str, Given]) -> Settings:
    def get(setting: str) -> Any:
        return given[setting].value if setting in given else _DEFAULTS[setting]

    warnings: list[str] = []
    return Settings(
        overrides=Overrides({setting.id: given[setting.id] for setting in PLUGIN_SETTINGS if setting.id in given}),
        config_file=get("config_file") or None,
        lenient=get("config_strictness") == "lenient",
        driver=get("driver"),
        kubelet_root_dir=get("kubelet_root_dir"),
        kubelet_socket=get("kubelet_socket"),
        cdi_root=get("cdi_root"),
        status_socket=get("status_socket"),
        mps_container_root=get("mps_container_root"),
        mps_multiuser=get("mps_multiuser"),
        mps_shm_size_mib=parse_memory_mib(get("mps_shm_size")),
        log_format=get("log_format"),
        log_level=get("log_level"),
        disabled_health_checks=_xids("DP_DISABLE_HEALTHCHECKS", get("disabled_health_checks"), warnings),
        enabled_health_checks=_xids("DP_ENABLE_HEALTHCHECKS", get("enabled_health_checks"), warnings),
        warnings=tuple(warnings),
    )


def _given(setting: Setting, used: Sequence[tuple[str, str]], environment: Mapping[str, str]) -> Given | None:
    """What a flag, else a variable, says about a setting. Takes the flags as (name, value) in order."""
    if used:
        forms = [flag for flag in reversed(setting.flags) if any(name == flag for name, _ in used)]
        if len(forms) > 1:
            # NVIDIA's words and exit status (golden 167).
            raise UsageError(f"Cannot use two forms of the same flag: {' '.join(forms)}", exit_status=1)
        # A list adds up over its flags; of any other the last counts, as in NVIDIA's plugin.
        texts = [text for _, text in used] if isinstance(setting.type, ListOf) else [used[-1][1]]
        return _read(setting, ",".join(texts), Origin(f"--{forms[0]}"), exit_status=2)
    for variable in setting.variables:
        if text := environment.get(variable):
            return _read(setting, text, Origin(f"environment variable {variable}"), exit_status=1)
    return None


def _read(setting: Setting, text: str, origin: Origin, exit_status: int) -> Given:
    try:
        value = value_of(setting.type, text)
        if not text and setting.id in _NEEDED_PATHS:
            raise ValueError
        if setting.id == "driver":
            _check_driver(text)
    except ValueError:
        near = nearest(text, setting.type.options) if isinstance(setting.type, Choice) else None
        hint = f"; did you mean {near}?" if near else ""
        raise UsageError(
            f"{origin}: found {quote(text)}, expected {setting.type.expected}{hint}", exit_status
        ) from None
    return Given(value, origin)


def value_of(kind: Type, text: str) -> object:
    """The value of a flag's or variable's text by its type. Raises ValueError."""
    match kind:
        case Boolean():
            if text not in _BOOLEANS:
                raise ValueError
            return _BOOLEANS[text]
        case Choice(options=options):
            return options[options.index(text)]
        case Whole(minimum=minimum, maximum=maximum):
            if not (text.isascii() and text.isdecimal() and minimum <= int(text[:20]) <= maximum):
                raise ValueError
            return int(text)
        case MemorySize(maximum_mib=maximum_mib):
            if parse_memory_mib(text) > maximum_mib:
                raise ValueError
        case ListOf(item=item, minimum=least):
            parts = [part for part in map(str.strip, text.split(",")) if part]
            if len(parts) < least:
                raise ValueError
            return tuple(value_of(item, part) for part in parts)
    return text


def _check_driver(text: str) -> None:
    kind, colon, rest = text.partition(":")
    if text != "nvml" and not (colon and rest and kind in {"nvml", "simulated"}):
        raise ValueError


def _xids(variable: str, text: str, warnings: list[str]) -> XidList:
    """A list of Xids; what is none is skipped with a warning, as NVIDIA's plugin does (design 8)."""
    every = False
    xids: set[int] = set()
    for word in filter(None, (part.strip().lower() for part in text.split(","))):
        if word in {"all", "xids"}:
            every = True
        elif word.isascii() and word.isdecimal() and int(word[:30]) <= MAX_XID:
            xids.add(int(word))
        else:
            warnings.append(
                f"environment variable {variable}: found {quote(word)}, expected a number, all or xids; skipped"
            )
    return XidList(every, frozenset(xids))


def _unexpected(argument: str) -> str:
    if not argument.startswith("-"):
        return f"found the argument {quote(argument)}, expected flags only"
    near = nearest(argument.lstrip("-").partition("=")[0], list(_BY_FLAG))
    return f"{argument}: found an unknown flag" + (f"; did you mean --{near}?" if near else "")


class _Collect(argparse.Action):
    """Keeps each use of a flag as (name, value), so that two forms of one can be told."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        used = getattr(namespace, self.dest) or []
        setattr(namespace, self.dest, [*used, ((option_string or "").lstrip("-"), str(values))])


class _Parser(argparse.ArgumentParser):
    """Raises where argparse would end the process."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


def _parser(program: str, does: str = SERVES) -> _Parser:
    parser = _Parser(
        prog=program,
        usage="%(prog)s [--flag=value]...",
        description=f"{does} A flag may be written with one dash or two, its value after = or as the next word; a "
        "boolean flag alone means true. An empty environment variable counts as unset.",
        add_help=False,
        allow_abbrev=False,
    )
    add_flags(parser)
    return parser


def _add_flag(group: Any, setting: Setting) -> None:
    group.add_argument(
        *(f"--{flag}" for flag in setting.flags),
        dest=setting.id,
        action=_Collect,
        metavar=_metavar(setting),
        help=_help(setting).replace("%", "%%"),
    )


def _metavar(setting: Setting) -> str:
    match setting.type:
        case Choice(options=options):
            return "|".join(options)
        case Boolean():
            return "true|false"
        case ListOf(item=Choice(options=options)):
            return "|".join(options)
        case ListOf():
            return "LIST"
    return "PATH" if setting.type.expected == "a path" else "VALUE"


def _help(setting: Setting) -> str:
    default = setting.default
    words = ",".join(map(str, default)) if isinstance(default, list) else str(default)
    shown = words.lower() if isinstance(default, bool) else words
    notes = [f"env {', '.join(setting.variables)}"] if setting.flags and setting.variables else []
    notes += [f"key {setting.path}"] if setting.path else []
    notes += [f"default {shown}"] if default not in (None, "", []) else []
    later = ", ".join(words_not_offered(setting.id))
    notes += [f"not offered yet: {later}"] if later else []
    return f"{setting.doc} [{'; '.join(notes)}]" if notes else setting.doc


_DEFAULTS = {setting.id: setting.default for setting in PROCESS_SETTINGS}
# Empty they would mean the working directory: most likely a script's variable that is not set.
_NEEDED_PATHS = {setting.id for setting in PROCESS_SETTINGS if setting.type is PATH and setting.default}
