"""What the kernel says about PCI devices, read from sysfs: the part of a snapshot that NVML does not give."""

from pathlib import Path

NVIDIA_VENDOR = "0x10de"
NVIDIA_DRIVER = "nvidia"
DISPLAY_CLASS = "0x03"
"""Base class 03 of the PCI code and ID assignment: VGA and 3D controllers; not the GPU's audio and USB functions."""


def pci_address(domain: int, bus: int, device: int) -> str:
    """The address as sysfs spells it, `0000:3b:00.0`. NVML writes the same as `00000000:3B:00.0`."""
    return f"{domain:04x}:{bus:02x}:{device:02x}.0"


def numa_node(root: Path, address: str) -> int | None:
    """The NUMA node a PCI device is attached to; None where the kernel says -1, or nothing at all.

    Args:
        root: what /sys lies under, `/` but in tests.
        address: in sysfs form.
    """
    text = _read(root / "sys/bus/pci/devices" / address / "numa_node")
    try:
        node = int(text)
    except ValueError:
        return None
    return node if node >= 0 else None


def nvidia_devices(root: Path) -> frozenset[str]:
    """The PCI addresses of NVIDIA display and 3D controllers on the bus, driver or no driver."""
    try:
        devices = list((root / "sys/bus/pci/devices").iterdir())
    except OSError:
        return frozenset()
    return frozenset(
        device.name
        for device in devices
        if _read(device / "vendor").lower() == NVIDIA_VENDOR and _read(device / "class").startswith(DISPLAY_CLASS)
    )


def taken_by_another_driver(root: Path, address: str) -> bool:
    """Whether another driver than NVIDIA's has the device: vfio-pci for a virtual machine, nouveau for a display."""
    try:
        return (root / "sys/bus/pci/devices" / address / "driver").readlink().name != NVIDIA_DRIVER
    except OSError:
        return False  # bound to none, or the link is not shown here


def driver_load(root: Path) -> int | None:
    """A number that differs between two loads of the kernel module; None when it is not loaded or can't be seen.

    sysfs numbers its entries in the order in which they are made, and makes this one with the module.
    """
    try:
        return (root / "sys/module/nvidia").stat().st_ino
    except OSError:
        return None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
