"""What is in force on the wire for one resource: its plan, plus the held ids that must stay listed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType

from deviceplugin.model.plan import Device, Health, Resource, Terms, Unit

NONE_REFUSED: Mapping[str, str] = MappingProxyType({})
NO_FORMER_TERMS: Mapping[str, Terms] = MappingProxyType({})


@dataclass(frozen=True)
class Offer:
    """One resource as the kubelet sees it now. The gRPC handlers read nothing else.

    Attributes:
        resource: what answers are made from. Its units hold all ids that may be handed out, and those of `devices`
            that are retained but still known; a retained id that no snapshot knows is in `devices` only.
        devices: the list that is sent: the resource's own devices less those that wait, plus retained held ids.
        draining: held ids in `devices` that are Unhealthy only because they are to go. For the first 30 s after a
            registration the server lists them Healthy: until the kubelet has re-admitted its pods an Unhealthy
            held id would fail every pod with a finished init container (contract A29, design 8).
        refused: id -> why Allocate refuses it though it is listed (draining, or waiting for holders elsewhere).
        former_terms: id -> the terms it was handed out on, for draining ids whose resource has others now: what
            serves them (an MPS daemon) must outlive them.
    """

    resource: Resource
    devices: tuple[Device, ...]
    draining: frozenset[str] = frozenset()
    refused: Mapping[str, str] = field(default_factory=lambda: NONE_REFUSED)
    former_terms: Mapping[str, Terms] = field(default_factory=lambda: NO_FORMER_TERMS)

    @property
    def name(self) -> str:
        """The resource's name."""
        return self.resource.name

    @cached_property
    def device_by_id(self) -> Mapping[str, Device]:
        """The listed devices by id, in the order of the list; built once, since every Allocate looks ids up."""
        return {device.id: device for device in self.devices}

    @cached_property
    def undeliverable(self) -> frozenset[str]:
        """The listed ids that Allocate refuses now, whatever else is asked for with them."""
        unhealthy = (device.id for device in self.devices if device.health is not Health.HEALTHY)
        return frozenset(self.refused.keys() & self.device_by_id.keys()).union(unhealthy)

    @cached_property
    def unit_by_uuid(self) -> Mapping[str, Unit]:
        """The GPUs and MIG instances behind the devices; a retained id that no snapshot knows has none."""
        return {unit.uuid: unit for unit in self.resource.units}


@dataclass(frozen=True, slots=True)
class Waiting:
    """A change of plan that waits.

    Attributes:
        what: the change in words: `GPU 3: nvidia.com/gpu.shared -> nvidia.com/gpu`.
        waits_for: what must happen: `2 held devices: GPU-...::0, GPU-...::1`.
        ids: the devices listed on that are to go: pods hold them, or may; none where it waits for something else.
    """

    resource: str
    what: str
    waits_for: str
    ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """Devices that lists have lost. The kubelet may count on them a little longer.

    Attributes:
        ids: resource -> what its list has lost.
        gpu_of: MIG instance -> its GPU, as it was known then; the driver may know it no more.
    """

    ids: Mapping[str, frozenset[str]]
    gpu_of: Mapping[str, str]
