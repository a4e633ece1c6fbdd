"""A minor number names one device file and a UUID one GPU: what two GPUs share tells nobody which is meant."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace

from deviceplugin.model.node import Failure, Gpu

MINOR_CALL = "nvmlDeviceGetMinorNumber"
UUID_CALL = "nvmlDeviceGetUUID"


def fail_shared_minors(gpus: tuple[Gpu, ...]) -> tuple[Gpu, ...]:
    """The GPUs, those that report one minor number all failed: giving `/dev/nvidiaN` to a pod could give it another
    pod's GPU (reports K3). A failure that a GPU carries already stays.
    """
    sharers = _sharers(gpus, lambda gpu: gpu.minor)
    return tuple(
        replace(gpu, failure=_shared_minor(gpu.minor, sharers[gpu.index]))
        if gpu.failure is None and gpu.minor is not None and gpu.index in sharers
        else gpu
        for gpu in gpus
    )


def hide_shared_uuids(gpus: tuple[Gpu, ...]) -> tuple[Gpu, ...]:
    """The GPUs, those that report one UUID all failed and without it: one id would stand for two of them."""
    sharers = _sharers(gpus, lambda gpu: gpu.uuid)
    return tuple(
        replace(gpu, uuid=None, failure=gpu.failure or _shared_uuid(gpu.uuid or "", sharers[gpu.index]))
        if gpu.index in sharers
        else gpu
        for gpu in gpus
    )


def _sharers(gpus: tuple[Gpu, ...], fact: Callable[[Gpu], object]) -> dict[int, list[int]]:
    """Index -> the indices of all that report the same, itself included; without those that share with nobody."""
    by_fact: defaultdict[object, list[int]] = defaultdict(list)
    for gpu in gpus:
        if fact(gpu) is not None:
            by_fact[fact(gpu)].append(gpu.index)
    return {index: indices for indices in by_fact.values() if len(indices) > 1 for index in indices}


def _shared_minor(minor: int, indices: list[int]) -> Failure:
    return Failure(
        MINOR_CALL, f"GPUs {_listed(indices)} all report minor {minor}, but /dev/nvidia{minor} can be only one of them"
    )


def _shared_uuid(uuid: str, indices: list[int]) -> Failure:
    return Failure(UUID_CALL, f"GPUs {_listed(indices)} all report {uuid}, so none of them can be told from the others")


def _listed(indices: list[int]) -> str:
    return ", ".join(map(str, indices))
