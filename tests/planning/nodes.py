"""Small nodes and configs to plan with."""

from collections.abc import Sequence

from deviceplugin.config.model import (
    Config,
    DeviceFilter,
    DeviceIdStrategy,
    Flags,
    MigStrategy,
    Origin,
    ResourcePattern,
    SelectAll,
    SelectIndex,
    Selector,
    Sharing,
    SharingEntry,
)
from deviceplugin.model.devicefiles import files_of_all
from deviceplugin.model.node import Failure, Gpu, MigInstance, MigMode, Snapshot
from deviceplugin.model.plan import AllocationPolicy, Mode, Plan

A100 = "NVIDIA A100-SXM4-40GB"
T4 = "Tesla T4"
V100 = "Tesla V100-SXM2-16GB"
ON, OFF = MigMode(current=True, pending=True), MigMode(current=False, pending=False)
LOST = Failure("nvmlDeviceGetHandleByIndex_v2", "GPU is lost", 15)


def uuid(index: int) -> str:
    """The UUID of GPU `index`, as the recorded cases spell it."""
    return f"GPU-{index:08x}-0000-4000-8000-000000000000"


def mig_uuid(index: int, slot: int) -> str:
    """The UUID of the MIG instance in a slot of GPU `index`."""
    return f"MIG-{index:08x}-{slot:04x}-4000-8000-000000000000"


def gpu(index: int, product: str = A100, *profiles: str, mig: MigMode | None = None, numa: int | None = 0) -> Gpu:
    """A healthy GPU; profiles turn MIG on and are its instances from slot 0."""
    instances = tuple(
        MigInstance(mig_uuid(index, slot), slot, slot + 1, 0, profile, 4864, capabilities=(100 + slot, 200 + slot))
        for slot, profile in enumerate(profiles)
    )
    return Gpu(
        index=index,
        uuid=uuid(index),
        minor=index,
        pci_address=f"0000:{index + 16:02x}:00.0",
        product_name=product,
        memory_mib=40960,
        compute_capability=(8, 0),
        numa_node=numa,
        mig_mode=mig or (ON if profiles else (OFF if product == A100 else None)),
        mig_instances=instances,
    )


def hidden(index: int) -> Gpu:
    """A lost GPU of which the driver says nothing else."""
    return Gpu(index=index, uuid=None, failure=LOST)


def node(*gpus: Gpu) -> Snapshot:
    """A node of these GPUs."""
    return Snapshot("570.133.20", "12.8", gpus, device_files=files_of_all(gpus))


def plain(count: int, product: str = T4) -> Snapshot:
    """A node of equal GPUs without MIG."""
    return node(*(gpu(index, product) for index in range(count)))


def entry(
    replicas: int,
    *selectors: Selector,
    name: str = "nvidia.com/gpu",
    rename: str | None = None,
    mode: Mode = Mode.TIME_SLICING,
    number: int = 0,
    policy: AllocationPolicy | None = None,
) -> SharingEntry:
    """One entry of a sharing section; `number` is its place there."""
    section = "timeSlicing" if mode is Mode.TIME_SLICING else "mps"
    origin = Origin(f"sharing.{section}.resources[{number}]", "config.yaml", 10 + number)
    return SharingEntry(mode, name, replicas, origin, rename, selectors or (SelectAll(),), policy)


def indices(*numbers: int) -> tuple[Selector, ...]:
    """Selectors of GPUs by index."""
    return tuple(SelectIndex(number) for number in numbers)


def config(
    *entries: SharingEntry,
    strategy: MigStrategy = MigStrategy.NONE,
    rename_by_default: bool = False,
    refuse: bool = False,
    ids: DeviceIdStrategy = DeviceIdStrategy.UUID,
    gpus: Sequence[tuple[str, str]] = (),
    mig: Sequence[tuple[str, str]] = (),
    devices: DeviceFilter | None = None,
    policy: AllocationPolicy = AllocationPolicy.DISTRIBUTED,
    mps_root: str = "/run/nvidia/mps",
) -> Config:
    """A config with these sharing entries, sorted into their sections; patterns as (pattern, name)."""

    def section(mode: Mode) -> Sharing | None:
        own = tuple(one for one in entries if one.mode is mode)
        key = "timeSlicing" if mode is Mode.TIME_SLICING else "mps"
        return Sharing(own, rename_by_default, refuse, Origin(f"sharing.{key}", "config.yaml", 9)) if own else None

    def patterns(key: str, pairs: Sequence[tuple[str, str]]) -> tuple[ResourcePattern, ...]:
        return tuple(
            ResourcePattern(pattern, name, Origin(f"resources.{key}[{n}]", "config.yaml", 3 + n))
            for n, (pattern, name) in enumerate(pairs)
        )

    return Config(
        flags=Flags(
            mig_strategy=strategy,
            device_id_strategy=ids,
            shared_devices_allocation_policy=policy,
            mps_root=mps_root,
        ),
        time_slicing=section(Mode.TIME_SLICING),
        mps=section(Mode.MPS),
        gpu_patterns=patterns("gpus", gpus),
        mig_patterns=patterns("mig", mig),
        devices=devices or DeviceFilter(),
    )


def counts(plan: Plan) -> dict[str, int]:
    """How many devices each resource has."""
    return {resource.name: len(resource.devices) for resource in plan.resources}
