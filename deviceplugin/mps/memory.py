"""`mount-shm`: a tmpfs of a chosen size for the shared memory of MPS daemons, their clients and nobody else.

Without it `<MPS root>/shm` is a plain directory, as large as the file system that it lies on. NVIDIA's chart mounts a
tmpfs there (its init container `mps-control-daemon mount-shm`), too small for some data loaders (reports F6).
"""

import ctypes
import os
from pathlib import Path
from typing import Final

from deviceplugin.errors import MpsError
from deviceplugin.mps.directories import ENTERED_BY_ALL
from deviceplugin.mps.paths import shm

# <linux/mount.h>
MS_NOSUID: Final = 2
MS_NODEV: Final = 4
MS_NOEXEC: Final = 8
MS_REMOUNT: Final = 32
MS_RELATIME: Final = 1 << 21
FLAGS: Final = MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_RELATIME
MIB: Final = 1024 * 1024
MAX_PIDS_SAID: Final = 5


def mount_shm(root: Path, size_mib: int) -> str:
    """Has a tmpfs of a size at `<root>/shm`, mounted or resized. Never unmounts one: pods have it as their /dev/shm.

    Args:
        root: the MPS root as this process sees it; the mount reaches the node where the root is mounted Bidirectional.
        size_mib: its size.

    Returns:
        What was done, for people.

    Raises:
        MpsError: processes use what is there now, it is no tmpfs, or the kernel refuses (mount(2), tmpfs(5)).
    """
    path = shm(root)
    try:
        path.mkdir(mode=ENTERED_BY_ALL, parents=True, exist_ok=True)
        if not os.path.ismount(path):
            _refuse_users(path)
            _mount(path, size_mib, FLAGS)
            return f"{path}: mounted a tmpfs of {size_mib} MiB"
        found_mib = _tmpfs_mib(path)
        if found_mib == size_mib:
            return f"{path}: has its {size_mib} MiB already"
        _mount(path, size_mib, FLAGS | MS_REMOUNT)
    except OSError as error:
        raise MpsError(
            f"{path}: can't have a tmpfs of {size_mib} MiB: {error.strerror}; mounting takes a privileged container, "
            f"and no size can be less than what is in use"
        ) from error
    return f"{path}: resized from {found_mib} to {size_mib} MiB"


def _mount(path: Path, size_mib: int, flags: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"shm", os.fsencode(path), b"tmpfs", ctypes.c_ulong(flags), f"mode=1777,size={size_mib}m".encode()):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _tmpfs_mib(path: Path) -> int:
    """The size of the tmpfs that is mounted at a path."""
    kinds = [
        kind
        for line in Path("/proc/self/mounts").read_text().splitlines()
        for _, where, kind, *_ in [line.split()]
        if where == os.fspath(path.resolve())
    ]
    if kinds[-1:] != ["tmpfs"]:
        raise MpsError(f"{path}: found a {kinds[-1] if kinds else 'mount'} mounted there, expected a tmpfs or nothing")
    space = os.statvfs(path)
    return space.f_blocks * space.f_frsize // MIB


def _refuse_users(path: Path) -> None:
    """A mount would hide files from daemons and clients that find each other by them."""
    files = {(one.stat().st_dev, one.stat().st_ino) for one in path.iterdir() if one.is_file()}
    if files and (pids := [pid for pid in _processes() if _uses(pid, files)]):
        more = f" and {len(pids) - MAX_PIDS_SAID} more" if len(pids) > MAX_PIDS_SAID else ""
        raise MpsError(
            f"{path}: processes {', '.join(map(str, pids[:MAX_PIDS_SAID]))}{more} use files in the plain directory, "
            f"which a tmpfs would hide: end the pods on MPS shares of this node, and start again"
        )


def _processes() -> list[int]:
    return sorted(int(name) for name in os.listdir("/proc") if name.isdecimal())


def _uses(pid: int, files: set[tuple[int, int]]) -> bool:
    """Whether a process has one of these files open or mapped; false where it has ended or can't be looked into."""
    try:
        for number in os.listdir(f"/proc/{pid}/fd"):
            found = os.stat(f"/proc/{pid}/fd/{number}")
            if (found.st_dev, found.st_ino) in files:
                return True
    except OSError:
        pass
    try:
        with open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as maps:
            return any(_mapped(line) in files for line in maps)
    except OSError:
        return False


def _mapped(line: str) -> tuple[int, int]:
    """Device and inode of a line of /proc/PID/maps (proc(5)): address, rights, offset, major:minor, inode, path."""
    _, _, _, device, inode, *_ = line.split(maxsplit=5)
    major, _, minor = device.partition(":")
    return os.makedev(int(major, 16), int(minor, 16)), int(inode)
