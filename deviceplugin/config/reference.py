"""The reference of the config file, for people: `python -m deviceplugin.config.reference > docs/configuration.md`.

Made from config.schema and config.options, so that it says what the loader does; only the examples are written here.
"""

import sys
from collections.abc import Iterator, Mapping
from typing import Any, Final

from deviceplugin.config.document import join_path
from deviceplugin.config.notoffered import words_not_offered
from deviceplugin.config.options import PLUGIN_SETTINGS, PROCESS_SETTINGS, Setting
from deviceplugin.config.schema import ROOT
from deviceplugin.config.types import Key, ListOf, Section

EXAMPLES: Final[Mapping[str, str]] = {
    "version": "v1",
    "flags.migStrategy": "mixed",
    "flags.failOnInitError": "false",
    "flags.mpsRoot": "/run/nvidia/mps",
    "flags.nvidiaDriverRoot": "/run/nvidia/driver",
    "flags.nvidiaDevRoot": "/run/nvidia/driver",
    "flags.gdrcopyEnabled": "true",
    "flags.gdsEnabled": "true",
    "flags.mofedEnabled": "true",
    "flags.deviceDiscoveryStrategy": "nvml",
    "flags.useNodeFeatureAPI": "true",
    "flags.plugin.passDeviceSpecs": "true",
    "flags.plugin.deviceListStrategy": "[envvar, volume-mounts]",
    "flags.plugin.deviceIDStrategy": "index",
    "flags.plugin.cdiAnnotationPrefix": "cdi.k8s.io/",
    "flags.plugin.nvidiaCTKPath": "/usr/local/nvidia/toolkit/nvidia-cdi-hook",
    "flags.plugin.containerDriverRoot": "/driver-root",
    "flags.plugin.sharedDevicesAllocationPolicy": "packed",
    "flags.gfd.oneshot": "false",
    "flags.gfd.noTimestamp": "true",
    "flags.gfd.sleepInterval": "60s",
    "flags.gfd.outputFile": "/etc/kubernetes/node-feature-discovery/features.d/gfd",
    "flags.gfd.machineTypeFile": "/sys/class/dmi/id/product_name",
    "devices.include": '[0, 1, "model:*A100*"]',
    "devices.exclude": '["0000:65:00.0"]',
    "resources.gpus[].pattern": '"*T4*"',
    "resources.gpus[].name": "nvidia.com/t4",
    "resources.mig[].pattern": '"1g.*"',
    "resources.mig[].name": "nvidia.com/mig-small",
    "sharing.timeSlicing.renameByDefault": "true",
    "sharing.timeSlicing.failRequestsGreaterThanOne": "true",
    "sharing.timeSlicing.resources[].name": "nvidia.com/gpu",
    "sharing.timeSlicing.resources[].rename": "nvidia.com/gpu.shared",
    "sharing.timeSlicing.resources[].devices": "[2, 3]",
    "sharing.timeSlicing.resources[].replicas": "4",
    "sharing.timeSlicing.resources[].allocationPolicy": "spread",
    "sharing.mps.renameByDefault": "true",
    "sharing.mps.failRequestsGreaterThanOne": "false",
    "sharing.mps.resources[].name": "nvidia.com/gpu",
    "sharing.mps.resources[].rename": "nvidia.com/gpu.mps",
    "sharing.mps.resources[].devices": "rest",
    "sharing.mps.resources[].replicas": "10",
    "sharing.mps.resources[].allocationPolicy": "packed",
    "sharing.mps.resources[].memoryLimit": "4Gi",
    "sharing.mps.resources[].activeThreadPercentage": "20",
    "sharing.transition": "refuse",
    "imex.channelIDs": "[0]",
    "imex.required": "true",
    "health.xids.ignore": "[94]",
    "health.xids.warn": "[63]",
    "health.xids.untilRecovered": "[45]",
    "health.xids.untilReset": "[79]",
    "health.conditions.uncorrectableEcc": "untilReset",
    "health.conditions.remappingPending": "warn",
    "health.conditions.remappingFailed": "untilReset",
    "health.conditions.retirementPending": "warn",
    "health.pollInterval": "5s",
    "health.quietTime": "120s",
    "health.liveAfter": "90s",
}
"""A value for each key, as the file would write it. `[]` in a path: the key of each item of a list."""

_INTRO = """\
# Configuration

<!-- Made by `make configuration-docs` from the definitions that the plugin itself reads by. -->

One file, YAML or JSON, named by `--config-file` or `CONFIG_FILE`; without one every GPU is whole, as nvidia.com/gpu. It
is NVIDIA's format, and more. `gpu-device-plugin validate FILE` says everything that is wrong with one, `plan FILE` what
it makes of a node. [config/](../config) has commented examples, `config/schema.json` is a JSON Schema for editors.

Unknown and repeated keys are errors (`--config-strictness lenient`: warnings). Nothing is coerced: `replicas: "4"` is
one too. Null means unset. A file with any mistake is refused as a whole, and what was in force stays so.

"""
_FLAGS_TITLE = """\
## Flags and variables without a key

What belongs to the process; a flag beats a variable. An empty variable counts as unset.

| flag | variable | default | meaning |
|---|---|---|---|
"""


def render() -> str:
    """The text of docs/configuration.md."""
    sections = [_table(path, section, _doc(path)) for path, section in _sections(ROOT)]
    without_key = [setting for setting in (*PLUGIN_SETTINGS, *PROCESS_SETTINGS) if not setting.path]
    return _INTRO + "\n".join(sections) + "\n" + _FLAGS_TITLE + "".join(map(_setting_row, without_key))


def _sections(section: Section, path: str = "") -> Iterator[tuple[str, Section]]:
    """Every section that has keys of its own, with its path, outer ones first."""
    if any(_inner(key) is None for key in section.keys):
        yield path, section
    for key in section.keys:
        if (inner := _inner(key)) is not None:
            suffix = "[]" if isinstance(key.type, ListOf) else ""
            yield from _sections(inner, join_path(path, key.name) + suffix)


def _inner(key: Key) -> Section | None:
    match key.type:
        case Section() as section:
            return section
        case ListOf(item=Section() as section):
            return section
    return None


def _doc(path: str) -> str:
    """What the schema says of a section."""
    section, doc = ROOT, ""
    for name in path.replace("[]", "").split(".") if path else ():
        key = section.get(name)
        assert key is not None
        inner = _inner(key)
        assert inner is not None
        section, doc = inner, key.doc
    return doc


def _table(path: str, section: Section, doc: str) -> str:
    title = f"`{path}`" if path else "The file"
    head = f"## {title}\n\n" + (f"{doc}\n\n" if doc else "")
    head += "| key | takes | default | example | flag, variable | meaning |\n|---|---|---|---|---|---|\n"
    return head + "".join(_key_row(path, key) for key in section.keys if _inner(key) is None)


def _key_row(path: str, key: Key) -> str:
    full = join_path(path, key.name)
    setting = next((one for one in PLUGIN_SETTINGS if one.path == full), None)
    default = "required" if key.required else _code(key.default)
    example = f"`{key.name}: {EXAMPLES[full]}`"
    given = _names(setting) if setting else ""
    return _row(f"`{key.name}`", key.type.expected, default, example, given, _meaning(key.doc, setting))


def _setting_row(setting: Setting) -> str:
    flags = ", ".join(f"`--{flag}`" for flag in setting.flags)
    variables = ", ".join(f"`{variable}`" for variable in setting.variables)
    return _row(flags, variables, _code(setting.default), _meaning(setting.doc, setting))


def _names(setting: Setting) -> str:
    return ", ".join((*(f"`--{flag}`" for flag in setting.flags), *(f"`{name}`" for name in setting.variables)))


def _meaning(doc: str, setting: Setting | None) -> str:
    later = ", ".join(words_not_offered(setting.id)) if setting else ""
    return f"{doc} Not offered yet: {later}." if later else doc


def _code(default: Any) -> str:
    if default in (None, "", []):
        return ""
    if isinstance(default, list):
        return f"`[{', '.join(map(str, default))}]`"
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


if __name__ == "__main__":
    sys.stdout.write(render())
