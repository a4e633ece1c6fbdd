"""The config as the rest of the product sees it: checked, defaulted, frozen.

Loading (deviceplugin.config.load) makes these; nothing else reads a file, a flag or a variable.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from deviceplugin.model.health import Condition, Response
from deviceplugin.model.plan import AllocationPolicy, Mode


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a setting was written: `file:line: path` in messages.

    Attributes:
        path: the key path, e.g. `sharing.timeSlicing.resources[0]`, or the flag or variable.
        file: None for flags, variables and defaults.
        line: from 1.
    """

    path: str
    file: str | None = None
    line: int | None = None

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}: " if self.file else ""
        return f"{place}{self.path}"


class MigStrategy(StrEnum):
    """How MIG instances are named (NVIDIA's migStrategy)."""

    NONE = "none"
    SINGLE = "single"
    MIXED = "mixed"


class DeviceIdStrategy(StrEnum):
    """What NVIDIA_VISIBLE_DEVICES names devices by (NVIDIA's deviceIDStrategy)."""

    UUID = "uuid"
    INDEX = "index"


class HeldPolicy(StrEnum):
    """What becomes of a config that changes a device which a pod holds (`sharing.transition`)."""

    DRAIN = "drain"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True)
class SelectAll:
    """`all`: every device of the resource."""


@dataclass(frozen=True, slots=True)
class SelectRest:
    """`rest`: every device of the resource that no other entry, of either kind of sharing, names."""


@dataclass(frozen=True, slots=True)
class SelectCount:
    """A number: that many devices, the first in order of index that no other entry names."""

    count: int


@dataclass(frozen=True, slots=True)
class SelectIndex:
    """A GPU by NVML index; with `slot` one MIG instance of it (`gpu:mig`). Without, a MIG GPU means its instances."""

    gpu_index: int
    slot: int | None = None


@dataclass(frozen=True, slots=True)
class SelectUuid:
    """A GPU (with everything on it) or a MIG instance by UUID."""

    uuid: str


@dataclass(frozen=True, slots=True)
class SelectPci:
    """A GPU by PCI address, normalised to sysfs form `0000:3b:00.0`."""

    address: str


@dataclass(frozen=True, slots=True)
class SelectModel:
    """`model:<glob>`: GPUs whose whole product name matches, case and all (`*` any run, `?` one character)."""

    glob: str


Selector = SelectAll | SelectRest | SelectCount | SelectIndex | SelectUuid | SelectPci | SelectModel


@dataclass(frozen=True, slots=True)
class SharingEntry:
    """One entry of `sharing.timeSlicing.resources` or `sharing.mps.resources`.

    Attributes:
        name: full resource name of what is shared, e.g. `nvidia.com/gpu`.
        rename: full name to offer it under, if set.
        selectors: which of that resource's devices; `(SelectAll(),)` when the key is absent.
        replicas: from 2 for time-slicing, from 1 for MPS.
        allocation_policy: None: the flag's.
        memory_limit_mib, memory_limit_percent: MPS only, at most one of the two set; per process.
        active_thread_percentage: MPS only, 1 to 100.
    """

    mode: Mode
    name: str
    replicas: int
    origin: Origin
    rename: str | None = None
    selectors: tuple[Selector, ...] = (SelectAll(),)
    allocation_policy: AllocationPolicy | None = None
    memory_limit_mib: int | None = None
    memory_limit_percent: int | None = None
    active_thread_percentage: int | None = None


@dataclass(frozen=True, slots=True)
class Sharing:
    """`sharing.timeSlicing` or `sharing.mps`.

    Attributes:
        refuse_more_than_one: failRequestsGreaterThanOne; false by default for time-slicing, true for MPS.
    """

    entries: tuple[SharingEntry, ...]
    rename_by_default: bool
    refuse_more_than_one: bool
    origin: Origin


@dataclass(frozen=True, slots=True)
class ResourcePattern:
    """One entry of `resources.gpus` or `resources.mig`: the first whose anchored glob matches gives the name."""

    pattern: str
    name: str
    origin: Origin


@dataclass(frozen=True, slots=True)
class DeviceFilter:
    """`devices`: which GPUs the plugin manages at all, applied before anything else. No include: every GPU."""

    include: tuple[Selector, ...] = ()
    exclude: tuple[Selector, ...] = ()


@dataclass(frozen=True, slots=True)
class Flags:
    """The effective flags (flag > environment > file > default). Names and defaults are NVIDIA's (drop-in.md 4).

    `mps_root` and `container_driver_root` are kept for the issue that serves what needs them; a value that asks
    for something this version does not offer never gets this far (config.notoffered).
    """

    mig_strategy: MigStrategy = MigStrategy.NONE
    fail_on_init_error: bool = True
    nvidia_driver_root: str = "/"
    nvidia_dev_root: str | None = None
    device_id_strategy: DeviceIdStrategy = DeviceIdStrategy.UUID
    device_list_strategies: tuple[str, ...] = ("envvar",)
    pass_device_specs: bool = False
    cdi_annotation_prefix: str = "cdi.k8s.io/"
    cdi_hook_path: str | None = None
    cdi_disable_hooks: tuple[str, ...] = ()
    gdrcopy_enabled: bool = False
    gds_enabled: bool = False
    mofed_enabled: bool = False
    imex_channel_ids: tuple[int, ...] = ()
    imex_required: bool = False
    container_driver_root: str = "/driver-root"
    mps_root: str = ""
    shared_devices_allocation_policy: AllocationPolicy = AllocationPolicy.DISTRIBUTED
    device_discovery_strategy: str = "auto"


NO_XIDS: Mapping[int, Response] = MappingProxyType({})
NO_CONDITIONS: Mapping[Condition, Response] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class HealthConfig:
    """`health`: what signals mean, and how a GPU recovers.

    Attributes:
        xids, conditions: only what the file says; for the rest health.policy has defaults.
        poll_s: seconds between two looks at the driver.
        quiet_s: seconds without a new signal before a GPU may recover.
        live_after_s: after so many seconds without a sign of life from what watches the driver, `status --live` fails.
    """

    xids: Mapping[int, Response] = field(default_factory=lambda: NO_XIDS)
    conditions: Mapping[Condition, Response] = field(default_factory=lambda: NO_CONDITIONS)
    poll_s: float = 10.0
    quiet_s: float = 60.0
    live_after_s: float = 60.0


@dataclass(frozen=True, slots=True)
class Config:
    """One config in force.

    Attributes:
        time_slicing, mps: None when the file has no such section.
        transition: what becomes of this config if it changes what pods hold.
        gpu_patterns, mig_patterns: in file order, before the defaults (`*` -> `nvidia.com/gpu`).
        warnings: what the loader let pass under lenient strictness, and what migrating users should know.
        source: the file, None when there is none.
        text: the file as read, shown by `status`; empty without one.
    """

    flags: Flags = field(default_factory=Flags)
    time_slicing: Sharing | None = None
    mps: Sharing | None = None
    transition: HeldPolicy = HeldPolicy.DRAIN
    gpu_patterns: tuple[ResourcePattern, ...] = ()
    mig_patterns: tuple[ResourcePattern, ...] = ()
    devices: DeviceFilter = field(default_factory=DeviceFilter)
    health: HealthConfig = field(default_factory=HealthConfig)
    warnings: tuple[str, ...] = ()
    source: str | None = None
    text: str = ""
