"""The host of a node under test: a driver root with device nodes and a hook program, and containers on it.

Everything lies in the node's directory, which is one host's root as the config names it: the driver root is mounted
in the plugin's container at the path that it has on the host.
"""

import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.nvml_standin import DRIVER_ROOT, FILE_OPTIONS, write_sysfs
from tests.serving.harness import Node

MAJOR = 195
"""Of NVIDIA's device files; no driver is needed to make them, as long as nobody opens them."""
USUAL = frozenset({"null", "zero", "full", "random", "urandom", "tty", "console", "ptmx"})
"""The devices of every container."""

# What a real hook program does with create-symlinks; every call is written down.
HOOK = """\
#!{python}
import json, os, sys
state = json.load(sys.stdin)
config = json.load(open(state["bundle"] + "/config.json"))
root = os.path.join(state["bundle"], config["root"]["path"])
with open({log!r}, "a") as log:
    log.write(json.dumps([sys.argv, dict(os.environ)]) + "\\n")
words = sys.argv[sys.argv.index("hook") + 1:]
if words[0] == "create-symlinks":
    for link in words[2::2]:
        target, _, name = link.partition("::")
        os.symlink(target, root + name)
"""

# Podman in namespaces of its own: it sees our specifications where runtimes look, and leaves nothing on this machine.
ENTER = """
set -e
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /dev/shm
mount -t cgroup2 cgroup2 /sys/fs/cgroup || :  # crun refuses machines with version 1 and 2 at once
mkdir /run/cdi
mount --bind "$0" /run/cdi
exec podman "$@"
"""

REPORT = """
for path in $(busybox find /dev -type c -o -type b); do busybox stat -c 'device %n %t %T' "$path"; done
busybox env | busybox sed 's/^/env /'
busybox sed 's/^/mount /' /proc/self/mountinfo
"""


@dataclass(frozen=True, slots=True)
class Inside:
    """What a container sees.

    Attributes:
        devices: path below /dev -> major and minor; those of every container aside.
        environ: its variables.
        mounts: path -> options.
    """

    devices: Mapping[str, tuple[int, int]]
    environ: Mapping[str, str]
    mounts: Mapping[str, frozenset[str]]


class Host:
    """What is around the plugin of a node that has not started yet.

    Args:
        node: with `driver_root` in its sandbox.
        hook: whether the driver root's program for CDI hooks may run.
    """

    def __init__(self, node: Node, text: str, sandbox: Mapping[str, object], *, hook: bool) -> None:
        self._node = node
        sysroot = node.root / "sysroot"
        if node.driver == "simulated":  # the harness has described the host, but not made it
            options = {key: value for key, value in sandbox.items() if key in FILE_OPTIONS}
            write_sysfs(sysroot, text, **options)  # type: ignore[arg-type]
        self.driver_root = sysroot / DRIVER_ROOT
        for directory in (sysroot / "dev", self.driver_root / "dev"):
            _make_nodes(directory)
        for library in self.driver_root.rglob("*.so.*"):
            if not library.is_symlink():
                library.write_text(f"the driver's {library.name}")
        (self.driver_root / "run/udev").mkdir(parents=True)
        (self.driver_root / "etc").mkdir()
        (self.driver_root / "etc/cufile.json").write_text("{}")
        self._log = node.root / "hooks"
        self._hook = self.driver_root / "usr/bin/nvidia-ctk"
        self._hook.write_text(HOOK.format(python=sys.executable, log=str(self._log)))
        self._described = node.node_file.read_text()
        if not hook:
            self._hook.chmod(0o644)
            self._describe("".join(line for line in self._described.splitlines(True) if "cdiHook:" not in line))
        self._containers = 0

    def number(self, name: str) -> tuple[int, int]:
        """Major and minor of one of the host's device files."""
        found = (self.driver_root / "dev" / name).lstat()
        assert stat.S_ISCHR(found.st_mode)
        return os.major(found.st_rdev), os.minor(found.st_rdev)

    def numbers(self, names: Iterable[str]) -> dict[str, tuple[int, int]]:
        """The same of several, by name."""
        return {name: self.number(name) for name in names}

    def hook_calls(self) -> list[str]:
        """What the hook program was started with, one line of JSON each."""
        return self._log.read_text().splitlines() if self._log.exists() else []

    def allow_hook(self) -> None:
        """Let the hook program run, by its mode alone."""
        self._hook.chmod(0o755)
        self._describe(self._described)

    def _describe(self, text: str) -> None:
        if self._node.driver == "simulated":
            replacement = self._node.node_file.with_suffix(".new")
            replacement.write_text(text)
            replacement.rename(self._node.node_file)

    def run(self, names: Iterable[str], script: str = "", environ: Mapping[str, str] | None = None) -> Inside:
        """Start a container of an image with nothing but busybox, by these CDI names, and see what is in it.

        Args:
            script: run in it first; must succeed.
            environ: variables of the container's image.
        """
        options = [word for key, value in (environ or {}).items() for word in ("--env", f"{key}={value}")]
        options += [word for name in names for word in ("--device", name)]
        # A file system for each: what hooks do to it is no part of the next.
        self._containers += 1
        place = self._node.root / f"container-{self._containers}"
        done = start_container(place, self._node.cdi_root, options, f"{script}\n{REPORT}")
        assert done.returncode == 0, done.stdout + done.stderr
        return _read(done.stdout)


def start_container(
    place: Path, cdi_root: Path, options: Iterable[str], script: str
) -> subprocess.CompletedProcess[str]:
    """Have podman and crun run a script of busybox's shell in a container of its own.

    Args:
        place: does not exist yet; everything of the container is below it.
        cdi_root: where the runtime finds CDI specifications.
        options: of `podman run`.
    """
    rootfs = place / "rootfs"
    (rootfs / "bin").mkdir(parents=True)
    shutil.copy(str(shutil.which("busybox")), rootfs / "bin/busybox")
    words = ["--root", str(place / "podman"), "--runroot", str(place / "podman-run")]
    words += ["--storage-driver", "vfs", "--cgroup-manager", "cgroupfs", "--events-backend", "none"]
    words += ["--runtime", "crun", "run", "--rm", "--network", "none", "--cgroups", "disabled"]
    words += ["--log-driver", "none", "--ulimit", "nofile=256:256", "--ulimit", "nproc=256:256", *options]
    words += ["--rootfs", str(rootfs), "/bin/busybox", "sh", "-e", "-c", script]
    return subprocess.run(
        ["unshare", "--mount", "--propagation", "private", "sh", "-c", ENTER, str(cdi_root), *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def _make_nodes(directory: Path) -> None:
    """Real device nodes in place of links to /dev/null, which no runtime takes for device nodes; each with a minor
    number of its own, the same in every directory.
    """
    for minor, path in enumerate(sorted(path for path in directory.rglob("*") if path.is_symlink())):
        path.unlink()
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(MAJOR, minor))


def _read(report: str) -> Inside:
    devices, environ, mounts = {}, {}, {}
    for line in report.splitlines():
        kind, _, rest = line.partition(" ")
        if kind == "device":
            path, major, minor = rest.split()
            name = path.removeprefix("/dev/")
            if name not in USUAL and not re.match("pts/", name):
                devices[name] = (int(major, 16), int(minor, 16))
        elif kind == "env":
            key, _, value = rest.partition("=")
            environ[key] = value
        elif kind == "mount":
            fields = rest.split()
            mounts[fields[4]] = frozenset(fields[5].split(","))
    return Inside(devices, environ, mounts)
