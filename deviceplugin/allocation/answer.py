"""What one container receives for the device ids that the kubelet chose for it (design 5, drop-in.md 3)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from deviceplugin.errors import AllocationError
from deviceplugin.model.cdi import ALL, GPU_CLASS, IMEX_CLASS, qualified_name
from deviceplugin.model.delivery import Delivery
from deviceplugin.model.ids import in_words
from deviceplugin.model.mps import CONTAINER_MPS_DIRECTORY
from deviceplugin.model.offer import Offer
from deviceplugin.model.plan import AllocationPolicy, Device, Health, Mode, Unit

VISIBLE_DEVICES: Final = "NVIDIA_VISIBLE_DEVICES"
IMEX_CHANNELS: Final = "NVIDIA_IMEX_CHANNELS"
VOLUME_MOUNTS_ROOT: Final = "/var/run/nvidia-container-devices"
"""Where NVIDIA's container runtime looks for mounts that name devices, and what the variable then says."""
CDI_PLUGIN: Final = "nvidia-device-plugin"
"""What CDI annotations say who wrote them: as NVIDIA's plugin."""
SHM: Final = "/dev/shm"  # noqa: S108 -- the container's, over which NVIDIA's plugin mounts the daemon's too
NO_PAIRS: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Mount:
    """A host path that appears in the container."""

    container_path: str
    host_path: str
    read_only: bool


@dataclass(frozen=True, slots=True)
class DeviceFile:
    """A device file that appears in the container; `permissions` are of `r`, `w`, `m`."""

    container_path: str
    host_path: str
    permissions: str


@dataclass(frozen=True, slots=True)
class Answer:
    """A container's share of an AllocateResponse.

    Attributes:
        cdi_devices: fully qualified CDI device names.
    """

    envs: Mapping[str, str] = field(default_factory=lambda: NO_PAIRS)
    mounts: tuple[Mount, ...] = ()
    devices: tuple[DeviceFile, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=lambda: NO_PAIRS)
    cdi_devices: tuple[str, ...] = ()


def answer(offer: Offer, device_ids: Sequence[str], *, response_id: Callable[[], str]) -> Answer:
    """What a container given `device_ids` of `offer` receives; the ids in the order asked, repeats allowed.

    With the envvar strategy NVIDIA_VISIBLE_DEVICES is always set: an image's own `all` would stand otherwise (reports
    M1). For an empty request it is empty, as NVIDIA's plugin answers (golden 033, 115); the container runtime reads
    that as no GPU.

    Args:
        response_id: gives the unique part of a CDI annotation's key; asked only for that.

    Raises AllocationError that names the device and the rule: first for an id that is not listed, then for more
    than one share (both in NVIDIA's words and order, golden 022, 033, 115), then for a device that is not to be
    given out now, then for two devices of one GPU where the policy is `spread`, then for MPS shares of more than one
    GPU.
    """
    return compose(offer, units_behind(offer, device_ids), response_id=response_id)


def compose(offer: Offer, units: Mapping[str, Unit], *, response_id: Callable[[], str]) -> Answer:
    """The answer for devices that `units_behind` let pass; `answer` is both in one.

    The parts add up in NVIDIA's order: CDI, MPS, the extras, and what needs a strategy other than CDI (drop-in.md 3).
    """
    delivery = offer.resource.delivery
    given = list({unit.uuid: unit for unit in units.values()}.values())
    envs: dict[str, str] = {}
    mounts: tuple[Mount, ...] = ()
    devices: tuple[DeviceFile, ...] = ()
    annotations = NO_PAIRS
    names = _cdi_names(delivery, given) if delivery.cdi else ()
    if names and delivery.cdi_annotation_prefix is not None:
        annotations = {f"{delivery.cdi_annotation_prefix}{CDI_PLUGIN}_{response_id()}": ",".join(names)}
    if offer.resource.mode is Mode.MPS:
        envs, mounts = _mps(offer, units)
    for extra in delivery.extras:
        envs[f"NVIDIA_{extra.upper()}"] = "enabled"
    if delivery.envvar:
        envs[VISIBLE_DEVICES] = ",".join([unit.visible_id for unit in given])
        if delivery.imex_channels:
            envs[IMEX_CHANNELS] = ",".join(map(str, delivery.imex_channels))
    if delivery.volume_mounts:
        envs[VISIBLE_DEVICES] = VOLUME_MOUNTS_ROOT
        mounts += _naming_mounts(delivery, given)
    if delivery.device_root is not None and (delivery.envvar or delivery.volume_mounts):
        devices = _device_files(delivery.device_root, delivery, given)
    return Answer(envs, mounts, devices, annotations, names if delivery.cdi_field else ())


def _mps(offer: Offer, units: Mapping[str, Unit]) -> tuple[dict[str, str], tuple[Mount, ...]]:
    """What makes a container's processes clients of the GPU's MPS control daemon; nothing where no device is given.

    The container sees one GPU, so the ordinal in the memory limit is 0. Several shares add up; the limits stay those
    of a process (design 5, reports D4 and F1).
    """
    unit = next(iter(units.values()), None)
    if unit is None or unit.mps is None:
        return {}, ()
    share, count = unit.mps, len(units)
    pipe = f"{CONTAINER_MPS_DIRECTORY}/{offer.name}/pipe"
    envs = {
        "CUDA_MPS_PIPE_DIRECTORY": pipe,
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(min(100, count * share.active_thread_percentage)),
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": f"0={count * share.memory_mib}M",
    }
    mounts = (
        Mount(pipe, share.pipe_directory(offer.name, unit.uuid), read_only=False),
        Mount(SHM, share.shm_directory, read_only=False),
    )
    return envs, mounts


def _cdi_names(delivery: Delivery, given: Sequence[Unit]) -> tuple[str, ...]:
    if not given:
        return ()
    return (
        *(qualified_name(GPU_CLASS, unit.visible_id) for unit in given),
        *(qualified_name(IMEX_CLASS, str(channel)) for channel in delivery.imex_channels),
        *(qualified_name(extra, ALL) for extra in delivery.cdi_extras),
    )


def _naming_mounts(delivery: Delivery, given: Sequence[Unit]) -> tuple[Mount, ...]:
    """Mounts that only say which devices to give: the runtime reads their paths."""
    channels = (f"imex/{channel}" for channel in delivery.imex_channels)
    return tuple(
        Mount(f"{VOLUME_MOUNTS_ROOT}/{name}", "/dev/null", read_only=False)
        for name in (*(unit.visible_id for unit in given), *channels)
    )


def _device_files(root: str, delivery: Delivery, given: Sequence[Unit]) -> tuple[DeviceFile, ...]:
    if not given:
        return ()
    root = root.rstrip("/")
    names = dict.fromkeys((*(name for unit in given for name in unit.device_files), *delivery.common_files))
    return tuple(DeviceFile(f"/dev/{name}", f"{root}/dev/{name}", "rw") for name in names)


def units_behind(offer: Offer, device_ids: Sequence[str]) -> dict[str, Unit]:
    """The GPU or MIG instance behind each id that may be given out, in the order asked, without repeats.

    Raises AllocationError as `answer` says.
    """
    devices = [_listed(offer, device_id) for device_id in device_ids]
    if offer.resource.refuse_more_than_one and len(devices) > 1:
        raise _refusal(
            offer, f"invalid request: maximum request size for shared resources is 1; found {len(device_ids)}"
        )
    units = {device.id: _deliverable(offer, device) for device in devices}
    if offer.resource.allocation_policy is AllocationPolicy.SPREAD:
        _refuse_one_gpu_twice(offer, units)
    if offer.resource.mode is Mode.MPS:
        _refuse_several_gpus(offer, units)
    return units


def _refuse_one_gpu_twice(offer: Offer, units: Mapping[str, Unit]) -> None:
    """The kubelet may ignore what we prefer, so `spread` is a promise only if it is kept here (reports D2)."""
    first_on: dict[str, str] = {}
    for device_id, unit in units.items():
        other = first_on.setdefault(unit.gpu_uuid, device_id)
        if other != device_id:
            raise _refusal(
                offer,
                f"devices {other} and {device_id} are both on GPU {unit.gpu_index} ({unit.gpu_uuid}); with the "
                f"allocation policy `spread` a container gets at most one device of a GPU: ask for fewer, or set "
                f"the policy `distributed`",
            )


def _refuse_several_gpus(offer: Offer, units: Mapping[str, Unit]) -> None:
    """A process has one thread percentage and one MPS server: a container's shares are of one GPU (design 5)."""
    gpus = dict.fromkeys(unit.uuid for unit in units.values())
    if len(gpus) > 1:
        raise _refusal(
            offer,
            f"invalid request: MPS shares of {len(gpus)} GPUs ({', '.join(gpus)}); all MPS shares of a container must "
            f"be of one GPU, since a process has one CUDA_MPS_ACTIVE_THREAD_PERCENTAGE and one MPS server",
        )


def _listed(offer: Offer, device_id: str) -> Device:
    device = offer.device_by_id.get(device_id)
    if device is not None:
        return device
    if reason := offer.refused.get(device_id):
        raise _refusal(offer, f"device {device_id} can't be given out now: {reason}")
    raise _refusal(offer, f"invalid request: unknown device: {in_words(device_id)}")


def _deliverable(offer: Offer, device: Device) -> Unit:
    if reason := offer.refused.get(device.id):
        raise _refusal(offer, f"device {device.id} can't be given out now: {reason}")
    if device.health is not Health.HEALTHY:
        raise _refusal(offer, f"device {device.id} is {device.health}: {device.reason or 'no reason is known'}")
    unit = offer.unit_by_uuid.get(device.unit_uuid)
    if unit is None:
        raise _refusal(
            offer, f"device {device.id} is listed only for the pod that holds it; {device.unit_uuid} is gone"
        )
    return unit


def _refusal(offer: Offer, why: str) -> AllocationError:
    return AllocationError(f'invalid allocation request for "{offer.name}": {why}')
