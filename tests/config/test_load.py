"""Good files: what each key becomes, defaults, and which of flag, variable and file counts."""

from pathlib import Path

import pytest

from deviceplugin.config.load import load_config
from deviceplugin.config.model import (
    Config,
    DeviceFilter,
    DeviceIdStrategy,
    Flags,
    MigStrategy,
    Origin,
    ResourcePattern,
    SelectAll,
    SelectCount,
    SelectIndex,
    SelectModel,
    Selector,
    SelectPci,
    SelectRest,
    SelectUuid,
    SharingEntry,
)
from deviceplugin.config.schema import MAX_REPLICAS
from deviceplugin.config.settings import parse_settings
from deviceplugin.model.plan import AllocationPolicy, Mode
from tests.config.files import entry, write

UUID = "8a56a4bc-e184-a047-2620-be19fdf913d5"


def load(directory: Path, text: str) -> Config:
    return load_config(write(directory, text))


def the_entry(directory: Path, lines: str, kind: str = "timeSlicing") -> SharingEntry:
    config = load(directory, entry(lines, kind))
    sharing = config.mps if kind == "mps" else config.time_slicing
    assert sharing is not None
    (only,) = sharing.entries
    return only


def test_without_a_file_everything_is_default() -> None:
    config = load_config(None)
    assert config == Config(flags=Flags(nvidia_dev_root="/"))
    assert config.flags.mig_strategy is MigStrategy.NONE
    assert config.flags.fail_on_init_error


@pytest.mark.parametrize("text", ["version: v1", "{}", "version:\nflags:\nsharing:\nresources:\nimex:\ndevices:\n"])
def test_a_file_that_sets_nothing_is_the_default_too(tmp_path: Path, text: str) -> None:
    config = load(tmp_path, text)
    assert (config.flags, config.time_slicing, config.mps) == (Flags(nvidia_dev_root="/"), None, None)
    assert config.text == text
    assert config.source == str(tmp_path / "config.yaml")


def test_every_key_of_nvidias_file_is_understood(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        """
        version: v1
        flags:
          migStrategy: mixed
          failOnInitError: false
          mpsRoot: /run/nvidia/mps
          nvidiaDriverRoot: /run/nvidia/driver
          nvidiaDevRoot: /run/nvidia/dev
          gdrcopyEnabled: false
          gdsEnabled: null
          mofedEnabled: false
          useNodeFeatureAPI: true
          deviceDiscoveryStrategy: nvml
          plugin:
            passDeviceSpecs: false
            deviceListStrategy: envvar
            deviceIDStrategy: index
            cdiAnnotationPrefix: cdi.k8s.io/
            nvidiaCTKPath: /usr/bin/nvidia-ctk
            containerDriverRoot: /host
            sharedDevicesAllocationPolicy: packed
          gfd:
            oneshot: true
            noTimestamp: false
            sleepInterval: 1h30m
            outputFile: /etc/features.d/gfd
            machineTypeFile: /sys/class/dmi/id/product_name
        resources:
          gpus:
          - {pattern: "*T4*", name: t4}
          - {pattern: "*", name: example.com/gpu}
          mig:
          - {pattern: 1g.*, name: small}
        sharing:
          timeSlicing:
            renameByDefault: true
            failRequestsGreaterThanOne: true
            resources:
            - {name: nvidia.com/gpu, rename: nvidia.com/cheap, devices: all, replicas: 4}
          mps:
            failRequestsGreaterThanOne: false
            resources:
            - {name: mig-1g.5gb, devices: [0:1], replicas: 2}
        imex:
          channelIDs: []
          required: false
        """.replace("\n        ", "\n"),
    )
    file = str(tmp_path / "config.yaml")
    assert config.flags == Flags(
        mig_strategy=MigStrategy.MIXED,
        fail_on_init_error=False,
        nvidia_driver_root="/run/nvidia/driver",
        nvidia_dev_root="/run/nvidia/dev",
        device_id_strategy=DeviceIdStrategy.INDEX,
        cdi_hook_path="/usr/bin/nvidia-ctk",
        container_driver_root="/host",
        mps_root="/run/nvidia/mps",
        shared_devices_allocation_policy=AllocationPolicy.PACKED,
        device_discovery_strategy="nvml",
    )
    assert config.gpu_patterns == (
        ResourcePattern("*T4*", "nvidia.com/t4", Origin("resources.gpus[0]", file, 30)),
        ResourcePattern("*", "example.com/gpu", Origin("resources.gpus[1]", file, 31)),
    )
    assert [one.name for one in config.mig_patterns] == ["nvidia.com/small"]
    assert config.time_slicing is not None
    assert config.mps is not None
    assert (config.time_slicing.rename_by_default, config.time_slicing.refuse_more_than_one) == (True, True)
    assert (config.mps.rename_by_default, config.mps.refuse_more_than_one) == (False, False)
    assert config.mps.origin == Origin("sharing.mps", file, 40)
    assert config.time_slicing.entries == (
        SharingEntry(
            mode=Mode.TIME_SLICING,
            name="nvidia.com/gpu",
            replicas=4,
            origin=Origin("sharing.timeSlicing.resources[0]", file, 39),
            rename="nvidia.com/cheap",
        ),
    )
    assert config.mps.entries[0].selectors == (SelectIndex(0, 1),)
    assert config.warnings == ()


def test_the_defaults_of_sharing_differ_by_kind(tmp_path: Path) -> None:
    time_slicing = load(tmp_path, entry("name: gpu\nreplicas: 2")).time_slicing
    mps = load(tmp_path, entry("name: gpu\nreplicas: 1", "mps")).mps
    assert time_slicing is not None
    assert mps is not None
    assert not time_slicing.refuse_more_than_one
    assert mps.refuse_more_than_one
    assert mps.entries[0].selectors == (SelectAll(),)
    assert mps.entries[0].allocation_policy is None


@pytest.mark.parametrize(
    ("devices", "selectors"),
    [
        ("all", [SelectAll()]),
        ("rest", [SelectRest()]),
        ("null", [SelectAll()]),
        ("2", [SelectCount(2)]),
        ("[2]", [SelectIndex(2)]),
        ('["2"]', [SelectIndex(2)]),
        ("1:0", [SelectIndex(1, 0)]),
        ("[1:0, 1:1, 2]", [SelectIndex(1, 0), SelectIndex(1, 1), SelectIndex(2)]),
        ("\n      - 1:0\n      - 0x2", [SelectIndex(1, 0), SelectIndex(2)]),
        (f"GPU-{UUID}", [SelectUuid(f"GPU-{UUID}")]),
        (f"[GPU-{UUID.upper()}]", [SelectUuid(f"GPU-{UUID}")]),
        (f"[MIG-{UUID}]", [SelectUuid(f"MIG-{UUID}")]),
        (f"[MIG-GPU-{UUID}/7/0]", [SelectUuid(f"MIG-GPU-{UUID}/7/0")]),
        ("0000:3B:00.0", [SelectPci("0000:3b:00.0")]),
        ("[3b:00.0, 00000000:3C:00.0]", [SelectPci("0000:3b:00.0"), SelectPci("0000:3c:00.0")]),
        ("[00010000:3c:00.0]", [SelectPci("10000:3c:00.0")]),
        ("10:00.0", [SelectPci("0000:10:00.0")]),
        ("model:*T4*", [SelectModel("*T4*")]),
        ("['model: NVIDIA A100 80GB*']", [SelectModel("NVIDIA A100 80GB*")]),
        ("[0, 1, 0]", [SelectIndex(0), SelectIndex(1)]),
    ],
)
def test_devices(tmp_path: Path, devices: str, selectors: list[Selector]) -> None:
    assert the_entry(tmp_path, f"name: gpu\nreplicas: 2\ndevices: {devices}").selectors == tuple(selectors)


def test_which_gpus_are_managed(tmp_path: Path) -> None:
    config = load(tmp_path, f"devices:\n  include: [0, GPU-{UUID}, 'model:*T4*']\n  exclude: 3b:00.0\n")
    assert config.devices == DeviceFilter(
        (SelectIndex(0), SelectUuid(f"GPU-{UUID}"), SelectModel("*T4*")), (SelectPci("0000:3b:00.0"),)
    )
    assert load(tmp_path, "devices: {exclude: []}").devices == DeviceFilter()


@pytest.mark.parametrize(
    ("limit", "mib", "percent"),
    [
        ("8Gi", 8192, None),
        ("4096Mi", 4096, None),
        ("1.5Gi", 1536, None),
        ("8G", 7629, None),
        ("1Ti", 1024**2, None),
        ("2097153Ki", 2048, None),
        ("25%", None, 25),
        ("null", None, None),
    ],
)
def test_memory_limits_are_whole_mebibytes_rounded_down_or_percentages(
    tmp_path: Path, limit: str, mib: int | None, percent: int | None
) -> None:
    found = the_entry(tmp_path, f"name: gpu\nreplicas: 2\nmemoryLimit: {limit}\nactiveThreadPercentage: 100", "mps")
    assert (found.memory_limit_mib, found.memory_limit_percent) == (mib, percent)
    assert found.active_thread_percentage == 100


def test_replicas_reach_as_far_as_one_message_to_the_kubelet(tmp_path: Path) -> None:
    """Contract R10: the largest count that is taken fits for one device; a little more would not."""
    found = the_entry(tmp_path, f"name: gpu\nreplicas: {MAX_REPLICAS}\nallocationPolicy: spread")
    assert found.replicas == MAX_REPLICAS
    assert found.allocation_policy is AllocationPolicy.SPREAD

    def list_size(replicas: int) -> int:
        return sum(2 + 2 + len(f"GPU-{UUID}::{number}") + 2 + len("Healthy") for number in range(replicas))

    assert list_size(MAX_REPLICAS) <= 4 * 1024 * 1024 < list_size(MAX_REPLICAS + 200)


def test_a_name_may_be_as_long_as_the_kubelet_takes(tmp_path: Path) -> None:
    assert the_entry(tmp_path, f"name: {'x' * 63}\nreplicas: 2").name == f"nvidia.com/{'x' * 63}"
    assert the_entry(tmp_path, "name: k8s.io/X_1\nreplicas: 2").name == "k8s.io/X_1"


def test_several_kinds_of_sharing_and_several_entries_of_one_resource_stand_together(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        entry("name: gpu\nreplicas: 2\ndevices: [0]")
        + "    - name: gpu\n      replicas: 3\n      devices: rest\n"
        + "  mps:\n    resources:\n    - {name: gpu, replicas: 4, devices: [1]}\n",
    )
    assert config.time_slicing is not None
    assert [one.replicas for one in config.time_slicing.entries] == [2, 3]


def test_json_is_read_too(tmp_path: Path) -> None:
    config = load(tmp_path, '{\n\t"version": "v1",\n\t"flags": {"plugin": {"deviceIDStrategy": "index"}}\n}\n')
    assert config.flags.device_id_strategy is DeviceIdStrategy.INDEX


def test_a_flag_beats_a_variable_and_a_variable_beats_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, "flags: {migStrategy: mixed, nvidiaDriverRoot: /file, failOnInitError: false}\n")

    def flags(arguments: str, **environment: str) -> Flags:
        return load_config(path, parse_settings(arguments.split(), environment).overrides).flags

    assert flags("").mig_strategy is MigStrategy.MIXED
    assert flags("", MIG_STRATEGY="single").mig_strategy is MigStrategy.SINGLE
    assert flags("--mig-strategy=none", MIG_STRATEGY="single").mig_strategy is MigStrategy.NONE
    assert flags("", MIG_STRATEGY="none").mig_strategy is MigStrategy.NONE, "the default, said aloud, beats the file"
    assert flags("", MIG_STRATEGY="").mig_strategy is MigStrategy.MIXED, "an empty variable counts as unset"
    assert flags("", FAIL_ON_INIT_ERROR="T").fail_on_init_error
    assert flags("", NVIDIA_DRIVER_ROOT="/env").nvidia_driver_root == "/env"
    assert flags("", NVIDIA_DRIVER_ROOT="/env").nvidia_dev_root == "/env", "unset, it is the driver root"
    assert flags("--dev-root=/dev-root").nvidia_dev_root == "/dev-root"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            entry("name: gpu\nreplicas: 2\ndevices: [6, '6', 7]"),
            "config.yaml:8: sharing.timeSlicing.resources[0].devices[1]: found 6 a second time (first at [0]), "
            "expected each device once; is another one meant?",
        ),
        (
            "devices:\n  exclude:\n  - 0000:3B:00.0\n  - 3b:00.0\n",
            "config.yaml:4: devices.exclude[1]: found 3b:00.0 a second time (first at [0]), expected each device once; "
            "is another one meant?",
        ),
        (
            entry("name: gpu\nreplicas: 49", "mps"),
            "config.yaml:7: sharing.mps.resources[0].replicas: found the number 49, expected a whole number from 1 to "
            "48 (MPS serves no more clients on one GPU: a GPU that this entry takes is left out)",
        ),
    ],
)
def test_what_makes_no_sense_but_does_no_harm_is_a_warning(tmp_path: Path, text: str, said: str) -> None:
    assert [warning.replace(f"{tmp_path}/", "") for warning in load(tmp_path, text).warnings] == [said]


def test_what_can_be_served_is_no_warning(tmp_path: Path) -> None:
    assert load(tmp_path, entry("name: gpu\nreplicas: 48\ndevices: [6, '6:0', 7]", "mps")).warnings == ()
