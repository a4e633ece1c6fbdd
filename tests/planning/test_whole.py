"""Whole GPUs: the filter, the patterns, what a container is told, and GPUs that fail."""

from dataclasses import replace

from deviceplugin.config.model import DeviceFilter, DeviceIdStrategy, SelectIndex, SelectModel, SelectPci, SelectUuid
from deviceplugin.model.health import HealthReport
from deviceplugin.model.plan import Health, LeftOut, Mode
from deviceplugin.planning.build import build
from tests.planning.nodes import A100, LOST, T4, V100, config, counts, entry, gpu, hidden, node, plain, uuid


def test_without_a_config_every_gpu_is_whole_under_nvidias_name() -> None:
    plan = build(plain(2), config())
    (resource,) = plan.resources
    assert (resource.name, resource.mode, resource.origin) == ("nvidia.com/gpu", Mode.EXCLUSIVE, "default")
    assert [device.id for device in resource.devices] == [uuid(0), uuid(1)]
    assert not resource.refuse_more_than_one
    assert (plan.left_out, plan.warnings, plan.layout_problems) == ((), (), ())


def test_no_gpu_is_no_resource() -> None:
    assert build(node(), config(entry(4))).resources == ()


def test_exclude_comes_before_sharing() -> None:  # reports E2
    plan = build(plain(4), config(entry(4), devices=DeviceFilter(exclude=(SelectIndex(3),))))
    assert counts(plan) == {"nvidia.com/gpu": 12}
    assert plan.left_out == (LeftOut(f"GPU 3 ({uuid(3)}, {T4})", uuid(3), "devices.exclude names it (index 3)"),)


def test_include_by_each_selector() -> None:
    snapshot = node(gpu(0, V100), gpu(1, T4), gpu(2, A100), gpu(3, T4))
    include = (SelectModel("*V100*"), SelectUuid(uuid(1)), SelectPci("0000:12:00.0"))
    plan = build(snapshot, config(devices=DeviceFilter(include=include)))
    assert [unit.gpu_index for unit in plan.resources[0].units] == [0, 1, 2]
    assert [one.reason for one in plan.left_out] == ["devices.include does not name it"]


def test_a_filter_that_matches_nothing_warns() -> None:
    plan = build(plain(1), config(devices=DeviceFilter(exclude=(SelectIndex(7),))))
    assert plan.warnings == ("devices.exclude: index 7 matches nothing on this node",)


def test_a_display_card_is_left_out_and_indices_stay() -> None:  # golden 117
    plan = build(node(gpu(0, "NVIDIA DGX Display"), gpu(1), gpu(2, "DGX Display"), gpu(3)), config())
    assert [unit.gpu_index for unit in plan.resources[0].units] == [1, 3]
    assert [one.uuid for one in plan.left_out] == [uuid(0), uuid(2)]


def test_patterns_are_anchored_case_sensitive_and_the_first_match_wins() -> None:  # reports E1
    snapshot = node(gpu(0, "NVIDIA GeForce RTX 3080"), gpu(1, "NVIDIA GeForce RTX 3080 Ti"), gpu(2, T4))
    patterns = (("*3080", "nvidia.com/rtx3080"), ("*RTX*", "nvidia.com/rtx"), ("*t4", "nvidia.com/t4"))
    plan = build(snapshot, config(gpus=patterns))
    assert counts(plan) == {"nvidia.com/gpu": 1, "nvidia.com/rtx": 1, "nvidia.com/rtx3080": 1}
    assert plan.resources[2].origin == "resources.gpus[0]"
    assert plan.warnings == ("config.yaml:5: resources.gpus[2]: pattern '*t4' matches no GPU of this node",)


def test_a_glob_knows_only_star_and_question_mark() -> None:
    snapshot = node(gpu(0, "NVIDIA TITAN X (Pascal)"), gpu(1, "NVIDIA TITAN X"))
    plan = build(snapshot, config(gpus=(("NVIDIA TITAN ? (Pascal)", "nvidia.com/pascal"),)))
    assert counts(plan) == {"nvidia.com/gpu": 1, "nvidia.com/pascal": 1}


def test_what_a_container_is_told_follows_the_id_strategy() -> None:
    assert build(plain(1), config()).resources[0].units[0].visible_id == uuid(0)
    by_index = build(plain(2), config(ids=DeviceIdStrategy.INDEX)).resources[0]
    assert [unit.visible_id for unit in by_index.units] == ["0", "1"]
    assert [device.id for device in by_index.devices] == [uuid(0), uuid(1)]


def test_a_failed_gpu_is_unhealthy_in_its_resource() -> None:  # reports H5
    snapshot = node(*(gpu(index) for index in range(7)), replace(gpu(7), failure=LOST))
    (resource,) = build(snapshot, config()).resources
    assert [device.health for device in resource.devices] == [Health.HEALTHY] * 7 + [Health.UNHEALTHY]
    assert resource.devices[7].reason == "nvmlDeviceGetHandleByIndex_v2: GPU is lost (NVML 15)"


def test_every_share_of_a_bad_gpu_is_unhealthy_and_no_other() -> None:  # reports H3
    (resource,) = build(plain(2), config(entry(4)), HealthReport({uuid(0): "Xid 79"})).resources
    assert [device.reason for device in resource.devices] == ["Xid 79"] * 4 + [""] * 4


def test_a_gpu_that_hides_its_uuid_is_left_out() -> None:  # golden 013
    plan = build(node(gpu(0), hidden(1), gpu(2)), config())
    assert counts(plan) == {"nvidia.com/gpu": 2}
    (left_out,) = plan.left_out
    assert left_out.what == "GPU 1"
    assert "GPU is lost" in left_out.reason


def test_gpus_with_one_minor_number_are_not_given_out() -> None:  # reports K3
    snapshot = node(gpu(0), replace(gpu(1), minor=0), gpu(2))
    (resource,) = build(snapshot, config()).resources
    assert [device.health for device in resource.devices] == [Health.UNHEALTHY, Health.UNHEALTHY, Health.HEALTHY]
    assert "/dev/nvidia0" in resource.devices[0].reason


def test_devices_carry_their_numa_node_or_none() -> None:
    (resource,) = build(node(gpu(0, numa=1), gpu(1, numa=None)), config()).resources
    assert [device.numa_node for device in resource.devices] == [1, None]
