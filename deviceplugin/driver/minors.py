"""A minor number names one device file, so only one GPU can have it."""

from collections import defaultdict
from dataclasses import replace

from deviceplugin.model.node import Failure, Gpu

CALL = "nvmlDeviceGetMinorNumber"


def fail_shared_minors(gpus: tuple[Gpu, ...]) -> tuple[Gpu, ...]:
    """The GPUs, those that report one minor number all failed: giving `/dev/nvidiaN` to a pod could give it another
    pod's GPU (reports K3). A failure that a GPU carries already stays.
    """
    sharers: dict[int, list[int]] = defaultdict(list)
    for gpu in gpus:
        if gpu.minor is not None:
            sharers[gpu.minor].append(gpu.index)
    return tuple(
        replace(gpu, failure=_shared(gpu.minor, sharers[gpu.minor]))
        if gpu.failure is None and gpu.minor is not None and len(sharers[gpu.minor]) > 1
        else gpu
        for gpu in gpus
    )


def _shared(minor: int, indices: list[int]) -> Failure:
    who = ", ".join(str(index) for index in indices)
    return Failure(CALL, f"GPUs {who} all report minor {minor}, but /dev/nvidia{minor} can be only one of them")
