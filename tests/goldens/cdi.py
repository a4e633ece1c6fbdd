"""When our CDI specifications say what the recorded ones say: the same devices, the same nodes, the same edits."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from tests.goldens.case import Json

NOT_COMPARED: Final = MappingProxyType(
    {
        "major, minor and fileMode of nodes": "the runtime reads them from the host when a container starts, so that a "
        "driver that comes back with another nvidia-uvm leaves nothing stale; NVIDIA's IMEX specification has none",
        "permissions of nodes where NVIDIA's has none": "the specification's default is what we write",
        "what create-symlinks links": "ours are the links that the driver's directory has; NVIDIA's come from the "
        "libraries' SONAMEs, which are all libnvidia-ml.so.1 in the recording: copies of one stand-in",
        "path of hooks below another driver root (090)": "ours is where the program was found; NVIDIA's is never "
        "looked for, and a hook that is not there fails every container",
        "env of the IMEX class (105)": "ours neutralises NVIDIA_VISIBLE_DEVICES there, too",
        "more devices than recorded": "ours names every GPU and MIG instance by UUID and index, split GPUs as well, so "
        "that no edit of migStrategy or deviceIDStrategy leaves a pod with a name that means nothing",
    }
)
"""What may differ, and why."""


def compare_specs(expected: Json, got: Json) -> Iterator[str]:
    """Every point in which specifications, by file, are not what they should be; none but by NOT_COMPARED."""
    for name in sorted(expected.keys() - got.keys()):
        yield f"{name}: not written"
    for name in sorted(got.keys() - expected.keys()):
        yield f"{name}: written, not expected"
    for name in sorted(expected.keys() & got.keys()):
        for finding in _spec(expected[name], got[name]):
            yield f"{name}: {finding}"


def _spec(expected: Json, got: Json) -> Iterator[str]:
    for key in ("cdiVersion", "kind"):
        if expected[key] != got[key]:
            yield f"{key}: expected {expected[key]}, got {got[key]}"
    devices = {device["name"]: device["containerEdits"] for device in got["devices"]}
    if len(devices) != len(got["devices"]):
        yield "a name stands for two devices"
    wanted = {device["name"]: device["containerEdits"] for device in expected["devices"]}
    for name, edits in wanted.items():
        if name not in devices:
            yield f"device {name} missing"
        else:
            yield from (f"device {name}: {finding}" for finding in _edits(edits, devices[name]))
    yield from _edits(expected["containerEdits"], got["containerEdits"])


def _edits(expected: Json, got: Json) -> Iterator[str]:
    for key, shown in (("deviceNodes", _nodes), ("mounts", _mounts), ("hooks", _hooks)):
        wanted, answered = shown(expected.get(key, [])), shown(got.get(key, []))
        if wanted != answered:
            yield f"{key}: expected {wanted}, got {answered}"
    more = set(got.get("env", [])) ^ set(expected.get("env", []))
    if more - (set() if "env" in expected else {"NVIDIA_VISIBLE_DEVICES=void"}):
        yield f"env: expected {expected.get('env')}, got {got.get('env')}"


def _nodes(nodes: list[Json]) -> list[Any]:
    return sorted((node["path"], node["hostPath"], node.get("permissions", "rwm")) for node in nodes)


def _mounts(mounts: list[Json]) -> list[Any]:
    return sorted((mount["containerPath"], mount["hostPath"], mount["options"]) for mount in mounts)


def _hooks(hooks: list[Json]) -> list[Any]:
    return [(hook["hookName"], _command(hook["args"]), hook["env"], _program(hook["path"])) for hook in hooks]


def _command(args: list[str]) -> list[str]:
    return args[: args.index("create-symlinks") + 1] if "create-symlinks" in args else args


def _program(path: str) -> str:
    return path.rpartition("/")[2]


def unresolved(specs: Mapping[str, Json], names: list[str]) -> list[str]:
    """Of fully qualified CDI names those that no specification has, as a runtime looks them up."""
    known = {f"{spec['kind']}={device['name']}" for spec in specs.values() for device in spec["devices"]}
    return [name for name in names if name not in known]
