"""What one container receives for the device ids that the kubelet chose for it (design 5, drop-in.md 3)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from deviceplugin.errors import AllocationError
from deviceplugin.model.offer import Offer
from deviceplugin.model.plan import AllocationPolicy, Device, Health, Unit

VISIBLE_DEVICES: Final = "NVIDIA_VISIBLE_DEVICES"
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
    """A container's share of an AllocateResponse. Env mode fills `envs` alone.

    Attributes:
        cdi_devices: fully qualified CDI device names.
    """

    envs: Mapping[str, str] = field(default_factory=lambda: NO_PAIRS)
    mounts: tuple[Mount, ...] = ()
    devices: tuple[DeviceFile, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=lambda: NO_PAIRS)
    cdi_devices: tuple[str, ...] = ()


def answer(offer: Offer, device_ids: Sequence[str]) -> Answer:
    """What a container given `device_ids` of `offer` receives; the ids in the order asked, repeats allowed.

    NVIDIA_VISIBLE_DEVICES is always set: an image's own `all` would stand otherwise (reports M1). For an empty
    request it is empty, as NVIDIA's plugin answers (golden 033, 115); the container runtime reads that as no GPU.

    Raises AllocationError that names the device and the rule: first for an id that is not listed, then for more
    than one share (both in NVIDIA's words and order, golden 022, 033, 115), then for a device that is not to be
    given out now, then for two devices of one GPU where the policy is `spread`.
    """
    return compose(offer, units_behind(offer, device_ids))


def compose(offer: Offer, units: Mapping[str, Unit]) -> Answer:
    """The answer for devices that `units_behind` let pass; `answer` is both in one."""
    visible = {unit.uuid: unit.visible_id for unit in units.values()}
    return Answer(envs={VISIBLE_DEVICES: ",".join(visible.values())})


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


def _listed(offer: Offer, device_id: str) -> Device:
    device = offer.device_by_id.get(device_id)
    if device is not None:
        return device
    if reason := offer.refused.get(device_id):
        raise _refusal(offer, f"device {device_id} can't be given out now: {reason}")
    raise _refusal(offer, f"invalid request: unknown device: {device_id}")


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
