"""What a snapshot says of nodes where nothing is wrong, by the real binding on the stand-in library."""

import pytest

from deviceplugin.driver.mig import profile_from_sizes
from deviceplugin.driver.sysfs import nvidia_devices
from deviceplugin.model.node import Link, MigMode, PcieLevel
from tests.driver.bench import Bench, gpu_line, only, uuid
from tests.nvml_standin import MODELS, PROFILES, Profile, write_sysfs

MIG_OF_EACH_KIND = gpu_line(0, "h100-80gb", "mig=1") + (
    "mig gpu=0 slot=0 gi=7 ci=0 giprofile=0 ciprofile=0 start=0 size=1 uuid=MIG-a\n"
    "mig gpu=0 slot=1 gi=8 ci=0 giprofile=7 ciprofile=0 start=1 size=1 uuid=MIG-b\n"
    "mig gpu=0 slot=4 gi=2 ci=0 giprofile=2 ciprofile=0 start=4 size=4 uuid=MIG-c\n"
    "mig gpu=0 slot=5 gi=2 ci=1 giprofile=2 ciprofile=1 start=4 size=4 uuid=MIG-d\n"
)


@pytest.mark.parametrize("model", MODELS)
def test_every_model(bench: Bench, model: str) -> None:
    snapshot = bench.look(f"driver 570.133.20 cuda=12080\n{gpu_line(0, model)}")
    gpu = only(snapshot)
    facts = MODELS[model]
    assert (snapshot.driver_version, snapshot.cuda_version) == ("570.133.20", "12.8")
    assert (gpu.product_name, gpu.memory_mib) == (facts.product_name, facts.memory_mib)
    assert gpu.compute_capability == facts.compute_capability
    assert gpu.mig_mode == (MigMode(current=False, pending=False) if facts.max_mig_devices else None)
    assert (gpu.index, gpu.uuid, gpu.minor, gpu.pci_address, gpu.numa_node) == (0, uuid(0), 0, "0000:10:00.0", 0)
    assert gpu.failure is None


def test_no_gpu_is_an_empty_snapshot(bench: Bench) -> None:
    snapshot = bench.look("driver 550.54.15 cuda=12040\n")
    assert (snapshot.gpus, snapshot.links, snapshot.cuda_version) == ((), (), "12.4")
    assert not bench.driver.nvidia_device_present()


def test_minor_and_address_are_the_drivers_own(bench: Bench) -> None:
    """Reports K3: `/dev/nvidiaN` follows the minor, whatever the index; the domain is not always 0."""
    text = gpu_line(0, options="minor=2 bus=0000000A:3B:00.0") + gpu_line(1, options="minor=0 bus=00010000:01:00.0")
    first, second = bench.look(text).gpus
    assert (first.minor, first.pci_address) == (2, "000a:3b:00.0")
    assert (second.minor, second.pci_address) == (0, "10000:01:00.0")


def test_two_gpus_with_one_minor_are_both_failed(bench: Bench) -> None:
    first, second, third = bench.look(
        gpu_line(0, options="minor=1") + gpu_line(1) + gpu_line(2),
    ).gpus
    assert first.failure is not None
    assert first.failure == second.failure
    assert "0, 1 all report minor 1" in str(first.failure)
    assert third.failure is None


def test_two_gpus_with_one_uuid_are_both_failed_and_nameless(bench: Bench) -> None:
    first, second, third = bench.look(gpu_line(0) + gpu_line(1, options=f"uuid={uuid(0)}") + gpu_line(2)).gpus
    assert (first.uuid, second.uuid, third.uuid) == (None, None, uuid(2))
    assert first.failure == second.failure
    assert f"0, 1 all report {uuid(0)}" in str(first.failure)
    assert third.failure is None


def test_no_numa_node_is_none(bench: Bench) -> None:
    """Contract L19: neither -1 nor a missing file is node 0."""
    assert only(bench.look(gpu_line(0, options="numa=-1"))).numa_node is None


def test_no_numa_file_is_none_and_no_failure(bench: Bench) -> None:
    gpu = only(bench.look(gpu_line(0), no_numa_file=True))
    assert (gpu.numa_node, gpu.failure) == (None, None)


def test_mig_instances_in_order_of_slot_with_gaps(bench: Bench) -> None:
    gpu = only(bench.look(MIG_OF_EACH_KIND))
    assert gpu.mig_enabled
    assert [
        (one.slot, one.uuid, one.gpu_instance_id, one.compute_instance_id, one.profile, one.memory_mib)
        for one in gpu.mig_instances
    ] == [
        (0, "MIG-a", 7, 0, "1g.10gb", 9984),
        (1, "MIG-b", 8, 0, "1g.10gb+me", 9984),
        (4, "MIG-c", 2, 0, "1c.3g.40gb", 40448),
        (5, "MIG-d", 2, 1, "2c.3g.40gb", 40448),
    ]


def test_mig_mode_that_is_pending(bench: Bench) -> None:
    gpu = only(bench.look(gpu_line(0, "a100-40gb", "mig=0,1")))
    assert gpu.mig_mode == MigMode(current=False, pending=True)
    assert not gpu.mig_enabled


def test_a_driver_that_names_profiles_but_not_mig_devices(bench: Bench) -> None:
    """Then the GPU instance's profile has the name, media extensions included."""
    gpu = only(bench.look(MIG_OF_EACH_KIND, "fail nvmlDeviceGetName 3"))
    assert [one.profile for one in gpu.mig_instances] == ["1g.10gb", "1g.10gb+me", "1c.3g.40gb", "2c.3g.40gb"]
    assert all(one.failure is None for one in gpu.mig_instances)


@pytest.mark.parametrize("refused", ["nvmlDeviceGetGpuInstanceProfileInfo 13", "nvmlDeviceGetGpuInstanceById 4"])
def test_a_driver_that_spells_nothing(bench: Bench, refused: str) -> None:
    """An old driver, or a process without the right to look at GPU instances: the sizes give the name."""
    gpu = only(bench.look(MIG_OF_EACH_KIND, "fail nvmlDeviceGetName 3", f"fail {refused}"))
    assert [one.profile for one in gpu.mig_instances] == ["1g.10gb", "1g.10gb", "1c.3g.40gb", "2c.3g.40gb"]
    assert all(one.failure is None for one in gpu.mig_instances)


@pytest.mark.parametrize(
    "profile",
    [profile for profile in PROFILES.values() if "me" not in profile.name],
    ids=lambda profile: f"{profile.model}-{profile.name}",
)
def test_profiles_from_sizes_are_spelled_as_nvidia_does(profile: Profile) -> None:
    assert profile_from_sizes(profile.slices, profile.memory_mib, MODELS[profile.model].memory_mib) == profile.name


def test_links(bench: Bench) -> None:
    snapshot = bench.look(
        gpu_line(0, "a100-40gb")
        + gpu_line(1, "a100-40gb")
        + gpu_line(2, "a100-40gb", "numa=1")
        + "nvlink 0 1 4\nnvlink 2 1 2\nnvswitch 2 6\ntopo 0 1 single\n"
    )
    assert snapshot.links == (
        Link(uuid(0), uuid(1), 4, PcieLevel.ONE_SWITCH),
        Link(uuid(0), uuid(2), 0, PcieLevel.ACROSS_CPUS),
        Link(uuid(1), uuid(2), 2, PcieLevel.ACROSS_CPUS),
    )
    assert [gpu.nvswitch_links for gpu in snapshot.gpus] == [0, 0, 6]


def test_links_are_named_by_uuid_in_order(bench: Bench) -> None:
    text = gpu_line(0, "rtx3090", "uuid=GPU-b") + gpu_line(1, "rtx3090", "uuid=GPU-a") + "nvlink 0 1 4\n"
    assert bench.look(text).links == (Link("GPU-a", "GPU-b", 4, PcieLevel.SAME_CPU),)


def test_switches_of_a_driver_that_has_no_device_types(bench: Bench) -> None:
    """Before branch 470 a switch is known by not being one of the GPUs."""
    snapshot = bench.look(
        "driver 460.32.03 cuda=11020\n"
        + gpu_line(0, "a100-40gb")
        + gpu_line(1, "a100-40gb")
        + "nvlink 0 1 2\nnvswitch 0 6\nnvswitch 1 6\n"
    )
    assert [link.nvlinks for link in snapshot.links] == [2]
    assert [gpu.nvswitch_links for gpu in snapshot.gpus] == [6, 6]


@pytest.mark.parametrize("level", PcieLevel)
def test_every_pcie_level(bench: Bench, level: PcieLevel) -> None:
    (link,) = bench.look(gpu_line(0) + gpu_line(1) + f"topo 0 1 {level.value}\n").links
    assert link.pcie is level


def test_a_changed_mig_layout_shows_in_the_next_snapshot(bench: Bench) -> None:
    before = bench.look(gpu_line(0, "h100-80gb", "mig=1"))
    changed = bench.node_file.with_name("changed.txt")
    changed.write_text(MIG_OF_EACH_KIND)
    bench.control.append(f"node {changed}")
    after = bench.driver.snapshot()
    assert (len(only(before).mig_instances), len(only(after).mig_instances)) == (0, 4)


def test_a_plugged_gpu_shows_in_the_next_snapshot(bench: Bench) -> None:
    """NVML lists the GPUs that it found when it was initialised: it is opened anew when the PCI bus has changed."""
    assert len(bench.look(gpu_line(0)).gpus) == 1
    assert len(bench.look(gpu_line(0) + gpu_line(1)).gpus) == 2


def plug_in_slowly(bench: Bench) -> None:
    """A second GPU on the bus, which the driver has not taken on yet."""
    assert len(bench.look(gpu_line(0)).gpus) == 1
    write_sysfs(bench.root, gpu_line(0) + gpu_line(1))
    assert len(bench.driver.snapshot().gpus) == 1


def take_on(bench: Bench) -> None:
    """The driver is done with it."""
    both = bench.node_file.with_name("both.txt")
    both.write_text(gpu_line(0) + gpu_line(1))
    bench.control.append(f"node {both}")


def test_a_gpu_that_the_driver_takes_on_later_than_the_bus_shows_it(bench: Bench) -> None:
    plug_in_slowly(bench)
    take_on(bench)
    assert len(bench.driver.snapshot().gpus) == 2


def test_a_gpu_that_the_driver_takes_on_much_later(bench: Bench) -> None:
    plug_in_slowly(bench)
    assert [len(bench.driver.snapshot().gpus) for _ in range(10)] == [1] * 10
    take_on(bench)
    looks = [len(bench.driver.snapshot().gpus) for _ in range(8)]
    assert looks[-1] == 2
    assert looks[0] == 1, "NVML was opened anew at every look"


def test_a_gpu_that_another_driver_has_is_not_waited_for(bench: Bench) -> None:
    plug_in_slowly(bench)
    (address,) = nvidia_devices(bench.root) - {bench.driver.snapshot().gpus[0].pci_address}
    (bench.root / "sys/bus/pci/devices" / address / "driver").symlink_to("../../../bus/pci/drivers/vfio-pci")
    bench.driver.snapshot()
    take_on(bench)
    assert [len(bench.driver.snapshot().gpus) for _ in range(8)] == [1] * 8
