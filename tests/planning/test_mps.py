"""Limits of MPS shares, GPUs that can't be shared so, and what their control daemons' word does to a plan."""

from dataclasses import replace

import pytest

from deviceplugin.config.model import Config, SharingEntry
from deviceplugin.errors import ConfigError
from deviceplugin.model.held import Held
from deviceplugin.model.mps import MpsShare
from deviceplugin.model.node import Gpu, Snapshot
from deviceplugin.model.offer import Offer
from deviceplugin.model.plan import Health, Mode, Plan, Terms
from deviceplugin.planning.build import build
from deviceplugin.planning.mps import NOT_ASKED, STILL_OWNED, await_daemons, daemons, judged, not_asked
from deviceplugin.planning.transition import Transition, transition
from tests.planning.nodes import LOST, config, entry, gpu, hidden, indices, node, plain, uuid

GPU, ROOT = "nvidia.com/gpu", "/run/nvidia/mps"


def mps(replicas: int, **keys: int | None) -> SharingEntry:
    return replace(entry(replicas, mode=Mode.MPS), **keys)  # type: ignore[arg-type]


def share(one: SharingEntry, on: Gpu | None = None, *, refuse: bool = True) -> MpsShare:
    (resource,) = build(node(on or gpu(0)), config(one, refuse=refuse)).resources
    assert resource.units[0].mps is not None
    return resource.units[0].mps


def reason_left_out(on: Gpu, replicas: int = 4) -> str:
    plan = build(node(on), config(mps(replicas)))
    assert plan.resources == ()
    return plan.left_out[0].reason


def test_an_equal_part_is_rounded_down() -> None:  # reports F1
    assert share(mps(10), replace(gpu(0), memory_mib=46068)).memory_mib == 4606
    assert share(mps(4), replace(gpu(0), memory_mib=15360)) == MpsShare(3840, 25, True, ROOT)


@pytest.mark.parametrize("replicas", range(1, 49))
def test_threads_are_rounded_down_and_never_0(replicas: int) -> None:  # reports F3
    found = share(mps(replicas)).active_thread_percentage
    assert found == max(1, int(100 / replicas))
    assert found * replicas <= 100
    assert {3: 33, 7: 14, 48: 2}.get(replicas, found) == found


def test_an_entry_may_say_both_limits() -> None:
    said = share(mps(10, memory_limit_mib=512, active_thread_percentage=100))
    assert (said.memory_mib, said.active_thread_percentage) == (512, 100)
    assert share(mps(10, memory_limit_percent=33), replace(gpu(0), memory_mib=15360)).memory_mib == 5068
    assert share(mps(10, memory_limit_percent=1), replace(gpu(0), memory_mib=50)).memory_mib == 1


def test_limits_are_open_where_a_container_may_have_several_shares() -> None:  # design 5
    assert share(mps(4), refuse=False) == MpsShare(10240, 25, False, ROOT)


def test_a_limit_beyond_the_memory_is_a_warning() -> None:
    plan = build(node(gpu(0)), config(mps(2, memory_limit_mib=99999)))
    assert any("99999 MiB limit nothing on GPU 0" in warning for warning in plan.warnings)


def test_gpus_without_limits_are_left_out() -> None:
    old = replace(gpu(0), compute_capability=(6, 1))
    assert reason_left_out(old) == "its compute capability is 6.1; MPS limits memory and threads from 7.0 on"
    assert "does not say its compute capability" in reason_left_out(replace(gpu(0), compute_capability=None))
    assert "does not say how much memory" in reason_left_out(replace(gpu(0), memory_mib=None))
    assert "49 replicas are asked for, MPS serves at most 48" in reason_left_out(gpu(0), 49)
    assert "make no 48 MPS shares" in reason_left_out(replace(gpu(0), memory_mib=47), 48)


def test_a_name_whose_pipe_does_not_fit_a_unix_socket_is_left_out() -> None:
    longest = "example.com/" + "x" * 25  # 37 characters, docs/mps.md
    shared = build(node(gpu(0)), config(replace(mps(4), rename=longest)))
    assert [one.name for one in shared.resources] == [longest]
    plan = build(node(gpu(0), gpu(1)), config(replace(mps(4), rename=f"{longest}x", selectors=indices(0))))
    assert [one.name for one in plan.resources] == [GPU]
    assert [one.reason for one in plan.left_out] == [
        "the path of its control daemon's pipe would have 108 bytes, a unix socket's has at most 107: give the "
        f"resource a name that is 1 shorter ({longest}x has 38)"
    ]


def test_the_others_are_shared_all_the_same() -> None:
    mixed = node(replace(gpu(0), compute_capability=(6, 1)), gpu(1))
    plan = build(mixed, config(mps(2)))
    assert [unit.gpu_index for unit in plan.resources[0].units] == [1]


def test_a_failed_gpu_of_unknown_size_keeps_its_devices() -> None:
    failed = replace(gpu(0), memory_mib=None, compute_capability=None, failure=LOST)
    (resource,) = build(node(failed), config(mps(2))).resources
    assert [device.health for device in resource.devices] == [Health.UNHEALTHY] * 2
    assert daemons(Plan((resource,))) == ()


def test_a_missing_root_is_an_error_that_says_what_to_set() -> None:
    with pytest.raises(ConfigError) as caught:
        build(plain(1), config(mps(2), mps_root=""))
    (problem,) = caught.value.problems
    assert problem.startswith("config.yaml:10: sharing.mps.resources[0]: found no MPS root")
    assert "--mps-root" in problem
    assert build(node(hidden(0)), config(entry(2), mps_root=""))
    other = replace(mps(2), name="nvidia.com/foo")
    assert build(plain(1), config(other, mps_root="")).warnings  # golden 078: nothing here is shared by it


# What the daemons say.


def plan_of(chosen: Config, snapshot: Snapshot | None = None) -> Plan:
    return build(snapshot or plain(2), chosen)


def reasons(plan: Plan) -> dict[str, str]:
    return {unit.uuid: unit.reason for resource in plan.resources for unit in resource.units}


def test_a_share_is_healthy_when_its_daemon_serves() -> None:
    plan = plan_of(config(mps(2)))
    first, second = daemons(plan)
    assert reasons(judged(plan, {}, frozenset())) == {uuid(0): NOT_ASKED, uuid(1): NOT_ASKED}
    assert reasons(judged(plan, {first: "", second: "it hangs"}, frozenset())) == {uuid(0): "", uuid(1): "it hangs"}


def test_a_word_about_other_limits_counts_for_nothing() -> None:
    plan, other = plan_of(config(mps(2))), plan_of(config(mps(4)))
    assert set(reasons(judged(plan, dict.fromkeys(daemons(other), ""), frozenset())).values()) == {NOT_ASKED}


def test_a_sick_gpu_stays_sick_whatever_its_daemon_says() -> None:
    plan = plan_of(config(mps(2)), node(replace(gpu(0), failure=LOST)))
    assert reasons(judged(plan, dict.fromkeys(daemons(plan), ""), frozenset())) == {uuid(0): str(LOST)}


def test_what_mps_has_is_not_given_out_otherwise() -> None:  # reports F8
    plan = plan_of(config(entry(2, *indices(0))))
    assert reasons(judged(plan, {}, frozenset({uuid(0), uuid(1)}))) == {uuid(0): STILL_OWNED, uuid(1): STILL_OWNED}
    assert judged(plan, {}, frozenset()) == plan


def test_a_resource_waits_for_its_first_daemon() -> None:  # golden 072, 073
    plan = plan_of(config(mps(2)))
    first, second = daemons(plan)
    asking = judged(plan, {}, frozenset())
    assert await_daemons(asking, (), Held()) == (replace(asking, resources=()), ())
    assert not_asked(asking) == ("GPU 0 (nvidia.com/gpu)", "GPU 1 (nvidia.com/gpu)")
    long = f"pipe missing: there is no directory /mps/{GPU}/{uuid(0)}/pipe; is the MPS supervisor running?"
    both = judged(plan, {first: long, second: "it hangs"}, frozenset())
    rest, (waiting,) = await_daemons(both, (), Held())
    assert rest.resources == ()
    assert (waiting.resource, waiting.waits_for) == (
        GPU,
        "an MPS control daemon that answers (GPU 0: pipe missing; GPU 1: it hangs); is the MPS supervisor running "
        "(docs/mps.md)?",
    )
    assert await_daemons(both, (GPU,), Held()) == (both, ())
    assert await_daemons(both, (), Held({GPU: frozenset({f"{uuid(0)}::0"})})) == (both, ())
    serving = judged(plan_of(config(mps(2))), {first: ""}, frozenset())
    assert await_daemons(serving, (), Held()) == (serving, ())


# Changed limits are a change of plan.


def offers(step: Transition) -> dict[str, Offer]:
    return {offer.name: offer for offer in step.offers}


def served(chosen: Config) -> Plan:
    plan = plan_of(chosen, plain(1))
    return judged(plan, dict.fromkeys(daemons(plan), ""), frozenset())


def held(*numbers: int) -> Held:
    return Held({GPU: frozenset(f"{uuid(0)}::{n}" for n in numbers)})


@pytest.mark.parametrize(
    "after",
    [config(mps(4), refuse=True), config(mps(2, memory_limit_mib=99), refuse=True), config(mps(2), refuse=False)],
    ids=["replicas", "memory", "ceiling"],
)
def test_changed_limits_wait_for_the_shares_held(after: Config) -> None:
    before = served(config(mps(2), refuse=True))
    in_force = offers(transition({}, before, Held(), snapshot=plain(1)))
    step = transition(in_force, served(after), held(0), snapshot=plain(1))
    (offer,) = step.offers
    assert [(device.id, device.health) for device in offer.devices] == [(f"{uuid(0)}::0", Health.UNHEALTHY)]
    assert offer.resource.units[0].mps == before.resources[0].units[0].mps
    assert offer.draining == {f"{uuid(0)}::0"}
    assert ": mps (20480M and 50 % of the threads for each process) -> mps (" in step.waiting[0].what
    again = transition(offers(step), served(after), held(0), snapshot=plain(1))
    assert again.sequence == ()
    (done,) = transition(offers(step), served(after), Held(), snapshot=plain(1)).offers
    assert (done.resource, done.refused) == (served(after).resources[0], {})


def test_more_shares_of_the_same_limits_wait_for_nobody() -> None:
    fixed = {"memory_limit_mib": 1024, "active_thread_percentage": 20}
    before, after = (served(config(mps(count, **fixed), refuse=True)) for count in (2, 4))
    in_force = offers(transition({}, before, Held(), snapshot=plain(1)))
    step = transition(in_force, after, held(0, 1), snapshot=plain(1))
    assert step.waiting == ()
    assert len(step.offers[0].devices) == 4


def test_a_draining_share_is_not_sick_because_the_next_limits_are_not_set() -> None:  # contract A29
    in_force = offers(transition({}, served(config(mps(2), refuse=True)), Held(), snapshot=plain(1)))
    plan = plan_of(config(mps(4), refuse=True), plain(1))
    after = judged(plan, dict.fromkeys(daemons(plan), "wrong limits"), frozenset())
    (offer,) = transition(in_force, after, held(1), snapshot=plain(1)).offers
    assert offer.draining == {f"{uuid(0)}::1"}


def test_from_mps_to_time_slicing_keeps_the_limits_of_what_is_held() -> None:
    before = served(config(mps(2), refuse=True))
    in_force = offers(transition({}, before, Held(), snapshot=plain(1)))
    (offer,) = transition(in_force, build(plain(1), config(entry(2))), held(1), snapshot=plain(1)).offers
    assert offer.former_terms == {f"{uuid(0)}::1": Terms(Mode.MPS, before.resources[0].units[0].mps)}


def test_a_gpu_that_comes_back_keeps_its_shares() -> None:
    failed = replace(gpu(0), memory_mib=None, compute_capability=None, failure=LOST)
    chosen = config(mps(2), refuse=True)
    in_force = offers(transition({}, build(node(failed), chosen), held(0), snapshot=node(failed)))
    step = transition(in_force, build(node(gpu(0)), chosen), held(0), snapshot=node(gpu(0)))
    assert step.waiting == ()
    assert len(step.offers[0].devices) == 2
