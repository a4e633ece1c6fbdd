"""The CDI specifications of a node: what a runtime does to a container for each name that Allocate may return.

They follow from the node and the flags alone, not from the plan: names that pods hold must keep their meaning through
every edit of the config, since the kubelet repeats an old answer at each restart of a container (contract A16).
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from deviceplugin.config.model import Flags
from deviceplugin.model.cdi import ALL, EXTRA_CLASSES, GPU_CLASS, IMEX_CLASS, VENDOR, CdiSpec, is_device_name
from deviceplugin.model.devicefiles import CONTROL, IMEX_CHANNELS, files_of, imex_file
from deviceplugin.model.node import DriverFile, Gpu, MigInstance, Snapshot
from deviceplugin.planning.delivering import by_cdi, extra_files
from deviceplugin.planning.devroot import HostDevices, host_devices

Plain = dict[str, Any]

VERSION = "0.5.0"
"""The oldest of the CDI specification that has all we use: hostPath of device nodes, names that begin with a digit."""

NO_DEVICES = "NVIDIA_VISIBLE_DEVICES=void"
"""Neutralises an image's own `all`, which NVIDIA's runtime would act on besides (reports L1)."""
READ_ONLY = ["ro", "nosuid", "nodev", "rbind", "rprivate"]
GDS_FILES = ("/etc/cufile.json", "/run/udev")
FALLBACK_DIRECTORY = "/usr/local/nvidia/lib64"
"""Where CUDA images look for the driver's libraries by their LD_LIBRARY_PATH, whatever their distribution."""

HOOKS = (
    *("create-symlinks", "enable-cuda-compat", "update-ldcache", "disable-device-node-modification"),
    "update-application-profile",
)
"""Commands of nvidia-cdi-hook that a container is prepared with, in this order."""


def cdi_specs(snapshot: Snapshot, flags: Flags) -> tuple[CdiSpec, ...]:
    """One specification for each class that has devices here; none where no strategy uses CDI.

    Every GPU and MIG instance whose device files all exist is in it under its UUID and its index, so that an edit of
    deviceIDStrategy leaves no pod with a name that means nothing; a GPU that is split, too. Extras and IMEX channels
    are in it when the node has their files, whether or not they are asked for now.
    """
    if not by_cdi(flags):
        return ()
    files = host_devices(snapshot, flags)
    if files.unseen:
        return ()
    specs = []
    for device_class, edits, devices in (
        (GPU_CLASS, _common_edits(snapshot, flags, files), list(_gpus(snapshot, files))),
        (IMEX_CLASS, {"env": [NO_DEVICES]}, list(_channels(files))),
        *((one, {"env": [NO_DEVICES]}, list(_extra(one, snapshot, flags, files))) for one in EXTRA_CLASSES),
    ):
        if devices:
            spec = {"cdiVersion": VERSION, "kind": f"{VENDOR}/{device_class}", "devices": devices}
            text = json.dumps({**spec, "containerEdits": edits}, sort_keys=True) + "\n"
            specs.append(CdiSpec(device_class, text))
    return tuple(specs)


def _gpus(snapshot: Snapshot, files: HostDevices) -> Iterator[Plain]:
    for gpu in snapshot.gpus:
        for instance in (None, *gpu.mig_instances):
            own = files_of(gpu, instance)
            if own and files.names.issuperset(own):
                for name in _names(gpu, instance):
                    yield {"name": name, "containerEdits": {"deviceNodes": _nodes(own, files)}}


def _names(gpu: Gpu, instance: MigInstance | None) -> Iterator[str]:
    if instance is None:
        if gpu.uuid:
            yield gpu.uuid
        yield str(gpu.index)
    elif instance.capabilities is not None:
        if is_device_name(instance.uuid):  # one that is none would cost the node the whole file
            yield instance.uuid
        yield f"{gpu.index}:{instance.slot}"


def _channels(files: HostDevices) -> Iterator[Plain]:
    for channel in IMEX_CHANNELS:
        if imex_file(channel) in files.names:
            yield {"name": str(channel), "containerEdits": {"deviceNodes": _nodes((imex_file(channel),), files)}}


def _extra(extra: str, snapshot: Snapshot, flags: Flags, files: HostDevices) -> Iterator[Plain]:
    own = extra_files(extra, files.names)
    if own:
        edits: Plain = {"deviceNodes": _nodes(own, files)}
        if extra == "gds":
            mounts = [_mount(one.path, one.path, flags) for one in snapshot.driver_files if one.path in GDS_FILES]
            edits |= {"mounts": mounts} if mounts else {}
        yield {"name": ALL, "containerEdits": edits}


def _nodes(names: Sequence[str], files: HostDevices) -> list[Plain]:
    """Device nodes by path alone: the runtime reads their numbers from the host when a container starts, so that a
    driver that comes back with others leaves nothing stale.
    """
    return [
        {"path": f"/dev/{name}", "hostPath": files.path(name), "permissions": "rwm"} for name in dict.fromkeys(names)
    ]


def _common_edits(snapshot: Snapshot, flags: Flags, devices: HostDevices) -> Plain:
    """What every container with a GPU gets: control files, the driver's files, and hooks where a program runs them."""
    files = [one for one in snapshot.driver_files if one.path not in GDS_FILES]
    libraries = [one for one in files if one.is_library]
    hook = flags.cdi_hook_path or (snapshot.cdi_hook and _host(snapshot.cdi_hook, flags))
    hooks = list(_hooks(hook, libraries, snapshot.driver_version, flags)) if hook else []
    mounts = {one.path: _mount(one.path, one.path, flags) for one in files}
    for name, source in _without_ldcache(libraries) if not _has(hooks, "update-ldcache") else ():
        mounts.setdefault(name, _mount(source, name, flags))
    env = [NO_DEVICES]
    if directories := _directories([one for one in libraries if "/libcuda.so." in one.path]):
        env.insert(0, f"NVIDIA_CTK_LIBCUDA_DIR={':'.join(directories)}")
    edits: Plain = {
        "env": env,
        "deviceNodes": _nodes([name for name in CONTROL if name in devices.names], devices),
        "mounts": [mounts[path] for path in sorted(mounts)],
        "hooks": hooks,
    }
    return {key: value for key, value in edits.items() if value}


def _mount(path: str, container_path: str, flags: Flags) -> Plain:
    return {"hostPath": _host(path, flags), "containerPath": container_path, "options": READ_ONLY}


def _host(path: str, flags: Flags) -> str:
    """A path below the driver root as the host names it."""
    return flags.nvidia_driver_root.rstrip("/") + path


def _without_ldcache(libraries: Sequence[DriverFile]) -> Iterator[tuple[str, str]]:
    """Where else to mount libraries when no hook makes their links and tells the loader: under each linked name,
    beside themselves and where CUDA images look. Yields container path and source below the driver root.
    """
    for library in libraries:
        directory = library.path.rpartition("/")[0]
        for link in library.links:
            yield f"{directory}/{link}", library.path
            yield f"{FALLBACK_DIRECTORY}/{link}", library.path


def _directories(libraries: Sequence[DriverFile]) -> list[str]:
    return list(dict.fromkeys(one.path.rpartition("/")[0] for one in libraries))


def _hooks(program: str, libraries: Sequence[DriverFile], version: str | None, flags: Flags) -> Iterator[Plain]:
    links = [
        word
        for one in libraries
        for link in one.links
        for word in ("--link", f"{one.path.rpartition('/')[2]}::{one.path.rpartition('/')[0]}/{link}")
    ]
    folders = [word for directory in _directories(libraries) for word in ("--folder", directory)]
    arguments = {
        "create-symlinks": links,
        "enable-cuda-compat": [f"--host-driver-version={version}"] if version else [],
        "update-ldcache": folders,
    }
    name = program.rpartition("/")[2]
    command = [name] if name == "nvidia-cdi-hook" else [name, "hook"]
    for hook in HOOKS:
        wanted = ALL not in flags.cdi_disable_hooks and hook not in flags.cdi_disable_hooks
        if wanted and arguments.get(hook) != []:
            yield {
                "hookName": "createContainer",
                "path": program,
                "args": [*command, hook, *arguments.get(hook, [])],
                "env": ["NVIDIA_CTK_DEBUG=false"],
            }


def _has(hooks: Sequence[Plain], name: str) -> bool:
    return any(name in hook["args"] for hook in hooks)
