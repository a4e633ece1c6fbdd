"""Which device files exist, and what the capabilities of MIG instances are called."""

import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from deviceplugin.driver.capabilities import usual_capabilities, with_capabilities
from deviceplugin.driver.devicefiles import device_files, driver_root_device_files
from deviceplugin.model.node import Gpu, MigInstance, MigMode
from tests.nvml_standin import capability_minor, write_sysfs

MIG_NODE = """\
driver 570.133.20 cuda=12080
gpu 0 model=a100-40gb uuid=GPU-0 minor=3 bus=00000000:10:00.0 numa=0 mig=1
mig gpu=0 slot=0 gi=7 ci=1 giprofile=0 ciprofile=0 start=0 size=1 uuid=MIG-0
"""
INSTANCE = MigInstance("MIG-0", 0, 7, 1, "1g.5gb")


def mig_gpu(*instances: MigInstance, minor: int | None = 3) -> Gpu:
    return Gpu(0, "GPU-0", minor, mig_mode=MigMode(current=True, pending=True), mig_instances=instances)


def numbers(root: Path, gpu: Gpu) -> list[tuple[int, int] | None]:
    (found,) = with_capabilities(root, (gpu,))
    return [instance.capabilities for instance in found.mig_instances]


@pytest.mark.parametrize("removed", ["nvidia-caps/mig-minors", "nvidia/capabilities", ""])
def test_either_file_of_the_driver_tells_the_numbers(tmp_path: Path, removed: str) -> None:
    write_sysfs(tmp_path, MIG_NODE)
    if removed:
        (tmp_path / "proc/driver" / removed).rename(tmp_path / "elsewhere")
    assert numbers(tmp_path, mig_gpu(INSTANCE)) == [(capability_minor(3, 7), capability_minor(3, 7, 1))]


def test_without_both_there_are_none(tmp_path: Path) -> None:
    write_sysfs(tmp_path, MIG_NODE, caps=False)
    assert numbers(tmp_path, mig_gpu(INSTANCE)) == [None]


@pytest.mark.parametrize("gpu", [mig_gpu(INSTANCE, minor=None), mig_gpu(MigInstance("MIG-0", 0, None, None, None))])
def test_an_instance_that_the_driver_hides_has_none(tmp_path: Path, gpu: Gpu) -> None:
    write_sysfs(tmp_path, MIG_NODE)
    assert numbers(tmp_path, gpu) == [None]


def test_garbage_in_the_files_is_no_number(tmp_path: Path) -> None:
    driver = tmp_path / "proc/driver"
    (driver / "nvidia-caps").mkdir(parents=True)
    (driver / "nvidia-caps/mig-minors").write_bytes(b"gpu3/gi7/access\ngpu3/gi7/ci1/access x\n\xff\xfe 3\n")
    access = driver / "nvidia/capabilities/gpu3/mig/gi7/access"
    access.parent.mkdir(parents=True)
    access.write_text("DeviceFileMinor: many\n")
    assert numbers(tmp_path, mig_gpu(INSTANCE)) == [None]


def test_the_numbers_of_all_instances_are_read_once(tmp_path: Path) -> None:
    """The file is a pipe that one reader gets whole; a second one would wait for ever."""
    write_sysfs(tmp_path, MIG_NODE)
    path = tmp_path / "proc/driver/nvidia-caps/mig-minors"
    text = path.read_bytes()
    path.unlink()
    os.mkfifo(path)
    many = tuple(replace(INSTANCE, slot=slot, gpu_instance_id=slot) for slot in range(7))
    found: list[tuple[Gpu, ...]] = []
    looker = threading.Thread(
        target=lambda: found.append(with_capabilities(tmp_path, (mig_gpu(*many), mig_gpu(*many, minor=4)))), daemon=True
    )
    looker.start()
    path.write_bytes(text)
    looker.join(10)
    (first, second) = found[0]
    for minor, gpu in ((3, first), (4, second)):
        assert [one.capabilities for one in gpu.mig_instances] == [
            (capability_minor(minor, gi), capability_minor(minor, gi, 1)) for gi in range(7)
        ]


@pytest.mark.parametrize("place", [(0, 0, 0), (0, 14, 7), (31, 14, 7)])
def test_simulated_instances_are_numbered_as_drivers_do(place: tuple[int, int, int]) -> None:
    gpu, gi, ci = place
    assert usual_capabilities(gpu, gi, ci) == (capability_minor(gpu, gi), capability_minor(gpu, gi, ci))


def test_only_character_devices_count(tmp_path: Path) -> None:
    (tmp_path / "nvidia3").symlink_to("/dev/null")
    (tmp_path / "nvidiactl").mkdir()
    (tmp_path / "nvidia-uvm").write_text("")
    (tmp_path / "nvidia-modeset").symlink_to("/nowhere")
    assert device_files(tmp_path, (mig_gpu(),)) == {"nvidia3"}


def test_files_of_other_gpus_do_not_matter_and_those_of_extras_do(tmp_path: Path) -> None:
    extras = ["gdrdrv", "nvidia-fs0", "nvidia-fs12", "infiniband/uverbs0", "infiniband/rdma_cm"]
    write_sysfs(tmp_path, MIG_NODE, extra_dev=[*extras, "nvidia9", "infiniband/umad0"], imex=[0, 1])
    found = device_files(tmp_path / "dev", (mig_gpu(),))
    control = {"nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset"}
    assert found == {"nvidia3", *control, *extras, "nvidia-caps-imex-channels/channel0"}


def test_the_mounted_driver_root_has_its_own_dev_if_the_driver_is_there(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    assert driver_root_device_files(tmp_path, (mig_gpu(),)) is None
    (tmp_path / "dev/nvidia3").symlink_to("/dev/null")
    assert driver_root_device_files(tmp_path, (mig_gpu(),)) is None
    (tmp_path / "dev/nvidiactl").symlink_to("/dev/null")
    assert driver_root_device_files(tmp_path, (mig_gpu(),)) == frozenset({"nvidiactl", "nvidia3"})
