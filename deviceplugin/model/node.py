"""What the driver says exists: GPUs, MIG instances, links. One frozen Snapshot per look."""

from dataclasses import dataclass, field
from enum import Enum


@dataclass(frozen=True, slots=True)
class Failure:
    """A driver call that failed.

    Attributes:
        call: the NVML function or the file read.
        message: the driver's own words, e.g. "GPU is lost".
        code: the NVML return code, None for a file.
    """

    call: str
    message: str
    code: int | None = None

    def __str__(self) -> str:
        return f"{self.call}: {self.message}" + (f" (NVML {self.code})" if self.code is not None else "")


@dataclass(frozen=True, slots=True)
class MigMode:
    """MIG mode of a GPU that supports it; `pending` takes effect at the next reset."""

    current: bool
    pending: bool


@dataclass(frozen=True, slots=True)
class MigInstance:
    """A hardware partition of a GPU.

    Attributes:
        uuid: `MIG-...`, also the legacy `MIG-GPU-<uuid>/<gi>/<ci>` of drivers before 470.
        slot: its MIG device index on the parent GPU.
        gpu_instance_id, compute_instance_id: NVML's ids, None where a failed call hides them.
        profile: as NVML spells it: `1g.5gb`, `1g.10gb+me`, `1c.3g.20gb`; None where a failed call hides it.
        memory_mib: framebuffer in MiB, None if unknown.
        capabilities: N of `/dev/nvidia-caps/nvidia-capN` of its GPU instance and of its compute instance; None if
            the driver does not say.
        failure: the first call that failed on it.
    """

    uuid: str
    slot: int
    gpu_instance_id: int | None
    compute_instance_id: int | None
    profile: str | None
    memory_mib: int | None = None
    capabilities: tuple[int, int] | None = None
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class Gpu:
    """A physical device that NVML lists. None means: not supported, or hidden by `failure`.

    Attributes:
        index: NVML's index, only for people and for the index id strategy; it can change between boots.
        uuid: `GPU-...`; None when the driver would not even say that (a lost GPU).
        minor: N of `/dev/nvidiaN`; never the index (reports K3).
        pci_address: as sysfs spells it, `0000:3b:00.0`.
        memory_mib: total framebuffer in MiB.
        numa_node: from sysfs; None for -1 or no file (never sent as node 0, contract L19).
        mig_mode: None where the product does not do MIG.
        mig_hidden: why this container may not list its MIG instances: a right that it lacks, and no fault of the GPU.
        nvswitch_links: NVLinks that lead to an NVSwitch.
        failure: the first call that failed; the GPU is then offered Unhealthy, or left out when it has no UUID.
    """

    index: int
    uuid: str | None
    minor: int | None = None
    pci_address: str | None = None
    product_name: str | None = None
    memory_mib: int | None = None
    compute_capability: tuple[int, int] | None = None
    numa_node: int | None = None
    mig_mode: MigMode | None = None
    mig_instances: tuple[MigInstance, ...] = ()
    mig_hidden: Failure | None = None
    nvswitch_links: int = 0
    failure: Failure | None = None

    @property
    def mig_enabled(self) -> bool:
        """Whether MIG is on now (a pending change does not count)."""
        return self.mig_mode is not None and self.mig_mode.current

    def describe(self) -> str:
        """For messages: `GPU 3 (GPU-..., NVIDIA A100-SXM4-40GB)`, with what is known."""
        known = ", ".join(part for part in (self.uuid, self.product_name) if part)
        return f"GPU {self.index}" + (f" ({known})" if known else "")


class PcieLevel(Enum):
    """The closest common PCIe ancestor of two GPUs, nearest first (nvmlDeviceGetTopologyCommonAncestor)."""

    SAME_BOARD = "internal"
    ONE_SWITCH = "single"
    SEVERAL_SWITCHES = "multiple"
    HOST_BRIDGE = "hostbridge"
    SAME_CPU = "node"
    ACROSS_CPUS = "system"


@dataclass(frozen=True, slots=True)
class Link:
    """What connects two GPUs, named by UUID with `first < second`; a pair without a Link is unknown: the worst.

    Attributes:
        nvlinks: direct NVLinks between the two; a link that only one side reports counts once.
        pcie: None when the driver would not say.
    """

    first: str
    second: str
    nvlinks: int = 0
    pcie: PcieLevel | None = None


@dataclass(frozen=True, slots=True)
class DriverFile:
    """A file of the driver's installation that containers need.

    Attributes:
        path: absolute, below the driver root: `/usr/lib/x86_64-linux-gnu/libcuda.so.570.133.20`.
        links: other names in the same directory that lead to it: `libcuda.so.1`.
    """

    path: str
    links: tuple[str, ...] = ()

    @property
    def is_library(self) -> bool:
        """Whether it is a shared library rather than a program or firmware."""
        return ".so." in self.path


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One look at the driver: complete but for the GPUs that carry a failure, ordered by index.

    Attributes:
        device_files: which of the device files that matter here exist in this container's own /dev, which its runtime
            fills from the host's; named below /dev (model.devicefiles).
        driver_root_device_files: the same of the `dev` in the mounted driver root; None when the driver keeps none
            there, or no driver root is mounted.
        driver_files: libraries, programs and firmware of the driver, by path; empty when no driver root is mounted.
        cdi_hook: path below the driver root of the program that runs CDI hooks; None when there is none.
    """

    driver_version: str | None = None
    cuda_version: str | None = None
    gpus: tuple[Gpu, ...] = ()
    links: tuple[Link, ...] = field(default=())
    device_files: frozenset[str] = frozenset()
    driver_root_device_files: frozenset[str] | None = None
    driver_files: tuple[DriverFile, ...] = ()
    cdi_hook: str | None = None
