"""What MPS gives a share, and which control daemon a GPU needs for it."""

from dataclasses import dataclass, field
from typing import Final

CONTAINER_MPS_DIRECTORY: Final = "/mps"
"""Where containers find pipes: `/mps/<full resource name>/pipe`, as NVIDIA's plugin has it (drop-in.md 3)."""
MPS_CLIENTS: Final = 48
"""Clients that MPS serves at a time on one GPU (NVIDIA, Multi-Process Service, appendix on nvidia-cuda-mps-control: 48
from compute capability 7.0 on, 16 below)."""
LOWEST_CAPABILITY: Final = (7, 0)
"""The first compute capability that MPS limits memory and threads on. Below it clients share one address space (the
same document, Volta MPS): such GPUs are not offered."""
SUN_PATH_BYTES: Final = 107
"""Of a unix socket's path. A daemon whose pipes are deeper ends without a word about the reason."""


def longest_pipe(root: str, resource_name: str, gpu_uuid: str) -> str:
    """The longest path of a unix socket that the control daemon of a GPU opens below an MPS root."""
    return f"{root.rstrip('/')}/{resource_name}/{gpu_uuid}/pipe/control_privileged"


@dataclass(frozen=True, slots=True)
class MpsShare:
    """One MPS share of a GPU. Limits hold for each process of a container, since that is what MPS enforces.

    Attributes:
        memory_mib: device memory that a process may allocate, whole MiB.
        active_thread_percentage: part of the GPU's threads that a process may use, 1 to 100.
        enforced: whether the daemon's own defaults are the ceiling. Not where a container may have several shares:
            then the limits in its environment are all there is, and a pod can override them.
        root: flags.mpsRoot, the directory on the host below which pipes, logs and shared memory lie.
    """

    memory_mib: int
    active_thread_percentage: int
    enforced: bool
    root: str

    @property
    def shm_directory(self) -> str:
        """The shared memory of every daemon on the host."""
        return f"{self.root.rstrip('/')}/shm"

    def pipe_directory(self, resource_name: str, gpu_uuid: str) -> str:
        """The pipes of a GPU's daemon on the host."""
        return f"{self.root.rstrip('/')}/{resource_name}/{gpu_uuid}/pipe"

    def describe(self) -> str:
        """For messages: `3840M and 25 % of the threads for each process`, with what a pod may do about it."""
        advisory = "" if self.enforced else ", advisory"
        return f"{self.memory_mib}M and {self.active_thread_percentage} % of the threads for each process{advisory}"


@dataclass(frozen=True, slots=True)
class MpsDaemon:
    """The control daemon that a GPU needs: one for each GPU that is offered by MPS.

    Attributes:
        resource_name: full name; the daemon's directories lie below it.
        gpu_uuid: the only GPU that the daemon sees.
        gpu_index: NVML index, for people: another index makes no other daemon.
        share: what it must give each client.
    """

    resource_name: str
    gpu_uuid: str
    gpu_index: int = field(compare=False)
    share: MpsShare

    def describe(self) -> str:
        """For messages: `GPU 3 (nvidia.com/gpu.mps)`."""
        return f"GPU {self.gpu_index} ({self.resource_name})"
