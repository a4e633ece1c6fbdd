"""Preferred devices: rules that always hold, NVIDIA's recorded shapes, and what each policy is for."""

import json
import random
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deviceplugin.allocation.prefer import prefer
from deviceplugin.model.ids import is_replica, unit_of
from deviceplugin.model.offer import Offer
from deviceplugin.model.plan import AllocationPolicy, Health, Mode, Unit
from tests.allocation.offers import gpu, ids_of, mig, offer

GOLDEN = Path(__file__).parents[1] / "golden"
SHARED_CASES = ("020", "022", "023", "025", "030", "032", "033", "035", "058", "067", "148")
POLICIES = st.sampled_from(AllocationPolicy)


def units() -> st.SearchStrategy[list[Unit]]:
    """GPUs with unequal replica counts, MIG instances on several parents, or whole GPUs."""
    indices = st.integers(0, 5)
    shared = st.lists(st.builds(gpu, indices, st.integers(1, 6)), max_size=5, unique_by=lambda unit: unit.uuid)
    instances = st.lists(
        st.builds(mig, indices, st.integers(0, 3), st.sampled_from((0, 2))),
        max_size=8,
        unique_by=lambda unit: unit.uuid,
    )
    whole = st.lists(st.builds(gpu, indices), max_size=6, unique_by=lambda unit: unit.uuid)
    return st.one_of(shared, instances, whole)


@st.composite
def requests(draw: st.DrawFn) -> tuple[Offer, list[str], list[str], int]:
    an_offer = offer(*draw(units()), policy=draw(POLICIES))
    ids = [*ids_of(an_offer), "GPU-x", "GPU-x::1", ""]
    refused = draw(st.sets(st.sampled_from(ids), max_size=3))
    an_offer = replace(an_offer, refused=dict.fromkeys(refused, "draining"))
    available = draw(st.lists(st.sampled_from(ids), max_size=30))
    must = draw(st.lists(st.sampled_from(available or ids), max_size=4))
    return an_offer, available, must, draw(st.integers(-2, 12))


@given(requests())
def test_an_answer_is_whole_or_empty_and_stays_within_what_was_offered(
    request: tuple[Offer, list[str], list[str], int],
) -> None:
    an_offer, available, must, size = request
    answer = prefer(an_offer, available, must, size)
    known_must = set(must) & set(ids_of(an_offer))
    assert len(set(answer)) == len(answer)
    assert set(answer) <= (set(available) | set(must)) & set(ids_of(an_offer))
    if answer:
        assert known_must <= set(answer)
        assert len(answer) == max(size, len(known_must))


@given(requests(), st.randoms(use_true_random=False))
def test_the_order_of_the_request_means_nothing(
    request: tuple[Offer, list[str], list[str], int], rng: random.Random
) -> None:
    an_offer, available, must, size = request
    shuffled, shuffled_must = rng.sample(available, len(available)), rng.sample(must, len(must))
    assert set(prefer(an_offer, available, must, size)) == set(prefer(an_offer, shuffled, shuffled_must, size))


@given(requests())
def test_what_can_be_met_is_met(request: tuple[Offer, list[str], list[str], int]) -> None:
    an_offer, available, _, size = request
    known = [device_id for device_id in dict.fromkeys(available) if device_id in an_offer.device_by_id]
    must = known[:2]
    answer = prefer(an_offer, known, must, size)
    assert bool(answer) == (len(must) <= size <= len(known) and size > 0) or len(must) > size


@given(requests())
def test_refused_devices_are_left_alone_while_others_do(request: tuple[Offer, list[str], list[str], int]) -> None:
    an_offer, available, _, size = request
    known = [device_id for device_id in dict.fromkeys(available) if device_id in an_offer.device_by_id]
    good = [device_id for device_id in known if device_id not in an_offer.refused]
    if 0 < size <= len(good):
        assert not set(prefer(an_offer, known, [], size)) & set(an_offer.refused)


def shape(answer: list[str]) -> list[int]:
    return sorted(Counter(unit_of(device_id) for device_id in answer).values(), reverse=True)


def parent(uuid: str) -> str:
    return uuid if uuid.startswith("GPU-") else f"GPU-{uuid[4:12]}-0000-4000-8000-000000000000"


def recorded_offer(resource: dict[str, Any], name: str, policy: AllocationPolicy) -> Offer:
    replicas: Counter[str] = Counter()
    for device in resource["devices"]:
        replicas[unit_of(device["id"])] += is_replica(device["id"])
    return offer(
        *(
            Unit(uuid, parent(uuid), int(uuid[4:12], 16), uuid, count, None if uuid.startswith("GPU-") else "profile")
            for uuid, count in replicas.items()
        ),
        name=name,
        policy=policy,
    )


def recorded(numbers: tuple[str, ...]) -> Iterator[tuple[str, Offer, dict[str, Any]]]:
    for case in sorted(GOLDEN.iterdir()):
        if case.name.startswith(numbers):
            expected = json.loads((case / "expected.json").read_text())
            policy = AllocationPolicy.PACKED if "packed" in case.name else AllocationPolicy.DISTRIBUTED
            for name, resource in expected["resources"].items():
                for call in resource.get("preferred", ()):
                    yield case.name, recorded_offer(resource, name, policy), call


@pytest.mark.parametrize("number", [*SHARED_CASES, "115"])
def test_nvidias_recorded_answers(number: str) -> None:
    seen = 0
    for case, an_offer, call in recorded((number,)):
        asked = call["request"]
        answer = prefer(an_offer, asked["available"], asked["must"], asked["size"])
        unknown_must = set(asked["must"]) - set(ids_of(an_offer))
        if call.get("random"):
            assert shape(answer) in call["shapes"], (case, call)
        elif unknown_must or "error" in (call["response"] or ()):
            assert answer == [], (case, call)
        else:
            assert sorted(answer) == call["response"], (case, call)
        seen += 1
    assert seen


def test_distributed_balances_by_fraction_where_replica_counts_differ() -> None:
    """By count the 2-replica GPU would fill first (reports D5)."""
    uneven = offer(gpu(0, 2), gpu(1, 8))
    picks = prefer(uneven, ids_of(uneven), [], 5)
    assert Counter(map(unit_of, picks)) == {gpu(0).uuid: 1, gpu(1).uuid: 4}


def test_distributed_counts_mig_instances_on_their_parent() -> None:
    crowded = offer(*(mig(0, slot) for slot in range(4)), mig(1, 0), mig(1, 1))
    free = [unit.uuid for unit in (mig(0, 3), mig(1, 0), mig(1, 1))]
    assert set(prefer(crowded, free, [], 2)) == {mig(1, 0).uuid, mig(1, 1).uuid}
    assert shape([parent(i) for i in prefer(crowded, ids_of(crowded), [], 2)]) == [1, 1]


def test_packed_fills_the_fullest_gpu_first_and_stays_there() -> None:
    packed = offer(gpu(0, 4), gpu(1, 4), gpu(2, 4), policy=AllocationPolicy.PACKED)
    free = [i for i in ids_of(packed) if i not in (f"{gpu(1).uuid}::0", f"{gpu(1).uuid}::2")]
    assert prefer(packed, free, [], 2) == [f"{gpu(1).uuid}::1", f"{gpu(1).uuid}::3"]
    assert Counter(map(unit_of, prefer(packed, free, [], 6))) == {gpu(1).uuid: 2, gpu(0).uuid: 4}
    stays = prefer(packed, ids_of(packed), [f"{gpu(2).uuid}::0"], 3)
    assert set(map(unit_of, stays)) == {gpu(2).uuid}


def test_packed_mig_leaves_whole_parents_free() -> None:
    packed = offer(*(mig(g, s) for g in range(3) for s in range(4)), policy=AllocationPolicy.PACKED)
    free = [i for i in ids_of(packed) if i != mig(1, 0).uuid]
    assert {parent(i) for i in prefer(packed, free, [], 3)} == {gpu(1).uuid}


def test_spread_takes_one_from_each_gpu_whenever_there_are_enough() -> None:
    """The node of reports D2: 3 of 8 and 5 of 8 free, two asked for."""
    spread = offer(gpu(0, 8), gpu(1, 8), policy=AllocationPolicy.SPREAD)
    free = [f"{gpu(0).uuid}::{n}" for n in range(3)] + [f"{gpu(1).uuid}::{n}" for n in range(5)]
    assert shape(prefer(spread, free, [], 2)) == [1, 1]
    assert set(map(unit_of, prefer(spread, free, [f"{gpu(1).uuid}::0"], 2))) == {gpu(0).uuid, gpu(1).uuid}


@given(st.integers(1, 8), st.data())
def test_spread_is_as_distinct_as_it_can_be(size: int, data: st.DataObject) -> None:
    spread = offer(*(gpu(index, 10) for index in range(8)), policy=AllocationPolicy.SPREAD)
    free = data.draw(st.lists(st.sampled_from(ids_of(spread)), min_size=size, unique=True))
    answer = prefer(spread, free, [], size)
    assert len(set(map(unit_of, answer))) == min(size, len(set(map(unit_of, free))))


@pytest.mark.parametrize(
    ("policy", "size", "must", "gpus"),
    [
        (AllocationPolicy.DISTRIBUTED, 2, [], {1: 2}),
        (AllocationPolicy.DISTRIBUTED, 5, [], {1: 5}),
        (AllocationPolicy.PACKED, 2, [], {2: 2}),
        (AllocationPolicy.PACKED, 3, [], {0: 3}),  # GPU 2 is fuller, but has not enough
        (AllocationPolicy.DISTRIBUTED, 3, [0], {0: 3}),
        (AllocationPolicy.DISTRIBUTED, 6, [], {0: 2, 1: 3, 2: 1}),  # no GPU has so many: Allocate will refuse it
        (AllocationPolicy.DISTRIBUTED, 3, [2], {1: 2, 2: 1}),  # nor has the one with what must be included
    ],
)
def test_mps_shares_of_a_container_are_of_one_gpu(
    policy: AllocationPolicy, size: int, must: list[int], gpus: dict[int, int]
) -> None:
    mps = offer(*(gpu(index, 8) for index in range(3)), policy=policy, shared_by=Mode.MPS)
    free = [f"{gpu(index).uuid}::{n}" for index, count in enumerate((3, 5, 2)) for n in range(count)]
    taken = [f"{gpu(index).uuid}::1" for index in must]
    counts = Counter(map(unit_of, prefer(mps, free, taken, size)))
    assert counts == {gpu(index).uuid: count for index, count in gpus.items()}


def test_mps_shares_of_which_a_container_gets_one_are_chosen_as_nvidia_does() -> None:
    """More than one is refused whatever is preferred (golden 070)."""
    mps = offer(gpu(0, 4), gpu(1, 4), shared_by=Mode.MPS, refuse_more_than_one=True)
    assert shape(prefer(mps, ids_of(mps), [], 2)) == [1, 1]


def test_whole_gpus_of_which_nothing_is_known_come_in_order_of_index() -> None:
    whole = offer(*(gpu(index) for index in range(4)))
    assert prefer(whole, list(reversed(ids_of(whole))), [gpu(2).uuid], 3) == [gpu(2).uuid, gpu(0).uuid, gpu(1).uuid]


def test_unhealthy_devices_are_taken_last() -> None:
    sick = offer(replace(gpu(0, 2), health=Health.UNHEALTHY, reason="Xid 79"), gpu(1, 2))
    assert set(prefer(sick, ids_of(sick), [], 2)) == {f"{gpu(1).uuid}::0", f"{gpu(1).uuid}::1"}
    assert len(prefer(sick, ids_of(sick), [], 3)) == 3


def test_sixteen_hundred_shares_are_ranked_at_once() -> None:
    many = offer(*(gpu(index, 200) for index in range(8)))
    begin = time.process_time()
    assert len(prefer(many, ids_of(many), [], 800)) == 800
    assert time.process_time() - begin < 0.5
