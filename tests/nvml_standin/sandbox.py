"""Writes the files around a driver that programs read beside NVML: /sys, /proc and /dev below a root of choice."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from tests.nvml_standin.node import NodeDescription, NodeGpu, parse_node

FILE_OPTIONS: Final = ("no_numa_file", "no_dev", "extra_dev", "imex", "caps", "driver_root", "driver_root_dev")
"""The keys of cmd.json's `sandbox` that `write_sysfs` takes, and one of ours: driver_root_dev."""
_GPUS, _GPU_INSTANCES, _COMPUTE_INSTANCES = 32, 15, 8  # what the driver numbers capability nodes for
_DEVICE_NODES: Final = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset")


DRIVER_ROOT: Final = "driver-root"
"""Where `write_sysfs` puts the mounted driver root."""
LIBRARY_DIRECTORY: Final = "usr/lib/x86_64-linux-gnu"
LIBRARY_LINKS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {"libcuda": ("libcuda.so", "libcuda.so.1"), "libnvidia-ml": ("libnvidia-ml.so.1",), "libnvidia-ptxjitcompiler": ()}
)
PROGRAMS: Final = ("nvidia-smi", "nvidia-persistenced", "nvidia-cuda-mps-control", "nvidia-cuda-mps-server")
HOOK_PROGRAM: Final = "nvidia-ctk"


def capability_minor(gpu_minor: int, gpu_instance: int, compute_instance: int | None = None) -> int:
    """N of /dev/nvidia-caps/nvidia-capN for the access file of a GPU instance or compute instance."""
    instance = gpu_minor * _GPU_INSTANCES + gpu_instance
    return 3 + instance * (1 + _COMPUTE_INSTANCES) + (0 if compute_instance is None else 1 + compute_instance)


def mig_minors() -> str:
    """The text of /proc/driver/nvidia-caps/mig-minors."""
    lines = ["config 1", "monitor 2"]
    for gpu in range(_GPUS):
        for gi in range(_GPU_INSTANCES):
            lines.append(f"gpu{gpu}/gi{gi}/access {capability_minor(gpu, gi)}")
            lines += [
                f"gpu{gpu}/gi{gi}/ci{ci}/access {capability_minor(gpu, gi, ci)}" for ci in range(_COMPUTE_INSTANCES)
            ]
    return "".join(f"{line}\n" for line in lines)


def write_sysfs(
    root: Path,
    node_text: str,
    *,
    no_numa_file: bool = False,
    no_dev: Iterable[str] = (),
    extra_dev: Iterable[str] = (),
    imex: Iterable[int] = (),
    caps: bool = True,
    driver_root: bool = False,
    driver_root_dev: bool = True,
) -> NodeDescription:
    """Creates `root/sys`, `root/proc` and `root/dev` for a node; the options are cmd.json's `sandbox`.

    Device nodes are links to /dev/null, a character device that needs no privilege; those of an earlier call that
    this one does not name are removed. A node whose nvmlInit fails (driver not loaded) gets its PCI devices only:
    without a driver there is neither /proc/driver/nvidia nor a device node.

    Args:
        root: where; it may exist.
        node_text: the text of a node.txt.
        no_numa_file: leave out `numa_node` of every device.
        no_dev: names below /dev to leave out, e.g. `nvidia1`.
        extra_dev: names below /dev to add, e.g. `infiniband/uverbs0`.
        imex: channels to create in /dev/nvidia-caps-imex-channels.
        caps: false for no mig-minors file and no capability nodes.
        driver_root: whether `root/driver-root` has the driver's installation, as the recorder's had, a program for
            CDI hooks.
        driver_root_dev: whether the driver root has the same device nodes as `root/dev`, as the root of a driver
            container and the host's own have, or is a directory of the driver's files alone.
    """
    node = parse_node(node_text)
    for gpu in node.gpus:
        _write_pci(root / "sys/bus/pci/devices" / gpu.pci_address, gpu, numa=not no_numa_file)
    if driver_root:
        _install(root / DRIVER_ROOT, node.driver)
    if node.init_return:
        _make_devices(root / "dev", frozenset())
        return node
    _write_proc(root / "proc/driver", node, caps=caps)
    devices = [*_DEVICE_NODES, *(f"nvidia{gpu.minor}" for gpu in node.gpus), *extra_dev]
    devices += [f"nvidia-caps-imex-channels/channel{channel}" for channel in imex]
    if caps and any(gpu.mig_current is not None for gpu in node.gpus):
        devices += [f"nvidia-caps/nvidia-cap{minor}" for minor in _capabilities(node)]
    for directory in (root / "dev", *([root / DRIVER_ROOT / "dev"] if driver_root and driver_root_dev else [])):
        _make_devices(directory, frozenset(devices) - frozenset(no_dev))
    return node


def _install(root: Path, version: str) -> None:
    for name, links in LIBRARY_LINKS.items():
        library = root / LIBRARY_DIRECTORY / f"{name}.so.{version}"
        _write(library)
        for link in links:
            path = library.with_name(link)
            if not path.is_symlink():
                path.symlink_to(library.name)
    for name in (*PROGRAMS, HOOK_PROGRAM):
        _write(root / "usr/bin" / name)
        (root / "usr/bin" / name).chmod(0o755)


def _make_devices(directory: Path, names: frozenset[str]) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for path in directory.rglob("*"):
        if path.is_symlink() and str(path.relative_to(directory)) not in names:
            path.unlink()
    for name in names:
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.is_symlink():
            path.symlink_to("/dev/null")


def _capabilities(node: NodeDescription) -> list[int]:
    minors = [1, 2]  # config and monitor
    for mig in node.migs:
        gpu_minor = node.gpus[mig.gpu].minor
        minors.append(capability_minor(gpu_minor, mig.gpu_instance_id))
        minors.append(capability_minor(gpu_minor, mig.gpu_instance_id, mig.compute_instance_id))
    return minors


def _write_pci(directory: Path, gpu: NodeGpu, *, numa: bool) -> None:
    _write(directory / "vendor", "0x10de\n")
    _write(directory / "device", f"0x{gpu.model.pci_device:04x}\n")
    _write(directory / "class", "0x030200\n")
    if numa:
        _write(directory / "numa_node", f"{gpu.numa}\n")


def _write_proc(driver: Path, node: NodeDescription, *, caps: bool) -> None:
    _write(driver / "nvidia/version", f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {node.driver}\n")
    for gpu in node.gpus:
        _write(
            driver / "nvidia/gpus" / gpu.pci_address / "information",
            f"Model: \t\t {gpu.product_name}\nGPU UUID: \t {gpu.uuid}\n"
            f"Bus Location: \t {gpu.pci_address}\nDevice Minor: \t {gpu.minor}\n",
        )
    if not caps:
        return
    _write(driver / "nvidia-caps/mig-minors", mig_minors())
    for mig in node.migs:
        minor = node.gpus[mig.gpu].minor
        instance = driver / f"nvidia/capabilities/gpu{minor}/mig/gi{mig.gpu_instance_id}"
        _write_capability(instance / "access", capability_minor(minor, mig.gpu_instance_id))
        _write_capability(
            instance / f"ci{mig.compute_instance_id}/access",
            capability_minor(minor, mig.gpu_instance_id, mig.compute_instance_id),
        )


def _write_capability(path: Path, minor: int) -> None:
    _write(path, f"DeviceFileMinor: {minor}\nDeviceFileMode: 256\nDeviceFileModify: 1\n")


def _write(path: Path, text: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
