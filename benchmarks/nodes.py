"""The nodes and configs that are measured on. Either driver can show a node."""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path

from deviceplugin.driver.capabilities import usual_capabilities
from deviceplugin.driver.capture import description_text
from deviceplugin.model.devicefiles import files_of_all
from deviceplugin.model.node import Gpu, Link, MigInstance, MigMode, PcieLevel, Snapshot
from tests.nvml_standin.library import build
from tests.nvml_standin.sandbox import write_sysfs

# Where the stand-in is compiled to, once for all runs.
STANDIN = Path(__file__).resolve().parents[1] / "build" / "nvml-standin"
DRIVER_VERSION = "570.133.20"
NVSWITCH_LINKS = 18


@dataclass(frozen=True, slots=True)
class Node:
    """An HGX H100 board.

    Attributes:
        gpus: how many.
        slices: how many `1g.10gb` MIG instances on each, up to 7; 0: MIG is off.
    """

    gpus: int = 8
    slices: int = 0

    def snapshot(self) -> Snapshot:
        """The node as the driver should show it."""
        gpus = tuple(self._gpu(index) for index in range(self.gpus))
        links = tuple(
            Link(
                f"{one.uuid}",
                f"{other.uuid}",
                pcie=PcieLevel.SAME_CPU if one.numa_node == other.numa_node else PcieLevel.ACROSS_CPUS,
            )
            for one, other in combinations(gpus, 2)
        )
        return Snapshot(DRIVER_VERSION, "12.8", gpus, links, files_of_all(gpus))

    def _gpu(self, index: int) -> Gpu:
        return Gpu(
            index=index,
            uuid=f"GPU-{index:08x}-0000-4000-8000-000000000000",
            minor=index,
            pci_address=f"0000:{0x10 + index:02x}:00.0",
            product_name="NVIDIA H100 80GB HBM3",
            memory_mib=81559,
            compute_capability=(9, 0),
            numa_node=index * 2 // self.gpus,
            mig_mode=MigMode(current=self.slices > 0, pending=self.slices > 0),
            mig_instances=tuple(
                MigInstance(
                    f"MIG-{index:08x}-{slot:04x}-4000-8000-000000000000",
                    slot,
                    gpu_instance_id=7 + slot,
                    compute_instance_id=0,
                    profile="1g.10gb",
                    memory_mib=9984,
                    capabilities=usual_capabilities(index, 7 + slot, 0),
                )
                for slot in range(self.slices)
            ),
            nvswitch_links=NVSWITCH_LINKS,
        )

    def text(self) -> str:
        """The same node for the stand-in driver library (format: tests/golden/README.md)."""
        lines = [f"driver {DRIVER_VERSION} cuda=12080"]
        for gpu in self.snapshot().gpus:
            lines += [
                f"gpu {gpu.index} model=h100-80gb uuid={gpu.uuid} minor={gpu.minor} bus=0000{gpu.pci_address} "
                f"numa={gpu.numa_node} mig={int(self.slices > 0)}",
                f"nvswitch {gpu.index} {gpu.nvswitch_links}",
            ]
            lines += [
                f"mig gpu={gpu.index} slot={one.slot} gi={one.gpu_instance_id} ci=0 giprofile=0 ciprofile=0 "
                f"start={one.slot} size=1 uuid={one.uuid}"
                for one in gpu.mig_instances
            ]
        return "\n".join(lines) + "\n"


@dataclass(frozen=True, slots=True)
class Source:
    """Where the daemon sees a node: the value of `--driver`, and what its environment needs for it."""

    driver: str
    environment: dict[str, str] = field(default_factory=dict)


def simulated(node: Node, place: Path) -> Source:
    """The simulated driver, on a description written to `place`."""
    description = place / "node.yaml"
    description.write_text(description_text(node.snapshot()))
    return Source(f"simulated:{description}")


def nvml(node: Node, place: Path) -> Source:
    """The real binding, on the stand-in library, with /sys, /proc and the driver's files below `place`."""
    text = place / "node.txt"
    text.write_text(node.text())
    write_sysfs(place / "host", node.text(), driver_root=True)
    library = build(STANDIN)
    environment = {
        "LD_LIBRARY_PATH": str(library.parent),
        "NVML_STANDIN_NODE": str(text),
        "NVML_STANDIN_CONTROL": str(place / "faults"),
    }
    return Source(f"nvml:{place / 'host'}", environment)


Sources = Callable[[Node, Path], Source]

WHOLE = "version: v1\n"
GPU = "nvidia.com/gpu"
SLICE = "nvidia.com/mig-1g.10gb"
MIXED = "version: v1\nflags:\n  migStrategy: mixed\n"
# Flags to put after a config that has none.
DEVICE_SPECS = "flags:\n  plugin:\n    passDeviceSpecs: true\n"
CDI = "flags:\n  plugin:\n    deviceListStrategy: [cdi-annotations, cdi-cri]\n"


def time_sliced(replicas: int) -> str:
    """Every GPU in `replicas` shares of nvidia.com/gpu."""
    return f"version: v1\nsharing:\n  timeSlicing:\n    resources:\n      - name: {GPU}\n        replicas: {replicas}\n"


# 2 whole GPUs, three of 32 shares each, three of 10: 128 devices under five names.
FIVE_NAMES = (GPU, f"{GPU}.a", f"{GPU}.b", f"{GPU}.c", f"{GPU}.d")
FIVE_NAMES_DEVICES = 128


def five_names(shares_of_the_last: int = 10) -> str:
    """GPUs 0 and 1 whole, 2 to 4 in 32 shares under a name each, 5 to 7 in fewer under one."""
    entries = [("a", "[2]", 32), ("b", "[3]", 32), ("c", "[4]", 32), ("d", "[5, 6, 7]", shares_of_the_last)]
    lines = ["version: v1", "sharing:", "  timeSlicing:", "    resources:"]
    for suffix, devices, replicas in entries:
        lines += [
            f"      - name: {GPU}",
            f"        rename: {GPU}.{suffix}",
            f"        devices: {devices}",
            f"        replicas: {replicas}",
        ]
    return "\n".join(lines) + "\n"
