"""What the specifications say, for nodes and flags made here."""

import json
from dataclasses import replace
from typing import Any

import pytest

from deviceplugin.allocation.answer import answer
from deviceplugin.config.model import Config, DeviceIdStrategy, Flags, MigStrategy
from deviceplugin.model.cdi import CLASSES, VENDOR
from deviceplugin.model.node import DriverFile, Snapshot
from deviceplugin.model.offer import Offer
from deviceplugin.model.plan import Health
from deviceplugin.planning.build import build
from deviceplugin.planning.cdi import HOOKS, cdi_specs
from tests.cdi.schema import violations
from tests.planning.nodes import A100, T4, gpu, hidden, mig_uuid, node, plain, uuid

V = "570.133.20"
LIB = "/usr/lib64"
LIBRARIES = (
    DriverFile(f"{LIB}/libcuda.so.{V}", ("libcuda.so", "libcuda.so.1")),
    DriverFile(f"{LIB}/libnvidia-ml.so.{V}", ("libnvidia-ml.so.1",)),
)
FILES = (DriverFile("/usr/bin/nvidia-smi"), *LIBRARIES)
MIG = node(gpu(0, A100, "1g.5gb", "3g.20gb"), gpu(1, A100))


def specs(snapshot: Snapshot, **flags: Any) -> dict[str, Any]:
    """The specifications by class; each is valid."""
    flags.setdefault("device_list_strategies", ("cdi-cri",))
    found = {spec.device_class: json.loads(spec.text) for spec in cdi_specs(snapshot, Flags(**flags))}
    for device_class, spec in found.items():
        assert spec["kind"] == f"{VENDOR}/{device_class}"
        assert violations(spec) == []
    return found


def edits(snapshot: Snapshot, **flags: Any) -> dict[str, Any]:
    common: dict[str, Any] = specs(snapshot, **flags)["gpu"]["containerEdits"]
    return common


def nodes(spec: Any, name: str) -> list[str]:
    (device,) = [one for one in spec["devices"] if one["name"] == name]
    return [one["hostPath"] for one in device["containerEdits"]["deviceNodes"]]


def commands(common: Any) -> list[str]:
    return [next(word for word in hook["args"] if word in HOOKS) for hook in common.get("hooks", ())]


def test_no_strategy_of_cdi_no_specification() -> None:
    assert cdi_specs(plain(2), Flags(device_list_strategies=("envvar", "volume-mounts"))) == ()


def test_every_gpu_and_instance_has_its_uuid_and_its_index() -> None:
    spec = specs(MIG)["gpu"]
    assert [device["name"] for device in spec["devices"]] == [
        *(uuid(0), "0", mig_uuid(0, 0), "0:0", mig_uuid(0, 1), "0:1", uuid(1), "1")
    ]
    assert nodes(spec, "0") == nodes(spec, uuid(0)) == ["/dev/nvidia0"]
    caps = [f"/dev/nvidia-caps/nvidia-cap{number}" for number in (101, 201)]
    assert nodes(spec, "0:1") == nodes(spec, mig_uuid(0, 1)) == ["/dev/nvidia0", *caps]


def test_the_specification_does_not_depend_on_what_the_config_shares_or_names() -> None:
    """A container that restarts gets the names of an old answer (contract A16)."""
    one = cdi_specs(MIG, Flags(device_list_strategies=("cdi-cri",)))
    other = Flags(
        device_list_strategies=("envvar", "cdi-annotations"),
        mig_strategy=MigStrategy.MIXED,
        device_id_strategy=DeviceIdStrategy.INDEX,
        gds_enabled=True,
    )
    assert cdi_specs(MIG, other) == one


def test_what_lacks_a_device_file_is_not_named() -> None:
    missing = replace(MIG, device_files=MIG.device_files - {"nvidia1", "nvidia-caps/nvidia-cap200"})
    names = {device["name"] for device in specs(missing)["gpu"]["devices"]}
    assert names == {uuid(0), "0", mig_uuid(0, 1), "0:1"}
    assert specs(replace(plain(1), device_files=frozenset())) == {}
    assert specs(node(hidden(0))) == {}


@pytest.mark.parametrize("strategy", list(DeviceIdStrategy))
@pytest.mark.parametrize("mig", list(MigStrategy))
def test_every_name_that_allocate_returns_resolves_to_files_that_exist(
    strategy: DeviceIdStrategy, mig: MigStrategy
) -> None:
    extras = {"gdrdrv", "infiniband/uverbs0", "nvidia-caps-imex-channels/channel0"}
    snapshot = node(gpu(0, A100, "1g.5gb", "1g.5gb"), gpu(1, A100, "1g.5gb"))
    gone = {"nvidia1", "nvidia-caps/nvidia-cap201"}
    snapshot = replace(snapshot, device_files=(snapshot.device_files | extras) - gone)
    flags = Flags(
        device_list_strategies=("cdi-cri",),
        mig_strategy=mig,
        device_id_strategy=strategy,
        gdrcopy_enabled=True,
        gds_enabled=True,
        mofed_enabled=True,
        imex_channel_ids=(0,),
    )
    by_name = {
        f"{spec['kind']}={device['name']}": device["containerEdits"]["deviceNodes"]
        for spec in (json.loads(one.text) for one in cdi_specs(snapshot, flags))
        for device in spec["devices"]
    }
    asked = 0
    for resource in build(snapshot, Config(flags=flags)).resources:
        for device in resource.devices:
            if device.health is Health.HEALTHY:
                given = answer(Offer(resource, resource.devices), [device.id], response_id=str)
                assert len(given.cdi_devices) == 4
                paths = [one["path"] for name in given.cdi_devices for one in by_name[name]]
                assert {path.removeprefix("/dev/") for path in paths} <= snapshot.device_files
                asked += 1
    assert asked == 1


@pytest.mark.parametrize("driver_root", ["/", "/run/driver"])
@pytest.mark.parametrize("dev_root", [None, "/", "/run/driver", "/elsewhere"])
@pytest.mark.parametrize("mounted", ["nothing", "files", "files and dev"])
@pytest.mark.parametrize("missing", ["", "/dev/nvidia0", "/run/driver/dev/nvidia0"])
def test_in_every_layout_a_listed_device_resolves_to_files_of_the_host(
    driver_root: str, dev_root: str | None, mounted: str, missing: str
) -> None:
    """The host is made first, then what of it shows in our container, then the plan and the specification by that."""
    driver_has_dev = driver_root != "/" and mounted == "files and dev"
    names = plain(1).device_files
    host = {f"{root}/dev/{name}" for root in ["", *([driver_root] if driver_has_dev else [])] for name in names}
    host.discard(missing)
    show = {root: frozenset(n for n in names if f"{root}/dev/{n}" in host) for root in ("", "/run/driver")}
    seen = show["" if driver_root == "/" else driver_root] if mounted == "files and dev" else None
    snapshot = replace(
        plain(1),
        device_files=show[""],
        driver_root_device_files=seen,
        driver_files=() if mounted == "nothing" else FILES,
    )
    flags: dict[str, Any] = {"nvidia_driver_root": driver_root, "nvidia_dev_root": dev_root}
    spec = specs(snapshot, **flags).get("gpu")
    (unit,) = build(snapshot, Config(flags=Flags(device_list_strategies=("cdi-cri",), **flags))).resources[0].units
    if unit.reason:
        assert "cannot be told" in unit.reason or unit.reason == "/dev/nvidia0 does not exist"
        assert spec is None
    else:
        assert spec is not None
        assert {*nodes(spec, "0"), *nodes(spec, uuid(0))} <= host
        assert {one["hostPath"] for one in spec["containerEdits"]["deviceNodes"]} <= host


def test_a_healthy_gpu_without_a_minor_number_is_not_offered_by_cdi() -> None:
    bare = node(replace(gpu(0, T4), minor=None))
    config = Config(flags=Flags(device_list_strategies=("cdi-cri",)))
    (unit,) = build(bare, config).resources[0].units
    assert "minor number" in unit.reason
    assert build(bare, Config()).resources[0].units[0].reason == ""


def test_a_legacy_mig_uuid_is_no_cdi_name_and_costs_no_other_device_its_own() -> None:
    """Runtimes drop a file with a name that CDI does not allow, and with it every GPU of the node."""
    split = gpu(0, A100, "1g.5gb")
    legacy = f"MIG-{uuid(0)}/7/0"
    old = node(replace(split, mig_instances=(replace(split.mig_instances[0], uuid=legacy),)), gpu(1, A100))
    assert [device["name"] for device in specs(old)["gpu"]["devices"]] == [uuid(0), "0", "0:0", uuid(1), "1"]
    flags = Flags(device_list_strategies=("cdi-cri",), mig_strategy=MigStrategy.MIXED)
    whole, instance = (resource.units[0] for resource in build(old, Config(flags=flags)).resources)
    assert whole.reason == ""
    assert legacy in instance.reason
    assert "deviceIDStrategy" in instance.reason
    for works in (
        replace(flags, device_id_strategy=DeviceIdStrategy.INDEX),
        replace(flags, device_list_strategies=("envvar",)),
    ):
        assert [r.units[0].reason for r in build(old, Config(flags=works)).resources] == ["", ""]


def test_a_problem_with_the_files_makes_every_device_unhealthy_if_names_are_given_out() -> None:
    problem = "/var/run/cdi: Read-only file system"
    by_cdi = build(plain(2), Config(flags=Flags(device_list_strategies=("cdi-cri",))), cdi_problem=problem)
    assert [unit.reason for unit in by_cdi.resources[0].units] == [f"its CDI name would not resolve: {problem}"] * 2
    assert [unit.reason for unit in build(plain(2), Config(), cdi_problem=problem).resources[0].units] == ["", ""]


def test_roots_lead_to_the_host() -> None:
    snapshot = replace(plain(1), driver_files=FILES, cdi_hook="/usr/bin/nvidia-ctk")
    snapshot = replace(snapshot, driver_root_device_files=snapshot.device_files)
    spec = specs(snapshot, nvidia_driver_root="/run/driver/")["gpu"]
    assert nodes(spec, "0") == ["/run/driver/dev/nvidia0"]
    common = spec["containerEdits"]
    assert {one["hostPath"] for one in common["deviceNodes"]} >= {"/run/driver/dev/nvidiactl"}
    assert nodes(specs(snapshot, nvidia_driver_root="/run/driver", nvidia_dev_root="/")["gpu"], "0") == ["/dev/nvidia0"]
    assert {one["path"] for one in common["deviceNodes"]} >= {"/dev/nvidiactl"}
    mounts = {one["containerPath"]: one["hostPath"] for one in common["mounts"]}
    assert mounts == {one.path: f"/run/driver{one.path}" for one in FILES}
    assert {hook["path"] for hook in common["hooks"]} == {"/run/driver/usr/bin/nvidia-ctk"}


def test_hooks_prepare_libraries_by_their_links_and_directories() -> None:
    common = edits(replace(plain(1), driver_files=FILES, cdi_hook="/usr/bin/nvidia-cdi-hook"))
    assert commands(common) == list(HOOKS)
    arguments = {hook["args"][1]: hook["args"][2:] for hook in common["hooks"]}
    assert {hook["args"][0] for hook in common["hooks"]} == {"nvidia-cdi-hook"}
    assert arguments["create-symlinks"] == [
        *("--link", f"libcuda.so.{V}::{LIB}/libcuda.so", "--link", f"libcuda.so.{V}::{LIB}/libcuda.so.1"),
        *("--link", f"libnvidia-ml.so.{V}::{LIB}/libnvidia-ml.so.1"),
    ]
    assert arguments["update-ldcache"] == ["--folder", LIB]
    assert arguments["enable-cuda-compat"] == [f"--host-driver-version={V}"]
    assert common["env"] == [f"NVIDIA_CTK_LIBCUDA_DIR={LIB}", "NVIDIA_VISIBLE_DEVICES=void"]


def test_without_a_hook_program_libraries_are_found_all_the_same() -> None:
    common = edits(replace(plain(1), driver_files=FILES))
    assert "hooks" not in common
    mounts = {one["containerPath"]: one["hostPath"] for one in common["mounts"]}
    cuda, ml = f"{LIB}/libcuda.so.{V}", f"{LIB}/libnvidia-ml.so.{V}"
    assert mounts == {
        "/usr/bin/nvidia-smi": "/usr/bin/nvidia-smi",
        **dict.fromkeys((cuda, f"{LIB}/libcuda.so", f"{LIB}/libcuda.so.1"), cuda),
        **dict.fromkeys((ml, f"{LIB}/libnvidia-ml.so.1"), ml),
        "/usr/local/nvidia/lib64/libcuda.so": cuda,
        "/usr/local/nvidia/lib64/libcuda.so.1": cuda,
        "/usr/local/nvidia/lib64/libnvidia-ml.so.1": ml,
    }


def test_a_given_hook_program_is_trusted_and_single_hooks_can_be_left_out() -> None:
    snapshot = replace(plain(1), driver_files=FILES)
    toolkit = "/opt/toolkit/nvidia-cdi-hook"
    common = edits(snapshot, cdi_hook_path=toolkit, cdi_disable_hooks=("enable-cuda-compat", "chmod"))
    assert commands(common) == [hook for hook in HOOKS if hook != "enable-cuda-compat"]
    assert {hook["path"] for hook in common["hooks"]} == {toolkit}
    assert edits(snapshot, cdi_hook_path=toolkit, cdi_disable_hooks=("all",)) == edits(snapshot)


def test_without_driver_files_there_are_neither_mounts_nor_a_library_directory_and_a_warning() -> None:
    common = edits(plain(1))
    assert common.keys() == {"env", "deviceNodes"}
    assert common["env"] == ["NVIDIA_VISIBLE_DEVICES=void"]
    config = Config(flags=Flags(device_list_strategies=("cdi-cri",)))
    assert [
        one for one in build(plain(1), config).warnings if "no file of the driver is found below /driver-root" in one
    ]


def test_extras_are_classes_of_their_own() -> None:
    extras = {"gdrdrv", "nvidia-fs1", "nvidia-fs0", "infiniband/rdma_cm", "nvidia-caps-imex-channels/channel0"}
    snapshot = plain(1)
    files = (DriverFile("/etc/cufile.json"), *FILES)
    snapshot = replace(snapshot, device_files=snapshot.device_files | extras, driver_files=files)
    found = specs(snapshot)
    assert found.keys() == set(CLASSES)
    assert nodes(found["gds"], "all") == ["/dev/nvidia-fs0", "/dev/nvidia-fs1"]
    (mount,) = found["gds"]["devices"][0]["containerEdits"]["mounts"]
    assert mount["containerPath"] == "/etc/cufile.json"
    assert nodes(found["mofed"], "all") == ["/dev/infiniband/rdma_cm"]
    assert nodes(found["gdrcopy"], "all") == ["/dev/gdrdrv"]
    assert nodes(found["imex-channel"], "0") == ["/dev/nvidia-caps-imex-channels/channel0"]
    assert "/etc/cufile.json" not in {one["containerPath"] for one in found["gpu"]["containerEdits"]["mounts"]}
