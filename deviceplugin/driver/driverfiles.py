"""The driver's installation on the host: libraries, programs, firmware. Found below the mounted driver root only: what
NVIDIA's runtime has put into this container lies elsewhere on the host.
"""

import fnmatch
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from deviceplugin.model.node import DriverFile

LIBRARY_DIRECTORIES = (  # below a driver root
    *("usr/lib64", "usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "usr/lib"),
    *("lib64", "lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu", "lib"),
    *("usr/lib/x86_64-linux-gnu/nvidia/current", "usr/lib/aarch64-linux-gnu/nvidia/current"),  # Debian's packages
    *("usr/local/nvidia/lib64", "opt/nvidia/lib64", "run/opengl-driver/lib"),  # GKE, others, NixOS
)
VDPAU = "vdpau"
PROGRAM_DIRECTORIES = ("usr/bin", "usr/sbin", "bin", "sbin", "usr/local/bin", "usr/local/nvidia/bin", "opt/bin")
PROGRAMS = (
    *("nvidia-smi", "nvidia-debugdump", "nvidia-persistenced", "nvidia-cuda-mps-control", "nvidia-cuda-mps-server"),
    *("nvidia-imex", "nvidia-imex-ctl"),
)
FIRMWARE_DIRECTORIES = ("usr/lib/firmware/nvidia", "lib/firmware/nvidia")
GDS_FILES = ("etc/cufile.json", "run/udev")
ELF_OF_32_BITS = b"\x7fELF\x01"
HOOK_PROGRAMS = ("usr/bin/nvidia-cdi-hook", "usr/bin/nvidia-ctk")


@dataclass(frozen=True, slots=True)
class Installation:
    """What is installed below a driver root.

    Attributes:
        files: in order of path.
        hook: the program that runs CDI hooks, as a path below the root; None without one.
    """

    files: tuple[DriverFile, ...] = ()
    hook: str | None = None


class InstallationFinder:
    """Looks for the installation: for its files anew only when a directory that it looked into has changed, for the
    hook program each time, since a directory does not tell that a program in it may run now.

    Args:
        root: where the host's driver root is mounted.
    """

    def __init__(self, root: Path) -> None:
        self._root = Path(os.path.realpath(root))
        self._seen: object = None
        self._found = Installation()

    def look(self, version: str | None) -> Installation:
        """What is there for this driver version; nothing without a version or a mounted root."""
        if version is None or not os.path.isdir(self._root):
            return Installation()
        state = (version, tuple(self._change(name) for name in self._watched(version)))
        if state != self._seen:
            found = (*self._libraries(version), *self._programs(), *self._firmware(version), *self._gds())
            by_path = {one.path: one for one in found}
            self._found = Installation(tuple(by_path[path] for path in sorted(by_path)))
            self._seen = state
        hook = next((f"/{name}" for name in HOOK_PROGRAMS if self._runs(self._root / name)), None)
        if hook != self._found.hook:
            self._found = replace(self._found, hook=hook)
        return self._found

    def _runs(self, program: Path) -> bool:
        """Whether it can be started; a link out of the root leads somewhere else on the host."""
        real = Path(os.path.realpath(program))
        return real.is_relative_to(self._root) and real.is_file() and os.access(real, os.X_OK)

    def _watched(self, version: str) -> Iterator[str]:
        for directory in LIBRARY_DIRECTORIES:
            yield from (directory, f"{directory}/{VDPAU}")
        yield from PROGRAM_DIRECTORIES
        yield from (f"{directory}/{version}" for directory in FIRMWARE_DIRECTORIES)
        yield from GDS_FILES

    def _change(self, name: str) -> tuple[int, int, int] | None:
        try:
            found = (self._root / name).stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino, found.st_mtime_ns

    def _libraries(self, version: str) -> Iterator[DriverFile]:
        suffix = f".so.{version}"
        places = (name for place in LIBRARY_DIRECTORIES for name in (place, f"{place}/{VDPAU}"))
        for directory in self._real_directories(places):
            names = _names(directory)
            for name in names:
                path = directory / name
                if name.endswith(suffix) and not os.path.islink(path) and _may_be_of_64_bits(path):
                    stem = f"{name.removesuffix(suffix)}.so"
                    others = (one for one in names if one == stem or one.startswith(f"{stem}."))
                    yield DriverFile(self._below(path), tuple(one for one in others if _leads(directory / one, path)))

    def _programs(self) -> Iterator[DriverFile]:
        directories = list(self._real_directories(PROGRAM_DIRECTORIES))
        for name in PROGRAMS:
            found = (directory / name for directory in directories if os.path.isfile(directory / name))
            if path := next(found, None):
                yield DriverFile(self._below(path))

    def _firmware(self, version: str) -> Iterator[DriverFile]:
        for directory in self._real_directories(f"{name}/{version}" for name in FIRMWARE_DIRECTORIES):
            for name in fnmatch.filter(_names(directory), "gsp*.bin"):
                yield DriverFile(self._below(directory / name))

    def _gds(self) -> Iterator[DriverFile]:
        yield from (DriverFile(f"/{name}") for name in GDS_FILES if os.path.exists(self._root / name))

    def _real_directories(self, names: Iterable[str]) -> Iterator[Path]:
        """Each directory once, whatever links lead to it; one that a link takes out of the root is none of it."""
        seen = set()
        for name in names:
            real = Path(os.path.realpath(self._root / name))
            if os.path.isdir(real) and real.is_relative_to(self._root) and real not in seen:
                seen.add(real)
                yield real

    def _below(self, path: Path) -> str:
        return f"/{path.relative_to(self._root)}"


def _names(directory: Path) -> list[str]:
    """What is in a directory, in order; nothing of one that this process may not read."""
    try:
        return sorted(os.listdir(directory))
    except OSError:
        return []


def _may_be_of_64_bits(path: Path) -> bool:
    """Whether it is a file that 64-bit programs could load.

    Where /usr/lib has the driver's libraries for 32 bits, they have the same names as the real ones, and would take
    their place in a container's one directory for both.
    """
    try:
        with path.open("rb") as file:
            return file.read(len(ELF_OF_32_BITS)) != ELF_OF_32_BITS
    except OSError:
        return False


def _leads(link: Path, target: Path) -> bool:
    return os.path.islink(link) and os.path.realpath(link) == str(target)
