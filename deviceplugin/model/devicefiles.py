"""The device files of NVIDIA's drivers, named below /dev: `nvidia0`, `nvidia-caps/nvidia-cap12`. Pure."""

from collections.abc import Iterable
from typing import Final

from deviceplugin.model.node import Gpu, MigInstance

CONTROL: Final = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset")
"""What every container with a GPU gets, as far as the node has them."""
GDRCOPY: Final = ("gdrdrv",)
GDS_PREFIX: Final = "nvidia-fs"
MOFED_PREFIXES: Final = ("infiniband/uverbs", "infiniband/rdma_cm")
IMEX_CHANNELS: Final = (0,)
"""The channels that a config can ask for (config.options)."""


def gpu_file(minor: int) -> str:
    """Of a physical GPU, by the driver's minor number and never its index (reports K3)."""
    return f"nvidia{minor}"


def capability_file(number: int) -> str:
    """What grants access to a GPU instance or compute instance; `number` is the file's minor."""
    return f"nvidia-caps/nvidia-cap{number}"


def imex_file(channel: int) -> str:
    """Of an IMEX channel."""
    return f"nvidia-caps-imex-channels/channel{channel}"


def files_of(gpu: Gpu, instance: MigInstance | None = None) -> tuple[str, ...]:
    """The files of a GPU, or of a MIG instance: its GPU's and its two capabilities'. Only what the driver says."""
    files = () if gpu.minor is None else (gpu_file(gpu.minor),)
    if instance is None or instance.capabilities is None:
        return files
    return (*files, *(capability_file(number) for number in instance.capabilities))


def files_of_all(gpus: Iterable[Gpu]) -> frozenset[str]:
    """What a node with these GPUs has when nothing is missing, optional features aside."""
    own = (name for gpu in gpus for instance in (None, *gpu.mig_instances) for name in files_of(gpu, instance))
    return frozenset((*CONTROL, *own))
