"""A mode per GPU: which devices an entry claims, under which name, and what is refused."""

from dataclasses import replace

import pytest

from deviceplugin.config.model import (
    DeviceFilter,
    MigStrategy,
    SelectAll,
    SelectCount,
    SelectIndex,
    SelectModel,
    SelectPci,
    SelectRest,
    SelectUuid,
)
from deviceplugin.errors import ConfigError
from deviceplugin.model.node import Snapshot
from deviceplugin.model.plan import AllocationPolicy, Mode
from deviceplugin.planning.build import build
from tests.planning.nodes import (
    A100,
    LOST,
    T4,
    V100,
    config,
    counts,
    entry,
    gpu,
    hidden,
    indices,
    mig_uuid,
    node,
    plain,
    uuid,
)

MPS = Mode.MPS


def test_a_whole_resource_keeps_its_name() -> None:  # golden 020
    (resource,) = build(plain(2), config(entry(4))).resources
    assert (resource.name, resource.mode) == ("nvidia.com/gpu", Mode.TIME_SLICING)
    assert [device.id for device in resource.devices] == [f"{uuid(g)}::{n}" for g in (0, 1) for n in range(4)]
    assert resource.origin == "sharing.timeSlicing.resources[0]"


def test_mps_shares_keep_the_name_and_need_only_one_replica() -> None:  # reports F3
    (resource,) = build(plain(1), config(entry(1, mode=MPS), refuse=True)).resources
    assert (resource.name, resource.mode, resource.refuse_more_than_one) == ("nvidia.com/gpu", MPS, True)
    assert [device.id for device in resource.devices] == [f"{uuid(0)}::0"]


def test_rename_by_default_adds_nvidias_suffix_in_either_mode() -> None:  # golden 023
    assert counts(build(plain(1), config(entry(2), rename_by_default=True))) == {"nvidia.com/gpu.shared": 2}
    assert counts(build(plain(1), config(entry(2, mode=MPS), rename_by_default=True))) == {"nvidia.com/gpu.shared": 2}


def test_rename_wins_over_all() -> None:  # reports D5, kdp#353
    shared = entry(2, rename="nvidia.com/cheap")
    assert counts(build(plain(1), config(shared, rename_by_default=True))) == {"nvidia.com/cheap": 2}


def test_a_subset_gets_a_name_of_its_own() -> None:  # reports D5
    assert counts(build(plain(4), config(entry(4, *indices(2, 3))))) == {
        "nvidia.com/gpu": 2,
        "nvidia.com/gpu.shared": 8,
    }
    assert counts(build(plain(4), config(entry(4, *indices(2, 3), mode=MPS)))) == {
        "nvidia.com/gpu": 2,
        "nvidia.com/gpu.mps": 8,
    }


def test_a_mode_for_each_gpu() -> None:  # design 1
    shared = config(entry(4, *indices(2, 3, 4, 5)), entry(8, *indices(6, 7), mode=MPS), refuse=True)
    plan = build(plain(8), shared)
    assert {one.name: (one.mode, len(one.devices)) for one in plan.resources} == {
        "nvidia.com/gpu": (Mode.EXCLUSIVE, 2),
        "nvidia.com/gpu.mps": (MPS, 16),
        "nvidia.com/gpu.shared": (Mode.TIME_SLICING, 16),
    }
    assert [one.refuse_more_than_one for one in plan.resources] == [False, True, True]


def test_every_selector() -> None:
    snapshot = node(gpu(0, V100), gpu(1, T4), gpu(2, T4), gpu(3, A100), gpu(4, A100))
    named = (SelectUuid(uuid(1)), SelectPci("0000:13:00.0"), SelectModel("*V100*"))
    plan = build(snapshot, config(entry(2, *named)))
    shared = plan.resource("nvidia.com/gpu.shared")
    assert shared is not None
    assert [unit.gpu_index for unit in shared.units] == [0, 1, 3]


def test_one_instance_or_all_of_a_gpu() -> None:
    snapshot = node(gpu(0, A100, "1g.5gb", "1g.5gb"), gpu(1, A100, "1g.5gb", "1g.5gb"))
    shared = entry(2, SelectIndex(0, 1), SelectIndex(1), name="nvidia.com/mig-1g.5gb")
    plan = build(snapshot, config(shared, strategy=MigStrategy.MIXED))
    assert counts(plan) == {"nvidia.com/mig-1g.5gb": 1, "nvidia.com/mig-1g.5gb.shared": 6}
    named = entry(2, SelectUuid(mig_uuid(0, 0)), SelectUuid(uuid(1)), name="nvidia.com/mig-1g.5gb")
    assert counts(build(snapshot, config(named, strategy=MigStrategy.MIXED))) == counts(plan)


def test_a_count_takes_the_first_that_nobody_names_and_rest_what_is_left() -> None:
    shared = config(
        entry(2, SelectRest(), rename="nvidia.com/rest"),
        entry(3, SelectCount(2), rename="nvidia.com/two", number=1),
        entry(4, SelectIndex(0), mode=MPS),
    )
    plan = build(plain(5), shared)
    assert {one.name: [unit.gpu_index for unit in one.units] for one in plan.resources} == {
        "nvidia.com/gpu.mps": [0],
        "nvidia.com/rest": [3, 4],
        "nvidia.com/two": [1, 2],
    }


def test_the_name_in_an_entry_is_the_one_after_patterns() -> None:
    shared = entry(2, name="nvidia.com/t4")
    plan = build(node(gpu(0, T4), gpu(1, V100)), config(shared, gpus=[("*T4", "nvidia.com/t4")]))
    assert counts(plan) == {"nvidia.com/gpu": 1, "nvidia.com/t4": 2}


def test_several_entries_of_one_resource_if_disjoint() -> None:  # reports D5, kdp#1786
    two = config(
        entry(2, SelectIndex(0), rename="nvidia.com/fast"),
        entry(8, SelectIndex(1), rename="nvidia.com/batch", number=1),
    )
    assert counts(build(plain(2), two)) == {"nvidia.com/batch": 8, "nvidia.com/fast": 2}


def test_entries_of_one_mode_may_join_under_one_name() -> None:
    joined = config(entry(2, SelectIndex(1)), entry(4, SelectIndex(0), number=1))
    (resource,) = build(plain(2), joined).resources
    assert (resource.name, [unit.replicas for unit in resource.units]) == ("nvidia.com/gpu.shared", [4, 2])
    assert resource.origin == "sharing.timeSlicing.resources[0], sharing.timeSlicing.resources[1]"


def test_a_gpu_claimed_twice_names_it_and_both_entries() -> None:
    with pytest.raises(ConfigError) as caught:
        build(plain(3), config(entry(4, *indices(0, 1)), entry(2, SelectUuid(uuid(1)), mode=MPS)))
    (problem,) = caught.value.problems
    assert problem.startswith("config.yaml:10: sharing.mps.resources[0]: GPU 1 (GPU-00000001-")
    assert "claimed by config.yaml:10: sharing.timeSlicing.resources[0] as well" in problem
    assert "disjoint" in problem


def test_a_resource_listed_twice_claims_all_twice() -> None:  # golden 030, where NVIDIA serves the last
    with pytest.raises(ConfigError) as caught:
        build(plain(2), config(entry(2), entry(3, number=1)))
    assert len(caught.value.problems) == 2


def test_two_modes_under_one_name() -> None:
    with pytest.raises(ConfigError) as caught:
        build(plain(2), config(entry(2, SelectIndex(0), rename="nvidia.com/gpu")))
    (problem,) = caught.value.problems
    assert problem.startswith("nvidia.com/gpu would hold devices of different modes: time-slicing shares of GPU 0 (")
    assert "config.yaml:10: sharing.timeSlicing.resources[0]" in problem
    assert "set `rename`" in problem


def test_a_policy_per_entry_and_two_under_one_name() -> None:
    packed, spread = AllocationPolicy.PACKED, AllocationPolicy.SPREAD
    plan = build(plain(2), config(entry(2, SelectIndex(0), policy=spread), policy=packed))
    assert [one.allocation_policy for one in plan.resources] == [packed, spread]
    with pytest.raises(ConfigError, match="different allocation policies"):
        build(plain(2), config(entry(2, SelectIndex(0), policy=spread), entry(2, SelectIndex(1), number=1)))


def test_every_problem_at_once() -> None:
    problems = config(
        entry(2, SelectIndex(0)),
        entry(2, SelectIndex(0), mode=MPS, rename="nvidia.com/mps"),
        entry(10**9, SelectIndex(1), number=1, rename="nvidia.com/huge"),
        entry(2, SelectIndex(2), number=2, rename="nvidia.com/gpu"),
    )
    with pytest.raises(ConfigError) as caught:
        build(plain(4), problems)
    assert len(caught.value.problems) == 3


def test_what_matches_nothing_here_is_a_warning() -> None:
    plan = build(plain(2), config(entry(2, SelectIndex(0), SelectIndex(9), SelectModel("*H100*"))))
    assert counts(plan) == {"nvidia.com/gpu": 1, "nvidia.com/gpu.shared": 2}
    assert plan.warnings == (
        "config.yaml:10: sharing.timeSlicing.resources[0].devices: index 9 matches no nvidia.com/gpu of this node",
        "config.yaml:10: sharing.timeSlicing.resources[0].devices: model:*H100* matches no nvidia.com/gpu of this node",
    )


def test_a_count_beyond_the_node_takes_what_there_is() -> None:
    plan = build(plain(2), config(entry(2, SelectCount(5))))
    assert counts(plan) == {"nvidia.com/gpu": 4}
    assert "5 devices asked for, this node has 2 that no entry names" in plan.warnings[0]


def losses() -> list[Snapshot]:
    """Four GPUs; then the last one lost, with and without its UUID."""
    whole = plain(4)
    return [
        whole,
        node(*whole.gpus[:3], replace(whole.gpus[3], failure=LOST)),
        node(*whole.gpus[:3], hidden(3)),
    ]


@pytest.mark.parametrize("snapshot", losses())
def test_names_do_not_flip_when_a_gpu_is_lost(snapshot: Snapshot) -> None:  # design 8
    for selectors in (
        (SelectAll(),),
        indices(0, 1, 2, 3),
        (SelectCount(4),),
        tuple(SelectUuid(uuid(n)) for n in range(4)),
    ):
        assert {one.name for one in build(snapshot, config(entry(2, *selectors))).resources} == {"nvidia.com/gpu"}
    for partly in ((*indices(0, 1), SelectIndex(3)), (SelectCount(3),), tuple(SelectUuid(uuid(n)) for n in range(3))):
        names = {one.name for one in build(snapshot, config(entry(2, *partly))).resources}
        assert "nvidia.com/gpu.shared" in names
    excluded = config(
        entry(2, SelectUuid(uuid(0)), *indices(1, 2)), devices=DeviceFilter(exclude=(SelectUuid(uuid(3)),))
    )
    assert counts(build(snapshot, excluded)) == {"nvidia.com/gpu": 6}


def test_a_lost_gpu_does_not_move_what_counts_take() -> None:
    plan = build(node(gpu(0, T4), hidden(1), gpu(2, T4), gpu(3, T4)), config(entry(2, SelectCount(2))))
    assert counts(plan) == {"nvidia.com/gpu": 2, "nvidia.com/gpu.shared": 2}
