"""What a node lacks for the config's strategies, and what that does to its devices."""

from dataclasses import replace
from typing import Any

import pytest

from deviceplugin.config.model import Config, Flags, MigStrategy
from deviceplugin.model.delivery import Delivery
from deviceplugin.model.node import Snapshot
from deviceplugin.model.plan import Plan
from deviceplugin.planning.build import build
from tests.planning.nodes import A100, LOST, T4, gpu, mig_uuid, node, plain, uuid

CDI: dict[str, Any] = {"device_list_strategies": ("cdi-cri",)}
SPECS: dict[str, Any] = {"pass_device_specs": True}
MIXED: dict[str, Any] = {"mig_strategy": MigStrategy.MIXED}


def plan(snapshot: Snapshot, **flags: Any) -> Plan:
    return build(snapshot, Config(flags=Flags(**flags)))


def without(snapshot: Snapshot, *names: str) -> Snapshot:
    return replace(snapshot, device_files=snapshot.device_files - set(names))


def reasons(planned: Plan) -> dict[str, str]:
    return {unit.uuid: unit.reason for resource in planned.resources for unit in resource.units if unit.reason}


def delivered(planned: Plan) -> Delivery:
    return planned.resources[0].delivery


def test_files_follow_the_minor_and_a_mig_instance_has_three() -> None:
    one = replace(gpu(0, A100, "1g.5gb"), minor=5)
    (unit,) = plan(node(one), **MIXED).resources[0].units
    assert unit.device_files == ("nvidia5", "nvidia-caps/nvidia-cap100", "nvidia-caps/nvidia-cap200")


def test_only_control_files_that_exist_come_along() -> None:
    snapshot = without(plain(1), "nvidia-modeset", "nvidia-uvm-tools")
    assert delivered(plan(snapshot, **SPECS)).common_files == ("nvidiactl", "nvidia-uvm")


def test_the_dev_root_is_the_driver_root_unless_set() -> None:
    assert delivered(plan(plain(1))).device_root is None
    assert delivered(plan(plain(1), **SPECS, nvidia_driver_root="/drv")).device_root == "/drv"
    roots = {"nvidia_driver_root": "/drv", "nvidia_dev_root": "/"}
    assert delivered(plan(plain(1), **SPECS, **roots)).device_root == "/"


def test_a_missing_gpu_file_is_passed_on_with_a_warning_but_makes_a_cdi_name_useless() -> None:
    snapshot = without(plain(2), "nvidia1")
    by_file = plan(snapshot, **SPECS)
    assert reasons(by_file) == {}
    assert [one for one in by_file.warnings if "/dev/nvidia1 does not exist in this container" in one]
    assert reasons(plan(snapshot, **CDI)) == {uuid(1): "/dev/nvidia1 does not exist"}
    assert reasons(plan(snapshot)) == {}


@pytest.mark.parametrize("flags", [SPECS, CDI])
def test_a_mig_instance_whose_capability_file_is_missing_is_unhealthy_alone(flags: dict[str, Any]) -> None:
    snapshot = without(node(gpu(0, A100, "1g.5gb", "1g.5gb")), "nvidia-caps/nvidia-cap201")
    planned = plan(snapshot, **MIXED, **flags)
    assert reasons(planned) == {mig_uuid(0, 1): "/dev/nvidia-caps/nvidia-cap201 does not exist"}
    assert planned.layout_problems == ()


def test_a_mig_instance_without_capabilities_is_a_problem_in_nvidias_words() -> None:
    whole = gpu(0, A100, "1g.5gb")
    bare = node(replace(whole, mig_instances=(replace(whole.mig_instances[0], capabilities=None),)))
    planned = plan(bare, **MIXED)
    path = "missing MIG GPU instance capability path: /proc/driver/nvidia/capabilities/gpu0/mig/gi1/access"
    assert [problem for problem in planned.layout_problems if path in problem]
    assert path in reasons(planned)[mig_uuid(0, 0)]
    assert plan(bare).layout_problems == (), "with migStrategy none nobody needs them"
    lost = replace(bare, gpus=(replace(bare.gpus[0], failure=LOST),))
    assert plan(lost, **MIXED).layout_problems == (), "a lost GPU hides them"


def test_an_absent_imex_channel_is_left_out_with_a_warning() -> None:
    planned = plan(plain(1), imex_channel_ids=(0,))
    assert delivered(planned).imex_channels == ()
    assert any("channel0 does not exist" in warning for warning in planned.warnings)
    assert planned.layout_problems == ()


def test_a_required_channel_that_is_absent_stops_everything() -> None:
    planned = plan(plain(2), imex_channel_ids=(0,), imex_required=True)
    assert planned.layout_problems[0].startswith("requested IMEX channel channel0 does not exist")
    assert reasons(planned).keys() == {uuid(0), uuid(1)}


def test_a_channel_that_exists_comes_with_its_file() -> None:
    snapshot = plain(1)
    channel = "nvidia-caps-imex-channels/channel0"
    snapshot = replace(snapshot, device_files=snapshot.device_files | {channel})
    planned = plan(snapshot, imex_channel_ids=(0,), imex_required=True)
    assert delivered(planned).imex_channels == (0,)
    assert channel in delivered(planned).common_files
    assert (planned.warnings, planned.layout_problems, reasons(planned)) == ((), (), {})


def test_a_cdi_extra_needs_its_device_files() -> None:
    flags = {"gds_enabled": True, "mofed_enabled": True, "gdrcopy_enabled": True}
    snapshot = plain(1, T4)
    snapshot = replace(snapshot, device_files=snapshot.device_files | {"nvidia-fs3", "infiniband/uverbs0"})
    planned = plan(snapshot, **CDI, **flags)
    assert delivered(planned).extras == ("gdrcopy", "gds", "mofed")
    assert delivered(planned).cdi_extras == ("gds", "mofed")
    assert [warning for warning in planned.warnings if warning.startswith("gdrcopyEnabled: ")]
    assert plan(snapshot, **flags).warnings == (), "a variable needs no file"
