"""How a plan comes into force around held devices (design 3, 4 and 8; contract section 6)."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from deviceplugin.config.model import Config, DeviceFilter, DeviceIdStrategy, MigStrategy, SelectIndex
from deviceplugin.model.health import HealthReport
from deviceplugin.model.held import Held
from deviceplugin.model.node import Link, Snapshot
from deviceplugin.model.offer import Offer
from deviceplugin.model.plan import Health, Mode, Terms
from deviceplugin.planning.build import build
from deviceplugin.planning.transition import Transition, ours, transition
from tests.planning.nodes import A100, LOST, config, entry, gpu, indices, mig_uuid, node, plain, uuid

NONE_HELD = Held()
UNKNOWN = Held(unknown_because="PodResources: connection refused; checkpoint: no such file")


def holding(**ids: str) -> Held:
    """Held ids by the part of the resource name after the slash, separated by spaces."""
    return Held({f"nvidia.com/{name.replace('_', '.')}": frozenset(text.split()) for name, text in ids.items()})


def by_name(step: Transition) -> dict[str, Offer]:
    """The next state, as `in_force` of the step after."""
    return {offer.name: offer for offer in step.offers}


def start(snapshot: Snapshot, settings: Config, held: Held = NONE_HELD) -> dict[str, Offer]:
    """What is in force after a start."""
    return by_name(transition({}, build(snapshot, settings), held, snapshot=snapshot))


def ids(offers: Mapping[str, Offer], name: str) -> list[str]:
    """The ids that a resource lists Healthy."""
    return [device.id for device in offers[f"nvidia.com/{name}"].devices if device.health is Health.HEALTHY]


WHOLE, SHARED = config(), config(entry(4))
PART = config(entry(4, *indices(1)))


def test_a_start_offers_the_plan() -> None:
    plan = build(plain(2), PART)
    step = transition({}, plan, NONE_HELD)
    assert [offer.resource for offer in step.offers] == list(plan.resources)
    assert [offer.devices for offer in step.offers] == [resource.devices for resource in plan.resources]
    assert step.waiting == ()
    assert step.new == {"nvidia.com/gpu", "nvidia.com/gpu.shared"}


def test_an_unchanged_resource_is_the_same_offer_and_not_in_the_sequence() -> None:
    in_force = start(plain(3), config(entry(4, *indices(1))))
    step = transition(in_force, build(plain(3), config(entry(6, *indices(1)))), NONE_HELD)
    assert step.unchanged == {"nvidia.com/gpu"}
    assert by_name(step)["nvidia.com/gpu"] is in_force["nvidia.com/gpu"]
    assert [offer.name for offer in step.sequence] == ["nvidia.com/gpu.shared"]
    assert step.growing == step.listed == {"nvidia.com/gpu.shared"}
    assert not step.shrinking


def test_growth_keeps_held_ids_as_they_are() -> None:
    held = holding(gpu=f"{uuid(0)}::1")
    step = transition(start(plain(1), SHARED), build(plain(1), config(entry(8))), held)
    assert len(ids(by_name(step), "gpu")) == 8
    assert step.waiting == ()


def test_shrinking_withdraws_what_nobody_holds_and_retains_what_is_held() -> None:
    held = holding(gpu=f"{uuid(0)}::0 {uuid(0)}::3")
    step = transition(start(plain(1), SHARED), build(plain(1), config(entry(2))), held)
    (offer,) = step.offers
    assert [(device.id[-1], device.health) for device in offer.devices] == [
        ("0", Health.HEALTHY),
        ("1", Health.HEALTHY),
        ("3", Health.UNHEALTHY),
    ]
    assert offer.draining == {f"{uuid(0)}::3"}
    assert "2 replicas from now on" in offer.refused[f"{uuid(0)}::3"]
    (waiting,) = step.waiting
    assert waiting.waits_for == f"1 held device: {uuid(0)}::3"


def test_a_wait_says_when_nobody_can_see_its_end() -> None:
    """C3: the checkpoint, read alone, keeps pods that have ended."""
    held = replace(holding(gpu=f"{uuid(0)}::3"), ends_unseen_because="List: no such file")
    (waiting,) = transition(start(plain(1), SHARED), build(plain(1), config(entry(2))), held).waiting
    assert waiting.waits_for == (
        f"1 held device: {uuid(0)}::3; whether their pods have ended cannot be seen: List: no such file"
    )


def test_a_held_gpu_changes_mode_when_its_pods_have_gone() -> None:
    in_force = start(plain(2), config(entry(4, *indices(0, 1), rename="nvidia.com/gpu.shared")))
    goal = build(plain(2), WHOLE)
    step = transition(in_force, goal, holding(gpu_shared=f"{uuid(1)}::2"))
    offers = by_name(step)
    assert ids(offers, "gpu") == [uuid(0)]
    assert [device.id for device in offers["nvidia.com/gpu.shared"].devices] == [f"{uuid(1)}::2"]
    assert offers["nvidia.com/gpu.shared"].draining == {f"{uuid(1)}::2"}
    assert [unit.gpu_index for unit in offers["nvidia.com/gpu.shared"].resource.units] == [1]
    (waiting,) = step.waiting
    assert (waiting.resource, waiting.what) == (
        "nvidia.com/gpu.shared",
        "GPU 1: nvidia.com/gpu.shared -> nvidia.com/gpu",
    )
    after = by_name(transition(offers, goal, NONE_HELD))
    assert ids(after, "gpu") == [uuid(0), uuid(1)]
    assert after["nvidia.com/gpu.shared"].devices == ()


def test_a_retired_resource_keeps_its_server_with_an_empty_list() -> None:
    in_force = start(plain(2), PART)
    step = transition(in_force, build(plain(2), WHOLE), NONE_HELD)
    retired = by_name(step)["nvidia.com/gpu.shared"]
    assert (retired.devices, retired.resource.units) == ((), ())
    again = transition(by_name(step), build(plain(2), WHOLE), NONE_HELD)
    assert again.sequence == ()


def test_whole_to_shared_under_one_name_waits_for_that_gpu_only() -> None:
    in_force = start(plain(2), WHOLE)
    step = transition(in_force, build(plain(2), SHARED), holding(gpu=uuid(0)))
    (offer,) = step.offers
    assert ids(by_name(step), "gpu") == [f"{uuid(1)}::{n}" for n in range(4)]
    assert offer.draining == {uuid(0)}
    assert offer.resource.mode is Mode.TIME_SLICING
    assert offer.former_terms == {uuid(0): Terms(Mode.EXCLUSIVE)}
    assert step.waiting[0].what == "GPU 0: nvidia.com/gpu: exclusive -> time-slicing"


def test_a_new_mode_under_the_same_ids_waits_for_holders_of_that_gpu() -> None:
    in_force = start(plain(2), SHARED)
    to_mps = build(plain(2), config(entry(4, mode=Mode.MPS)))
    held = holding(gpu=f"{uuid(0)}::0")
    step = transition(in_force, to_mps, held)
    (offer,) = step.offers
    assert ids(by_name(step), "gpu") == [f"{uuid(1)}::{n}" for n in range(4)]
    assert offer.former_terms == {f"{uuid(0)}::0": Terms(Mode.TIME_SLICING)}
    assert transition(by_name(step), to_mps, held).sequence == ()
    assert len(ids(by_name(transition(by_name(step), to_mps, NONE_HELD)), "gpu")) == 8


def test_editing_the_mode_back_restores_a_draining_device() -> None:
    in_force = start(plain(1), SHARED)
    held = holding(gpu=f"{uuid(0)}::0")
    there = by_name(transition(in_force, build(plain(1), config(entry(4, mode=Mode.MPS))), held))
    assert ids(there, "gpu") == []
    back = transition(there, build(plain(1), SHARED), held)
    assert len(ids(by_name(back), "gpu")) == 4
    assert back.waiting == ()


def test_a_change_of_the_answer_alone_sends_no_list() -> None:
    in_force = start(plain(2), SHARED)
    settings = config(entry(4), ids=DeviceIdStrategy.INDEX, refuse=True)
    step = transition(in_force, build(plain(2), settings), holding(gpu=f"{uuid(0)}::0"))
    (offer,) = step.offers
    assert not step.listed
    assert not step.waiting
    assert len(step.sequence) == 1
    assert [unit.visible_id for unit in offer.resource.units] == ["0", "1"]
    assert offer.resource.refuse_more_than_one


def test_a_change_of_links_alone_is_answered_from_and_sends_no_list() -> None:
    """A link that is down is seen by the next look at the driver, and by nobody else."""
    in_force = start(plain(2), WHOLE)
    linked = replace(plain(2), links=(Link(uuid(0), uuid(1), nvlinks=4),))
    step = transition(in_force, build(linked, WHOLE), NONE_HELD, snapshot=linked)
    (offer,) = step.offers
    assert step.sequence == (offer,)
    assert offer.resource.link_scores.rows == ((0, 400), (400, 0))
    assert not step.listed
    again = transition(by_name(step), build(linked, WHOLE), NONE_HELD, snapshot=linked)
    assert again.offers[0] is offer
    assert again.sequence == ()


def test_mig_siblings_do_not_wait_for_each_other_but_their_gpu_does() -> None:
    split = node(gpu(0, A100, "1g.5gb", "2g.10gb"))
    mixed, held = config(strategy=MigStrategy.MIXED), holding(**{"mig-1g_5gb": mig_uuid(0, 0)})
    fewer = node(gpu(0, A100, "1g.5gb"))
    step = transition(start(split, mixed), build(fewer, mixed), held, snapshot=fewer)
    assert (ids(by_name(step), "mig-1g.5gb"), by_name(step)["nvidia.com/mig-2g.10gb"].devices) == ([mig_uuid(0, 0)], ())
    whole = node(gpu(0))
    step = transition(start(split, mixed), build(whole, mixed), held, snapshot=whole)
    offers = by_name(step)
    assert offers["nvidia.com/gpu"].devices == ()
    (gone,) = offers["nvidia.com/mig-1g.5gb"].devices
    assert (gone.id, gone.reason) == (mig_uuid(0, 0), "the driver no longer reports it")
    assert offers["nvidia.com/mig-1g.5gb"].draining == frozenset()
    assert mig_uuid(0, 0) in offers["nvidia.com/mig-1g.5gb"].refused
    assert step.waiting[0].what.endswith("nvidia.com/mig-1g.5gb -> nvidia.com/gpu")
    assert offers["nvidia.com/mig-2g.10gb"].devices == ()


def test_instances_wait_for_a_pod_on_their_whole_gpu() -> None:
    split = node(gpu(0, A100, "1g.5gb", "1g.5gb"))
    step = transition(
        start(split, config()), build(split, config(strategy=MigStrategy.SINGLE)), holding(gpu=uuid(0)), snapshot=split
    )
    (offer,) = step.offers
    assert [device.id for device in offer.devices] == [uuid(0)]
    assert offer.draining == {uuid(0)}


def test_a_held_device_that_left_the_node_stays_listed() -> None:  # L16 to L18
    in_force = start(plain(2), WHOLE)
    step = transition(in_force, build(plain(1), WHOLE), holding(gpu=uuid(1)), snapshot=plain(1))
    (offer,) = step.offers
    assert [(device.id, device.health) for device in offer.devices] == [
        (uuid(0), Health.HEALTHY),
        (uuid(1), Health.UNHEALTHY),
    ]
    assert "no longer offered" in offer.refused[uuid(1)]


def test_a_restart_with_an_edited_file_retains_what_is_held() -> None:
    held = holding(gpu=f"{uuid(0)}::1", gpu_shared=f"{uuid(1)}::0")
    snapshot = plain(3)
    step = transition({}, build(snapshot, WHOLE), held, snapshot=snapshot)
    offers = by_name(step)
    assert ids(offers, "gpu") == [uuid(2)]
    assert offers["nvidia.com/gpu"].draining == {f"{uuid(0)}::1"}
    assert offers["nvidia.com/gpu.shared"].draining == {f"{uuid(1)}::0"}
    assert offers["nvidia.com/gpu.shared"].devices[0].numa_node == 0
    assert len(step.waiting) == 2


def test_a_restart_with_the_same_file_changes_nothing_for_holders() -> None:
    step = transition({}, build(plain(1), SHARED), holding(gpu=f"{uuid(0)}::1"))
    assert len(ids(by_name(step), "gpu")) == 4
    assert step.waiting == ()


def test_the_parent_in_a_legacy_mig_uuid_is_enough() -> None:
    step = transition({}, build(node(gpu(0)), WHOLE), holding(**{"mig-3g_20gb": f"MIG-{uuid(0)}/1/0"}))
    assert by_name(step)["nvidia.com/gpu"].devices == ()
    foreign = transition({}, build(node(gpu(0)), WHOLE), holding(**{"mig-3g_20gb": mig_uuid(0, 0)}))
    assert ids(by_name(foreign), "gpu") == [uuid(0)]


def test_the_health_of_a_retained_device_is_what_is_known_of_it() -> None:
    snapshot = node(replace(gpu(0), failure=LOST), gpu(1))
    settings = config(devices=DeviceFilter(exclude=(SelectIndex(0), SelectIndex(1))))
    step = transition(
        start(snapshot, WHOLE), build(snapshot, settings), holding(gpu=f"{uuid(0)} {uuid(1)}"), snapshot=snapshot
    )
    (offer,) = step.offers
    assert offer.devices[0].reason.endswith("GPU is lost (NVML 15)")
    assert offer.draining == {uuid(1)}  # the lost one must not come up Healthy after a registration
    assert offer.refused.keys() == {uuid(0), uuid(1)}
    report = HealthReport({uuid(1): "Xid 79"})
    step = transition(by_name(step), build(snapshot, settings), holding(gpu=uuid(1)), snapshot=snapshot, health=report)
    assert [device.reason for device in step.offers[0].devices] == ["Xid 79"]


def test_when_nobody_knows_what_is_held_nothing_shrinks_or_moves() -> None:
    in_force = start(plain(2), config(entry(4, *indices(1))))
    goal = build(plain(3), config(entry(2, *indices(1)), entry(2, *indices(0), rename="nvidia.com/team", number=1)))
    step = transition(in_force, goal, UNKNOWN, snapshot=plain(3))
    offers = by_name(step)
    assert ids(offers, "gpu") == [uuid(0), uuid(2)]
    assert step.listed == {"nvidia.com/gpu"}
    assert offers["nvidia.com/team"].devices == ()
    assert [one.what for one in step.waiting] == [
        "GPU 0: nvidia.com/gpu -> nvidia.com/team",
        "GPU 1: nvidia.com/gpu.shared: 2 replicas from now on",
    ]
    assert all(one.waits_for == f"knowledge of what pods hold: {UNKNOWN.unknown_because}" for one in step.waiting)


def test_when_nobody_knows_what_is_held_a_new_mode_keeps_the_old_answers() -> None:
    in_force = start(plain(2), SHARED)
    step = transition(in_force, build(plain(2), WHOLE), UNKNOWN)
    assert step.unchanged == {"nvidia.com/gpu"}
    assert [one.what for one in step.waiting] == [
        "GPU 0: nvidia.com/gpu: time-slicing -> exclusive",
        "GPU 1: nvidia.com/gpu: time-slicing -> exclusive",
    ]


def test_when_nobody_knows_what_is_held_health_still_follows() -> None:
    in_force = start(plain(2), WHOLE)
    lost = node(plain(2).gpus[0], replace(plain(2).gpus[1], failure=LOST))
    excluded = config(devices=DeviceFilter(exclude=(SelectIndex(0), SelectIndex(1))))
    (offer,) = transition(in_force, build(lost, excluded), UNKNOWN, snapshot=lost).offers
    assert [device.health for device in offer.devices] == [Health.HEALTHY, Health.UNHEALTHY]
    (offer,) = transition(in_force, build(plain(1), excluded), UNKNOWN, snapshot=plain(1)).offers
    assert offer.devices[1].reason == "the driver no longer reports it"


def test_a_draining_device_goes_on_draining_when_nobody_knows() -> None:
    goal = build(plain(1), config(entry(2)))
    drained = transition(start(plain(1), SHARED), goal, holding(gpu=f"{uuid(0)}::3"))
    assert transition(by_name(drained), goal, UNKNOWN).sequence == ()


def test_two_resources_that_swap_gpus_withdraw_first() -> None:
    in_force = start(
        plain(2),
        config(entry(2, *indices(0), rename="nvidia.com/a"), entry(2, *indices(1), rename="nvidia.com/b", number=1)),
    )
    swapped = config(
        entry(2, *indices(1), rename="nvidia.com/a"), entry(2, *indices(0), rename="nvidia.com/b", number=1)
    )
    step = transition(in_force, build(plain(2), swapped), NONE_HELD)
    assert [(offer.name[-1], len(offer.devices)) for offer in step.sequence] == [("a", 0), ("b", 0)]
    assert step.withdrawn.ids == {name: frozenset(in_force[name].device_by_id) for name in in_force}
    gains = transition(step.after, build(plain(2), swapped), NONE_HELD)
    assert [(offer.name[-1], len(offer.devices)) for offer in gains.sequence] == [("a", 2), ("b", 2)]
    assert not gains.withdrawn.ids


def test_what_the_kubelet_may_still_show_delays_gains_from_it_and_nothing_else() -> None:
    """The next step comes before the kubelet has shown the first one: health, growth and a way back go ahead."""
    apart = config(entry(2, *indices(0), rename="nvidia.com/a"), entry(2, *indices(1), rename="nvidia.com/b", number=1))
    moved = config(entry(2, *indices(0, 1), rename="nvidia.com/a"))
    in_force = start(plain(3), apart)
    first = transition(in_force, build(plain(3), moved), NONE_HELD)
    vanishing = (first.withdrawn,)
    assert first.withdrawn.ids == holding(b=f"{uuid(1)}::0 {uuid(1)}::1").ids

    again = transition(first.after, build(plain(3), moved), NONE_HELD, vanishing=vanishing)
    assert (again.sequence, again.withdrawn.ids) == ((), {})

    report = HealthReport({uuid(0): "XID 79", uuid(2): "XID 79"})
    sick = transition(first.after, build(plain(3), moved, report), NONE_HELD, health=report, vanishing=vanishing)
    assert sorted(offer.name for offer in sick.sequence) == ["nvidia.com/a", "nvidia.com/gpu"]
    assert not ids(sick.after, "a")
    assert not ids(sick.after, "gpu")
    assert sick.after["nvidia.com/a"].device_by_id.keys() == first.after["nvidia.com/a"].device_by_id.keys()

    back = transition(first.after, build(plain(3), apart), NONE_HELD, vanishing=vanishing)
    assert back.after == in_force, "what a resource itself gave up is not another's"

    done = transition(sick.after, build(plain(3), moved), NONE_HELD)
    assert len(ids(done.after, "a")) == 4


def test_what_only_gives_comes_before_what_only_takes() -> None:
    in_force = start(plain(2), WHOLE)
    step = transition(in_force, build(plain(2), PART), NONE_HELD)
    assert [(offer.name, len(offer.devices)) for offer in step.sequence] == [("nvidia.com/gpu", 1)]
    (given_up,) = step.withdrawn.ids["nvidia.com/gpu"]
    assert given_up not in step.after["nvidia.com/gpu"].device_by_id
    gains = transition(step.after, build(plain(2), PART), NONE_HELD)
    assert [(offer.name, len(offer.devices)) for offer in gains.sequence] == [("nvidia.com/gpu.shared", 4)]


def test_what_changes_besides_a_gain_does_not_wait_for_it() -> None:
    """A resource that gains a GPU from another one loses a broken device at once."""
    in_force = start(
        plain(3),
        config(entry(2, *indices(0), rename="nvidia.com/a"), entry(2, *indices(1), rename="nvidia.com/b", number=1)),
    )
    moved = config(entry(2, *indices(0, 1), rename="nvidia.com/a"))
    goal = build(plain(3), moved)
    report = HealthReport({uuid(0): "XID 79"})
    step = transition(in_force, build(plain(3), moved, report), NONE_HELD, health=report)
    first = {offer.name: offer for offer in step.sequence}
    assert {one.id: one.health for one in first["nvidia.com/a"].devices} == {
        f"{uuid(0)}::{n}": Health.UNHEALTHY for n in range(2)
    }
    assert goal.resource("nvidia.com/b") is None
    assert first["nvidia.com/b"].devices == ()


def test_a_device_held_twice_is_not_given_out_when_one_pod_ends() -> None:
    """Both were given out by someone before us (A31): neither id is dropped, neither is handed out again."""
    goal = build(plain(1), SHARED)
    held = holding(gpu=f"{uuid(0)}::0", foreign=uuid(0))
    offers = by_name(transition({}, goal, held))
    assert ids(offers, "gpu") == [f"{uuid(0)}::0"]
    assert "held under nvidia.com/foreign" in offers["nvidia.com/gpu"].refused[f"{uuid(0)}::0"]
    offers = by_name(transition(offers, goal, holding(foreign=uuid(0))))
    assert ids(offers, "gpu") == []


@pytest.mark.parametrize(
    ("device_id", "kept"),
    [
        (uuid(0), True),
        (f"{uuid(0)}::12", True),
        (mig_uuid(0, 1), True),
        (f"MIG-{uuid(0)}/1/0::3", True),
        (f"{uuid(0)}-3", False),  # HAMi's shares
        ("nvidia0", False),  # GKE's plugin
        ("0000:3b:00.0", False),
    ],
)
def test_which_held_devices_are_ours(device_id: str, kept: bool) -> None:
    held = Held({"nvidia.com/x": frozenset({device_id, uuid(7)})}, "half")
    assert (ours(held) == held) is kept
    assert ours(held).unknown_because == "half"
    assert ours(held, {"nvidia.com/x"}) == held
