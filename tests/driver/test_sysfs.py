"""What is read from sysfs."""

from pathlib import Path

import pytest

from deviceplugin.driver.sysfs import numa_node, nvidia_devices


def device(root: Path, vendor: str, device_class: str) -> None:
    place = root / "sys/bus/pci/devices/0000:01:00.0"
    place.mkdir(parents=True)
    (place / "vendor").write_text(f"{vendor}\n")
    (place / "class").write_text(f"{device_class}\n")


@pytest.mark.parametrize(
    ("vendor", "device_class", "present"),
    [
        ("0x10de", "0x030000", True),  # VGA
        ("0x10de", "0x030200", True),  # 3D
        ("0x10de", "0x040300", False),  # the audio function of a GPU
        ("0x10de", "0x068000", False),  # an NVSwitch
        ("0x8086", "0x030000", False),
    ],
)
def test_which_devices_are_gpus(tmp_path: Path, vendor: str, device_class: str, present: bool) -> None:
    device(tmp_path, vendor, device_class)
    assert bool(nvidia_devices(tmp_path)) is present


def test_no_pci_bus_has_no_gpu(tmp_path: Path) -> None:
    assert not nvidia_devices(tmp_path)


@pytest.mark.parametrize(("text", "node"), [("1\n", 1), ("0\n", 0), ("-1\n", None), ("", None), ("x\n", None)])
def test_numa_node(tmp_path: Path, text: str, node: int | None) -> None:
    place = tmp_path / "sys/bus/pci/devices/0000:01:00.0"
    place.mkdir(parents=True)
    (place / "numa_node").write_text(text)
    assert numa_node(tmp_path, "0000:01:00.0") == node
