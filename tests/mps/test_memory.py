"""`mps mount-shm`: a real tmpfs, in a mount namespace of its own (reports F6)."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.serving.harness import deadline
from tests.tools import cannot

MOUNT = [sys.executable, "-m", "deviceplugin.cli.main", "mps", "mount-shm"]


class Namespace:
    """A process with mounts of its own; commands enter it."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            ["unshare", "--mount", "--propagation", "private", "sh", "-c", "echo in; cat"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.entered = self.process.stdout.readline() == "in\n"

    def run(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """One command in the namespace."""
        with deadline(30):
            return subprocess.run(
                ["nsenter", f"--target={self.process.pid}", "--mount", f"--wd={os.getcwd()}", "--", *words],
                env={"PATH": os.environ["PATH"], **environment},
                capture_output=True,
                text=True,
                check=False,
            )

    def end(self) -> str:
        """Ends it, and its mounts with it; what it said on standard error."""
        return self.process.communicate("", timeout=10)[1]


@pytest.fixture
def namespace(request: pytest.FixtureRequest) -> Iterator[Namespace]:
    made = Namespace()
    if not made.entered or made.run("mount", "-t", "tmpfs", "probe", "/mnt").returncode:
        why = f"nothing may be mounted here; run it as root with SYS_ADMIN. {made.end().strip()}"
        cannot(request.config, "mps mount-shm", why)
    try:
        yield made
    finally:
        made.end()


def size_mib(namespace: Namespace, path: Path) -> int:
    done = namespace.run("stat", "--file-system", "--format=%T %S %b", str(path))
    kind, block_bytes, blocks = done.stdout.split()
    assert kind == "tmpfs"
    return int(block_bytes) * int(blocks) // 2**20


def test_it_is_mounted_resized_and_left_alone(namespace: Namespace, tmp_path: Path) -> None:
    root, shm = tmp_path / "mps", tmp_path / "mps/shm"
    words = [*MOUNT, f"--mps-container-root={root}"]
    first = namespace.run(*words)
    assert (first.returncode, first.stdout) == (0, f"{shm}: mounted a tmpfs of 64 MiB\n"), first.stderr
    assert size_mib(namespace, shm) == 64, "as NVIDIA's"
    assert namespace.run("stat", "--format=%a", str(shm)).stdout == "1777\n"
    assert namespace.run("sh", "-c", f"echo kept > {shm}/file").returncode == 0

    again = namespace.run(*words, MPS_SHM_SIZE="64Mi")
    assert again.stdout == f"{shm}: has its 64 MiB already\n"
    larger = namespace.run(*words, "--mps-shm-size=1.5Gi", MPS_SHM_SIZE="64Mi")
    assert larger.stdout == f"{shm}: resized from 64 to 1536 MiB\n", larger.stderr
    assert size_mib(namespace, shm) == 1536
    assert namespace.run("cat", f"{shm}/file").stdout == "kept\n"
    mounts = namespace.run("cat", "/proc/self/mounts").stdout.splitlines()
    (mount,) = (line for line in mounts if f" {shm} " in line)
    assert {"rw", "nosuid", "nodev", "noexec"} <= set(mount.split()[3].split(","))

    assert namespace.run("sh", "-c", f"head -c 3M /dev/zero > {shm}/file").returncode == 0
    smaller = namespace.run(*words, "--mps-shm-size=2Mi")
    assert smaller.returncode == 1
    assert "no size can be less than what is in use" in smaller.stderr
    assert size_mib(namespace, shm) == 1536


def test_files_in_use_are_not_hidden(namespace: Namespace, tmp_path: Path) -> None:
    shm = tmp_path / "shm"
    shm.mkdir()
    (shm / "left-behind").touch()
    words = [*MOUNT, f"--mps-container-root={tmp_path}", "--mps-shm-size=8Mi"]
    with (shm / "open").open("w"):
        refused = namespace.run(*words)
        assert refused.returncode == 1
        assert f"{shm}: processes {os.getpid()} use files in the plain directory" in refused.stderr
        assert "end the pods on MPS shares" in refused.stderr
    # A mapping outlives its descriptor, as in NVIDIA's library.
    program = "f = open(sys.argv[1], 'r+'); m = mmap.mmap(f.fileno(), 4096); f.close(); print('mapped'); input()"
    (shm / "mapped").write_bytes(bytes(4096))
    mapper = subprocess.Popen(
        [sys.executable, "-uc", f"import mmap, sys; {program}", str(shm / "mapped")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert mapper.stdout is not None
    assert mapper.stdout.readline() == "mapped\n"
    assert f"processes {mapper.pid} use files" in namespace.run(*words).stderr
    mapper.communicate("\n", timeout=10)
    assert namespace.run(*words).stdout == f"{shm}: mounted a tmpfs of 8 MiB\n"


def test_another_file_system_there_is_somebodys_choice(namespace: Namespace, tmp_path: Path) -> None:
    shm = tmp_path / "shm"
    shm.mkdir()
    assert namespace.run("mount", "-t", "ramfs", "theirs", str(shm)).returncode == 0
    done = namespace.run(*MOUNT, f"--mps-container-root={tmp_path}")
    assert done.returncode == 1
    assert f"{shm}: found a ramfs mounted there, expected a tmpfs or nothing" in done.stderr


def test_without_the_right_it_says_what_it_takes(namespace: Namespace, tmp_path: Path) -> None:
    done = namespace.run(
        "setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin", *MOUNT, f"--mps-container-root={tmp_path}"
    )
    assert done.returncode == 1
    assert "mounting takes a privileged container" in done.stderr


@pytest.mark.parametrize("size", ["0", "64", "8GiB", "17Ti", "-1Gi", "1Ki"])
def test_a_size_that_is_none_is_refused(size: str) -> None:
    done = subprocess.run([*MOUNT, f"--mps-shm-size={size}"], capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == 2
    assert f'--mps-shm-size: found "{size}", expected a quantity from 1Mi to 16Ti, such as 64Mi or 8Gi' in done.stderr
