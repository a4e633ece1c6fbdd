"""Where the files of MPS control daemons lie below the MPS root, as this process sees it (drop-in.md 7, design 5)."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from deviceplugin.model.mps import SUN_PATH_BYTES, longest_pipe

# Domains of resources can't begin with a dot, so this never collides with one.
SUPERVISOR: Final = ".supervisor"


@dataclass(frozen=True, slots=True)
class DaemonPaths:
    """The directories of one daemon.

    Attributes:
        root: the MPS root in this process's own container, `/mps` as a rule.
    """

    root: Path
    resource_name: str
    gpu_uuid: str

    @property
    def directory(self) -> Path:
        """Everything of this daemon."""
        return self.root / self.resource_name / self.gpu_uuid

    @property
    def pipe(self) -> Path:
        """Its pipes, the only directory that pods see."""
        return self.directory / "pipe"

    @property
    def log(self) -> Path:
        """Its logs."""
        return self.directory / "log"

    @property
    def ready(self) -> Path:
        """Touched by the supervisor when the daemon serves with the right limits, removed when it does not."""
        return self.directory / "ready"

    def too_long(self) -> str:
        """Why the daemon could not open its pipes; empty when it can."""
        longest = longest_pipe(str(self.root), self.resource_name, self.gpu_uuid)
        size = len(longest.encode())
        if size <= SUN_PATH_BYTES:
            return ""
        return (
            f"the path of its pipe {longest} has {size} bytes, a unix socket's has at most {SUN_PATH_BYTES}; give the "
            f"resource a shorter name"
        )


def shm(root: Path) -> Path:
    """The shared memory of every daemon and its clients: their /dev/shm."""
    return root / "shm"


def compute_modes(root: Path) -> Path:
    """Where the supervisor remembers what each GPU's compute mode was, one file a GPU, while MPS has the GPU."""
    return root / SUPERVISOR / "compute-mode"


def states(root: Path) -> Path:
    """Where the supervisor says what it does for each GPU, one file a GPU (deviceplugin.mps.state)."""
    return root / SUPERVISOR / "state"


def root_problem(root: Path) -> str:
    """Why no control daemon can be reached below the MPS root; empty when the directory is there.

    One that is there and can't be entered is another matter: each daemon then says so of itself.
    """
    if os.path.lexists(root):
        return ""
    return (
        f"the MPS root is not mounted here, there is no directory {root}: set mps.enabled to true in the chart's "
        f"values, or mount the host's there (--mps-container-root)"
    )


def owned(root: Path) -> frozenset[str]:
    """The UUIDs of the GPUs that MPS has: their compute mode has not been put back."""
    try:
        return frozenset(path.name for path in compute_modes(root).iterdir() if not path.name.endswith(".new"))
    except OSError:
        return frozenset()
