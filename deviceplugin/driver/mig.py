"""The MIG side of a GPU, read from NVML: its mode, its instances and how their profiles are spelled."""

import math
from dataclasses import dataclass, replace
from typing import Any

import pynvml

from deviceplugin.driver.calls import NOT_SUPPORTED, Inquiry
from deviceplugin.model.node import Failure, MigInstance, MigMode

MIB_PER_GIB = 1024

EMPTY_SLOT = NOT_SUPPORTED | {pynvml.NVML_ERROR_NOT_FOUND}
NO_SUCH_PROFILE = NOT_SUPPORTED | {pynvml.NVML_ERROR_INVALID_ARGUMENT}
NO_WAY_IN = NOT_SUPPORTED | {pynvml.NVML_ERROR_NOT_FOUND, pynvml.NVML_ERROR_NO_PERMISSION}

LISTING_NEEDS_PERMISSION = (
    "; the container may not list MIG devices: set privileges.mig to true in the chart's values, which sets "
    "NVIDIA_MIG_MONITOR_DEVICES=all and adds the capability SYS_ADMIN, or give it the MIG management devices by CDI"
)


def mig_mode(inquiry: Inquiry, gpu: Any) -> MigMode | None:
    """The MIG mode of a GPU (nvmlDeviceGetMigMode), None where it does not do MIG."""
    modes = inquiry.ask(pynvml.nvmlDeviceGetMigMode, gpu)
    return None if modes is None else MigMode(current=modes[0] == 1, pending=modes[1] == 1)


@dataclass(frozen=True, slots=True)
class MigListing:
    """What a GPU says of its MIG instances.

    Attributes:
        instances: in order of slot.
        hidden: as in Gpu.mig_hidden.
    """

    instances: tuple[MigInstance, ...] = ()
    hidden: Failure | None = None


def mig_instances(inquiry: Inquiry, gpu: Any, gpu_memory_mib: int | None, *, session_verified: bool) -> MigListing:
    """The MIG instances of a GPU whose MIG mode is on.

    An instance that fails a call carries that failure. One that cannot even be named (no handle, no UUID) cannot be
    a value: that failure is the GPU's, whose list is then known to be incomplete. Only where the container may not
    list them it is not, since nothing is wrong with the GPU.

    Args:
        inquiry: the GPU's.
        gpu: its NVML handle.
        gpu_memory_mib: of the whole GPU; for drivers that do not spell profiles.
        session_verified: see Inquiry.
    """
    listing = Inquiry(session_verified=session_verified)
    slots = listing.ask(pynvml.nvmlDeviceGetMaxMigDeviceCount, gpu) or 0
    profiles = ProfileNames(gpu, gpu_memory_mib)
    instances = []
    for slot in range(slots):
        handle = listing.ask(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, gpu, slot, absent=EMPTY_SLOT)
        uuid = handle and listing.ask(pynvml.nvmlDeviceGetUUID, handle)
        if uuid:
            own = Inquiry(session_verified=session_verified)
            instances.append(_instance(own, handle, uuid, slot, profiles))
    failure = listing.failure
    if failure is not None and failure.code == pynvml.NVML_ERROR_NO_PERMISSION:
        hidden = replace(failure, message=failure.message + LISTING_NEEDS_PERMISSION)
        return MigListing(tuple(instances), hidden)
    if failure is not None:
        inquiry.blame(failure)
    return MigListing(tuple(instances))


def _instance(inquiry: Inquiry, handle: Any, uuid: str, slot: int, profiles: "ProfileNames") -> MigInstance:
    gpu_instance_id = inquiry.ask(pynvml.nvmlDeviceGetGpuInstanceId, handle)
    compute_instance_id = inquiry.ask(pynvml.nvmlDeviceGetComputeInstanceId, handle)
    attributes = inquiry.ask(pynvml.nvmlDeviceGetAttributes, handle)
    profile = profiles.of(inquiry, handle, gpu_instance_id, attributes)
    return MigInstance(
        uuid=uuid,
        slot=slot,
        gpu_instance_id=gpu_instance_id,
        compute_instance_id=compute_instance_id,
        profile=profile,
        memory_mib=attributes.memorySizeMB if attributes else None,
        failure=inquiry.failure,
    )


class ProfileNames:
    """Spells the profiles of the MIG instances of one GPU, asking for each profile of it once.

    The name of a MIG device ends with ` MIG 1c.3g.20gb`, the whole spelling in one call that needs no privilege. Where
    it does not, the profile of its GPU instance has a name (nvmlGpuInstanceProfileInfo_v2_t, from driver 510 on).
    Where that is not to be had either, the spelling follows from the sizes; media extensions (`+me`) came only with
    drivers that spell.
    """

    def __init__(self, gpu: Any, gpu_memory_mib: int | None) -> None:
        self._gpu = gpu
        self._gpu_memory_mib = gpu_memory_mib
        self._by_profile_id: dict[int, str] | None = None
        self._by_gpu_instance: dict[int, str | None] = {}

    def of(self, inquiry: Inquiry, handle: Any, gpu_instance_id: int | None, attributes: Any) -> str | None:
        """The profile of one MIG instance: `1g.10gb+me`, `1c.3g.20gb`; None when nothing tells.

        Args:
            inquiry: the instance's.
            handle: of the MIG device.
            gpu_instance_id: None if unknown.
            attributes: c_nvmlDeviceAttributes, None if unknown.
        """
        name = inquiry.ask(pynvml.nvmlDeviceGetName, handle) or ""
        spelled = name.rpartition(" MIG ")[2] if " MIG " in name else None
        if spelled or attributes is None:
            return spelled
        gpu_slices, compute_slices = attributes.gpuInstanceSliceCount, attributes.computeInstanceSliceCount
        profile = self._of_gpu_instance(inquiry, gpu_instance_id)
        if profile is None and self._gpu_memory_mib is not None:
            profile = profile_from_sizes(gpu_slices, attributes.memorySizeMB, self._gpu_memory_mib)
        if profile is None or compute_slices == gpu_slices:
            return profile
        return f"{compute_slices}c.{profile}"

    def _of_gpu_instance(self, inquiry: Inquiry, gpu_instance_id: int | None) -> str | None:
        if gpu_instance_id is None:
            return None
        if gpu_instance_id not in self._by_gpu_instance:
            handle = inquiry.ask(pynvml.nvmlDeviceGetGpuInstanceById, self._gpu, gpu_instance_id, absent=NO_WAY_IN)
            info = handle and inquiry.ask(pynvml.nvmlGpuInstanceGetInfo, handle, absent=NO_WAY_IN)
            known = self._names(inquiry)
            self._by_gpu_instance[gpu_instance_id] = known.get(info.profileId) if info else None
        return self._by_gpu_instance[gpu_instance_id]

    def _names(self, inquiry: Inquiry) -> dict[int, str]:
        if self._by_profile_id is None:
            infos = (
                inquiry.ask(pynvml.nvmlDeviceGetGpuInstanceProfileInfo, self._gpu, index, 2, absent=NO_SUCH_PROFILE)
                for index in range(pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT)
            )
            self._by_profile_id = {info.id: info.name.removeprefix("MIG ") for info in infos if info and info.name}
        return self._by_profile_id


def profile_from_sizes(gpu_slices: int, memory_mib: int, gpu_memory_mib: int) -> str:
    """The profile as NVIDIA spells it, without media extensions: `3g.20gb`.

    The size in the name is no measured one: it is the instance's share of the GPU, rounded up to whole eighths, of the
    GPU's memory rounded up to whole GiB (an H100's 1g is 9984 of 81559 MiB: one eighth of 80, `1g.10gb`).

    Args:
        gpu_slices: compute slices of the GPU instance.
        memory_mib: of the GPU instance.
        gpu_memory_mib: of the whole GPU.
    """
    eighths = math.ceil(memory_mib * 8 / gpu_memory_mib)
    gpu_gib = math.ceil(gpu_memory_mib / MIB_PER_GIB)
    return f"{gpu_slices}g.{math.floor(eighths * gpu_gib / 8 + 0.5)}gb"
