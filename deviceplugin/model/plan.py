"""What a node offers: resources, their devices, and what is left out and why. Plans are values: compare them."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from deviceplugin.model.delivery import ENVVAR_ONLY, Delivery
from deviceplugin.model.ids import replica_id
from deviceplugin.model.links import NO_LINK_SCORES, LinkScores
from deviceplugin.model.mps import MpsShare


class Mode(StrEnum):
    """How a GPU or MIG instance is offered."""

    EXCLUSIVE = "exclusive"
    TIME_SLICING = "time-slicing"
    MPS = "mps"


class Health(StrEnum):
    """The kubelet's word; anything but exactly `Healthy` counts as unhealthy (contract L2)."""

    HEALTHY = "Healthy"
    UNHEALTHY = "Unhealthy"


class AllocationPolicy(StrEnum):
    """Which free shares are preferred: evenly over GPUs, few GPUs, or distinct GPUs only."""

    DISTRIBUTED = "distributed"
    PACKED = "packed"
    SPREAD = "spread"


@dataclass(frozen=True, slots=True)
class Device:
    """What a pod can hold: one id of one list.

    Attributes:
        id: UUID or `UUID::n`.
        unit_uuid: the GPU or MIG instance behind it.
        health: as sent to the kubelet.
        reason: why it is Unhealthy, empty when Healthy.
        numa_node: sent as TopologyInfo; None sends none (contract L19).
    """

    id: str
    unit_uuid: str
    health: Health = Health.HEALTHY
    reason: str = ""
    numa_node: int | None = None


@dataclass(frozen=True, slots=True)
class Terms:
    """On what terms a device is given out. Devices of one GPU or MIG instance can't be given out on two at a time.

    Attributes:
        mps: the limits of a share by MPS; its control daemon has one set of them.
    """

    mode: Mode
    mps: MpsShare | None = None

    def describe(self) -> str:
        """For messages: the mode, with the limits of MPS."""
        return f"{self.mode} ({self.mps.describe()})" if self.mps else str(self.mode)


@dataclass(frozen=True, slots=True)
class Unit:
    """A GPU or MIG instance as a resource offers it, and what a container that gets it receives.

    Attributes:
        uuid: of the GPU or MIG instance.
        gpu_uuid: of the physical GPU: itself, or a MIG instance's parent.
        gpu_index: NVML index of that GPU, for people and index ids.
        replicas: 0: one device whose id is the UUID; n: the devices `UUID::0` to `UUID::n-1`.
        visible_id: what NVIDIA_VISIBLE_DEVICES says for it: the UUID, `0` or `0:1` (deviceIDStrategy).
        profile: MIG profile, None for a GPU.
        product_name: of the physical GPU.
        memory_mib: of the GPU or MIG instance.
        device_files: its device files, named below /dev: its GPU's, and of a MIG instance the two capabilities'.
        mps: what a share of it gives; only of a GPU that is shared by MPS, and None there only while it has failed.
        health, reason, numa_node: every device of it gets these.
    """

    uuid: str
    gpu_uuid: str
    gpu_index: int
    visible_id: str
    replicas: int = 0
    profile: str | None = None
    product_name: str | None = None
    memory_mib: int | None = None
    device_files: tuple[str, ...] = ()
    numa_node: int | None = None
    mps: MpsShare | None = None
    health: Health = Health.HEALTHY
    reason: str = ""

    def device_ids(self) -> Iterator[str]:
        """The ids of its devices in order of replica."""
        if self.replicas == 0:
            yield self.uuid
        for replica in range(self.replicas):
            yield replica_id(self.uuid, replica)


@dataclass(frozen=True)
class Resource:
    """A name with the devices offered under it, all in one mode and, for MIG, of one profile.

    Attributes:
        name: the extended resource name, e.g. `nvidia.com/gpu.shared`.
        units: ordered by GPU index, then MIG slot.
        refuse_more_than_one: failRequestsGreaterThanOne: Allocate refuses more than one share for a container.
        origin: the config key that made it, e.g. `sharing.timeSlicing.resources[0]`; `default` without one.
        link_scores: among its GPUs where it offers them whole; else none.
        delivery: how containers get its devices.
    """

    name: str
    mode: Mode
    units: tuple[Unit, ...]
    allocation_policy: AllocationPolicy = AllocationPolicy.DISTRIBUTED
    refuse_more_than_one: bool = False
    origin: str = "default"
    link_scores: LinkScores = NO_LINK_SCORES
    delivery: Delivery = ENVVAR_ONLY

    @cached_property
    def devices(self) -> tuple[Device, ...]:
        """Every device, ordered by GPU index, MIG slot, replica."""
        return tuple(
            Device(device_id, unit.uuid, unit.health, unit.reason, unit.numa_node)
            for unit in self.units
            for device_id in unit.device_ids()
        )


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A GPU or MIG instance that no resource offers.

    Attributes:
        what: for people: `GPU 3 (GPU-...)`.
        uuid: None where the driver would not say.
        reason: the rule that leaves it out.
    """

    what: str
    uuid: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What a config makes of a snapshot.

    Attributes:
        resources: ordered by name; every GPU and MIG instance is in exactly one of them or in `left_out`.
        warnings: for log, plan and status; they refuse nothing.
        layout_problems: MIG layouts and missing files that NVIDIA's plugin refuses, in its recognisable words. With
            failOnInitError they end a start; otherwise what they concern is in `left_out` or Unhealthy, and the rest
            is served (design 8, MIG).
    """

    resources: tuple[Resource, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    warnings: tuple[str, ...] = ()
    layout_problems: tuple[str, ...] = ()

    def resource(self, name: str) -> Resource | None:
        """The resource of that name, if the plan has it."""
        return next((resource for resource in self.resources if resource.name == name), None)
