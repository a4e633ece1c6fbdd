"""migStrategy none, single and mixed on the layouts that were recorded (golden 040 to 078) and reported (G4)."""

from dataclasses import replace

import pytest

from deviceplugin.config.model import DeviceFilter, DeviceIdStrategy, MigStrategy, SelectIndex
from deviceplugin.errors import ConfigError
from deviceplugin.model.health import HealthReport
from deviceplugin.model.node import MigMode
from deviceplugin.model.plan import Health, Mode
from deviceplugin.planning.build import build
from tests.planning.nodes import A100, LOST, OFF, ON, T4, config, counts, entry, gpu, mig_uuid, node, plain, uuid

NONE, SINGLE, MIXED = MigStrategy.NONE, MigStrategy.SINGLE, MigStrategy.MIXED
MPS = Mode.MPS


def test_none_offers_a_mig_gpu_whole_and_warns() -> None:  # golden 040, 068
    plan = build(node(gpu(0, A100, *["1g.5gb"] * 7)), config(strategy=NONE))
    assert [device.id for device in plan.resources[0].devices] == [uuid(0)]
    assert plan.left_out == ()
    (warning,) = plan.warnings
    assert "MIG is on, with 7 instances" in warning


def test_none_does_not_offer_a_gpu_one_of_whose_instances_ails() -> None:
    """A container gets the GPU with every instance on it; NVIDIA's plugin takes such an Xid for the GPU's too."""
    snapshot = node(gpu(0, A100, *["1g.5gb"] * 7), gpu(1, A100, *["1g.5gb"] * 7))
    plan = build(snapshot, config(strategy=NONE), HealthReport({mig_uuid(0, 3): "Xid 48"}))
    assert {unit.uuid: unit.reason for unit in plan.resources[0].units} == {
        uuid(0): f"MIG instance 0:3 ({mig_uuid(0, 3)}, 1g.5gb): Xid 48",
        uuid(1): "",
    }


def test_mixed_names_each_profile() -> None:  # golden 047, 050, 052
    split = gpu(1, A100, "3g.20gb", "1g.10gb+me", "1g.23gb-me", "1g.23gb+me.all", "1g.5gb", "1g.5gb", numa=1)
    plan = build(node(gpu(0), split), config(strategy=MIXED))
    assert counts(plan) == {
        "nvidia.com/gpu": 1,
        "nvidia.com/mig-1g.10gb.me": 1,
        "nvidia.com/mig-1g.23gb-me": 1,
        "nvidia.com/mig-1g.23gb.me.all": 1,
        "nvidia.com/mig-1g.5gb": 2,
        "nvidia.com/mig-3g.20gb": 1,
    }
    unit = plan.resources[4].units[1]
    assert (unit.uuid, unit.gpu_uuid, unit.profile, unit.numa_node) == (mig_uuid(1, 5), uuid(1), "1g.5gb", 1)


def test_the_layout_of_mig_parted_100() -> None:  # reports G4
    gpus = (gpu(index, A100, *(("4g.20gb", "3g.20gb") if index in (1, 2) else ())) for index in range(8))
    plan = build(node(*gpus), config(strategy=MIXED))
    assert counts(plan) == {"nvidia.com/gpu": 6, "nvidia.com/mig-3g.20gb": 2, "nvidia.com/mig-4g.20gb": 2}


def test_index_ids_of_instances() -> None:
    plan = build(node(gpu(2, A100, "1g.5gb", "1g.5gb")), config(strategy=MIXED, ids=DeviceIdStrategy.INDEX))
    assert [unit.visible_id for unit in plan.resources[0].units] == ["2:0", "2:1"]


def test_legacy_uuids_are_ids_as_they_are() -> None:  # golden 062
    split = gpu(0, A100, "3g.20gb")
    legacy = replace(split.mig_instances[0], uuid=f"MIG-{uuid(0)}/1/0")
    plan = build(node(replace(split, mig_instances=(legacy,))), config(strategy=MIXED))
    assert [device.id for device in plan.resources[0].devices] == [f"MIG-{uuid(0)}/1/0"]


def test_mixed_leaves_out_an_empty_mig_gpu() -> None:  # golden 048
    plan = build(node(gpu(0), gpu(1, mig=ON)), config(strategy=MIXED))
    assert counts(plan) == {"nvidia.com/gpu": 1}
    assert [one.reason for one in plan.left_out] == ["MIG is on, but device 1 has no MIG devices configured"]
    assert plan.layout_problems == ()


def test_compute_instances_that_do_not_fill_are_left_out() -> None:  # golden 055
    plan = build(node(gpu(0, A100, "1c.3g.20gb", "1c.3g.20gb", "1g.5gb")), config(strategy=MIXED))
    assert counts(plan) == {"nvidia.com/mig-1g.5gb": 1}
    assert [one.uuid for one in plan.left_out] == [mig_uuid(0, 0), mig_uuid(0, 1)]


def test_single_offers_uniform_instances_as_gpus() -> None:  # golden 058
    snapshot = node(gpu(0, A100, "2g.10gb", "2g.10gb"), gpu(1, A100, "2g.10gb"))
    plan = build(snapshot, config(entry(2), strategy=SINGLE))
    assert [device.id for device in plan.resources[0].devices][:2] == [f"{mig_uuid(0, 0)}::0", f"{mig_uuid(0, 0)}::1"]
    assert counts(plan) == {"nvidia.com/gpu": 6}


def test_single_without_mig_is_whole_gpus() -> None:  # golden 045
    assert counts(build(plain(2), config(strategy=SINGLE))) == {"nvidia.com/gpu": 2}


@pytest.mark.parametrize(
    ("profiles", "phrase"),
    [
        ([("3g.20gb", "2g.10gb")], "more than one MIG device type present on node"),  # golden 042
        ([("1g.10gb", "1g.10gb+me")], "more than one MIG device type present on node"),  # golden 065
        (
            [("7g.40gb",), ()],  # golden 043
            "all devices on the node must be configured with the same migEnabled value",
        ),
    ],
)
def test_single_on_a_node_that_is_not_uniform(profiles: list[tuple[str, ...]], phrase: str) -> None:
    snapshot = node(*(gpu(index, A100, *own) for index, own in enumerate(profiles)))
    plan = build(snapshot, config(strategy=SINGLE))
    assert plan.resources == ()
    (problem,) = plan.layout_problems
    assert problem.startswith("nvidia.com/gpu: ")
    assert phrase in problem
    assert len(plan.left_out) == sum(max(1, len(own)) for own in profiles)
    assert all(phrase in one.reason for one in plan.left_out)


def test_single_serves_the_rest_beside_an_empty_mig_gpu() -> None:
    plan = build(node(gpu(0, A100, "7g.40gb"), gpu(1, mig=ON)), config(strategy=SINGLE))
    assert counts(plan) == {"nvidia.com/gpu": 1}
    (problem,) = plan.layout_problems
    assert "device 1 has no MIG devices configured" in problem


def test_single_with_an_empty_mig_gpu_beside_whole_ones_is_not_uniform() -> None:
    plan = build(node(gpu(0), gpu(1, mig=ON)), config(strategy=SINGLE))
    assert plan.resources == ()
    assert any("same migEnabled value" in problem for problem in plan.layout_problems)


def test_single_judges_only_what_shares_a_name() -> None:
    snapshot = node(gpu(0, A100, "7g.40gb"), gpu(1, T4))
    plan = build(snapshot, config(strategy=SINGLE, gpus=[("*T4", "nvidia.com/t4")]))
    assert counts(plan) == {"nvidia.com/gpu": 1, "nvidia.com/t4": 1}
    assert plan.layout_problems == ()


def test_a_lost_gpu_of_unknown_mig_mode_does_not_break_single() -> None:
    lost = replace(gpu(1, T4), mig_mode=None, failure=LOST)
    plan = build(node(gpu(0, A100, "7g.40gb"), lost), config(strategy=SINGLE))
    assert counts(plan) == {"nvidia.com/gpu": 1}
    assert plan.layout_problems == ()
    assert "GPU is lost" in plan.left_out[0].reason


@pytest.mark.parametrize("strategy", [SINGLE, MIXED])
def test_a_mig_gpu_whose_instances_cannot_be_listed_is_left_out_alone(strategy: MigStrategy) -> None:
    unreadable = replace(gpu(1, mig=ON), failure=LOST)
    plan = build(node(gpu(0, A100, "7g.40gb"), unreadable), config(strategy=strategy))
    assert sum(counts(plan).values()) == 1
    assert plan.layout_problems == ()
    assert "its MIG instances are not known: nvmlDeviceGetHandleByIndex_v2" in plan.left_out[0].reason


def test_an_instance_of_unknown_profile_is_left_out() -> None:
    split = gpu(0, A100, "1g.5gb", "1g.5gb")
    dim = replace(split.mig_instances[1], profile=None, failure=LOST)
    plan = build(node(replace(split, mig_instances=(split.mig_instances[0], dim))), config(strategy=MIXED))
    assert counts(plan) == {"nvidia.com/mig-1g.5gb": 1}
    assert "its MIG profile is not known: nvmlDevice" in plan.left_out[0].reason


def test_half_states_show_both_facts() -> None:  # reports G4
    turning_on = gpu(0, mig=MigMode(current=False, pending=True))
    turning_off = replace(gpu(1, A100, "7g.40gb"), mig_mode=MigMode(current=True, pending=False))
    plan = build(node(turning_on, turning_off), config(strategy=MIXED))
    assert counts(plan) == {"nvidia.com/gpu": 1, "nvidia.com/mig-7g.40gb": 1}
    assert "MIG is off now and will be on after its next reset" in plan.warnings[0]
    assert "MIG is on now and will be off after its next reset" in plan.warnings[1]


def test_a_verdict_reaches_everything_on_a_gpu_or_one_instance() -> None:  # reports H3
    snapshot = node(gpu(0, A100, *["1g.5gb"] * 7))
    whole = build(snapshot, config(strategy=MIXED), HealthReport({uuid(0): "Xid 79"}))
    assert all(device.health is Health.UNHEALTHY for device in whole.resources[0].devices)
    one = build(snapshot, config(strategy=MIXED), HealthReport({mig_uuid(0, 3): "Xid 94"}))
    assert [device.id for device in one.resources[0].devices if device.reason == "Xid 94"] == [mig_uuid(0, 3)]


def test_the_filter_can_name_one_instance() -> None:
    snapshot = node(gpu(0, A100, "1g.5gb", "1g.5gb"), gpu(1))
    plan = build(snapshot, config(strategy=MIXED, devices=DeviceFilter(exclude=(SelectIndex(0, 1),))))
    assert counts(plan) == {"nvidia.com/gpu": 1, "nvidia.com/mig-1g.5gb": 1}
    plan = build(snapshot, config(strategy=MIXED, devices=DeviceFilter(include=(SelectIndex(0, 1),))))
    assert counts(plan) == {"nvidia.com/mig-1g.5gb": 1}
    assert len(plan.left_out) == 2


def test_under_none_a_filter_of_an_instance_says_nothing_about_its_gpu() -> None:
    snapshot = node(gpu(0, A100, "1g.5gb"))
    assert counts(build(snapshot, config(devices=DeviceFilter(exclude=(SelectIndex(0, 0),))))) == {"nvidia.com/gpu": 1}
    assert counts(build(snapshot, config(devices=DeviceFilter(include=(SelectIndex(0, 0),))))) == {}


def test_mig_patterns_name_profiles() -> None:
    snapshot = node(gpu(0, A100, "1g.5gb", "3g.20gb"))
    plan = build(snapshot, config(strategy=MIXED, mig=[("1g.*", "nvidia.com/small")]))
    assert counts(plan) == {"nvidia.com/mig-3g.20gb": 1, "nvidia.com/small": 1}


def test_two_profiles_under_one_name_are_an_error() -> None:
    snapshot = node(gpu(0, A100, "1g.5gb", "3g.20gb"))
    with pytest.raises(ConfigError) as caught:
        build(snapshot, config(strategy=MIXED, mig=[("*", "nvidia.com/mig")]))
    (problem,) = caught.value.problems
    assert problem.startswith("nvidia.com/mig would hold devices of different MIG profiles")
    assert "config.yaml:3: resources.mig[0]" in problem
    assert "another name" in problem


def test_mps_on_instances_is_a_layout_problem() -> None:  # golden 077
    plan = build(node(gpu(0, A100, "1g.5gb", "1g.5gb")), config(entry(4, mode=MPS), strategy=SINGLE))
    assert plan.resources == ()
    assert len(plan.left_out) == 2
    assert "sharing using MPS is not supported for MIG devices" in plan.layout_problems[0]
    assert "config.yaml:10: sharing.mps.resources[0]" in plan.layout_problems[0]


def test_mps_under_mixed_that_finds_only_mig_gpus() -> None:  # golden 075
    plan = build(node(gpu(0, A100, "1g.5gb")), config(entry(4, mode=MPS), strategy=MIXED))
    assert "using --mig-strategy=mixed is not supported with MPS" in plan.layout_problems[0]
    assert counts(plan) == {"nvidia.com/mig-1g.5gb": 1}


def test_mps_under_mixed_on_a_profile_leaves_it_out() -> None:
    snapshot = node(gpu(0), gpu(1, A100, "1g.5gb"))
    plan = build(snapshot, config(entry(4, mode=MPS, name="nvidia.com/mig-1g.5gb"), strategy=MIXED))
    assert counts(plan) == {"nvidia.com/gpu": 1}
    assert "using --mig-strategy=mixed is not supported with MPS" in plan.left_out[0].reason


def test_mps_under_mixed_shares_the_gpus_without_mig() -> None:  # reports F9
    plan = build(node(gpu(0), gpu(1, A100, "1g.5gb")), config(entry(4, mode=MPS), strategy=MIXED))
    assert counts(plan) == {"nvidia.com/gpu": 4, "nvidia.com/mig-1g.5gb": 1}
    assert plan.layout_problems == ()


def test_mps_on_a_resource_that_the_node_lacks_changes_nothing() -> None:  # golden 078
    plan = build(node(gpu(0, mig=OFF)), config(entry(4, mode=MPS, name="nvidia.com/foo")))
    assert [(resource.name, resource.mode) for resource in plan.resources] == [("nvidia.com/gpu", Mode.EXCLUSIVE)]
    assert "no device of this node is nvidia.com/foo" in plan.warnings[0]
