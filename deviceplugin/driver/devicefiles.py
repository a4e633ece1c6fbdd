"""Which device files the node has, in each place where this container sees some of the host's."""

import stat
from collections.abc import Iterator
from pathlib import Path

from deviceplugin.model.devicefiles import (
    GDRCOPY,
    GDS_PREFIX,
    IMEX_CHANNELS,
    MOFED_PREFIXES,
    files_of_all,
    imex_file,
)
from deviceplugin.model.node import Gpu


def device_files(directory: Path, gpus: tuple[Gpu, ...]) -> frozenset[str]:
    """The names below `directory` of the device files that exist: of these GPUs and their MIG instances, the control
    files, and those of GDRCopy, GPUDirect Storage, Mellanox OFED and IMEX.

    Only character devices count: a container runtime that misses one makes an empty directory in its place.
    """
    names = {*files_of_all(gpus), *_optional(directory)}
    return frozenset(name for name in names if _is_device(directory / name))


def driver_root_device_files(container_driver_root: Path, gpus: tuple[Gpu, ...]) -> frozenset[str] | None:
    """As `device_files`, of the mounted driver root's `dev`; None where the driver keeps no files there: neither a
    driver container's root nor the host's own.

    Args:
        container_driver_root: where the host's driver root is mounted.
    """
    directory = container_driver_root / "dev"
    return device_files(directory, gpus) if _is_device(directory / "nvidiactl") else None


def _optional(directory: Path) -> Iterator[str]:
    yield from GDRCOPY
    yield from (imex_file(channel) for channel in IMEX_CHANNELS)
    for prefix in (GDS_PREFIX, *MOFED_PREFIXES):
        yield from (str(path.relative_to(directory)) for path in directory.glob(f"{prefix}*"))


def _is_device(path: Path) -> bool:
    try:
        return stat.S_ISCHR(path.stat().st_mode)
    except OSError:
        return False
