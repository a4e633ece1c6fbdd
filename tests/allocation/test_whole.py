"""Which whole GPUs are preferred: the nodes of reports K1, what ties are decided by, and rules over random nodes."""

import random
from collections.abc import Iterable, Sequence
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deviceplugin.allocation.prefer import prefer
from deviceplugin.model.links import LinkScores
from deviceplugin.model.offer import Offer
from deviceplugin.model.plan import Device, Mode, Resource
from tests.allocation.offers import gpu, offer

SYSTEM, NODE, SWITCH = 10, 20, 50


def board(numa: Sequence[int | None], links: dict[tuple[int, int], int], others: int = SYSTEM) -> Offer:
    """Whole GPUs with their NUMA nodes, the scores of some pairs, and that of all others."""
    size = len(numa)
    rows = [[0 if i == j else links.get((min(i, j), max(i, j)), others) for j in range(size)] for i in range(size)]
    scores = LinkScores(tuple(gpu(index).uuid for index in range(size)), tuple(map(tuple, rows)))
    return offer(*(gpu(index, numa_node=node) for index, node in enumerate(numa)), link_scores=scores)


def choose(an_offer: Offer, size: int, available: Iterable[int] | None = None, must: Iterable[int] = ()) -> set[int]:
    """The indices of what is preferred; of all GPUs if none are said to be available."""
    free = range(len(an_offer.devices)) if available is None else available
    uuids = {gpu(index).uuid: index for index in range(len(an_offer.devices))}
    answer = prefer(an_offer, [gpu(i).uuid for i in free], [gpu(i).uuid for i in must], size)
    return {uuids[device_id] for device_id in answer}


def in_a_row(an_offer: Offer, sizes: Iterable[int]) -> list[set[int]]:
    """What requests get that come one after the other, all of them staying."""
    free = set(range(len(an_offer.devices)))
    given = []
    for size in sizes:
        given.append(choose(an_offer, size, free))
        free -= given[-1]
    return given


def pairs_of(links: int, *pairs: tuple[int, int]) -> dict[tuple[int, int], int]:
    """So many NVLinks between the two of each pair, across CPUs."""
    return dict.fromkeys(pairs, 100 * links + SYSTEM)


# Reports K1.

KDP_546 = board([0, 0, 0, 0, 1, 1, 1, 1], pairs_of(12, (0, 2), (1, 3), (4, 5), (6, 7)))
KDP_1193 = board([3, 2, 1, 0, 7, 6, 5, 4], pairs_of(4, (0, 1), (2, 3), (4, 5), (6, 7)))


def test_two_are_a_linked_pair() -> None:
    assert choose(KDP_546, 2) in ({0, 2}, {1, 3}, {4, 5}, {6, 7})


def test_four_are_two_pairs_on_one_numa_node() -> None:
    assert choose(KDP_546, 4) in ({0, 1, 2, 3}, {4, 5, 6, 7})


def test_the_pair_that_is_left_is_taken() -> None:
    assert choose(KDP_546, 2, {0, 1, 3}) == {1, 3}


def test_a_must_include_gpu_gets_its_partner() -> None:
    assert choose(KDP_546, 2, must={4}) == {4, 5}


def test_a_linked_pair_beats_one_on_the_same_node() -> None:  # kdp#436
    four = board([0, 0, 1, 1], {(0, 1): 1200 + SYSTEM, (2, 3): NODE})
    assert choose(four, 2) == {0, 1}
    assert choose(four, 1) in ({2}, {3})


def test_a_pair_of_which_nothing_is_known_is_the_worst() -> None:  # rocm#210
    three = board([None] * 3, {(0, 2): 0, (0, 1): 0, (1, 2): SYSTEM})
    assert choose(three, 2) == {1, 2}
    nothing = board([None] * 4, {}, others=0)
    assert choose(nothing, 2) == {0, 1}


def test_four_single_gpus_use_up_two_pairs_and_leave_two_whole() -> None:  # kdp#1193
    singles = in_a_row(KDP_1193, [1, 1, 1, 1])
    used = set.union(*singles)
    pairs = [{0, 1}, {2, 3}, {4, 5}, {6, 7}]
    assert len(used) == 4
    assert [pair <= used for pair in pairs].count(True) == 2
    assert [pair.isdisjoint(used) for pair in pairs].count(True) == 2
    assert in_a_row(KDP_1193, [1, 1, 1, 1, 2, 2])[4:] == [pair for pair in pairs if pair.isdisjoint(used)]


def test_with_one_of_a_pair_taken_two_are_the_other_pair() -> None:  # kdp#39
    four = board([0, 0, 0, 0], {(0, 1): SWITCH, (2, 3): SWITCH}, others=NODE)
    assert choose(four, 2, {1, 2, 3}) == {2, 3}
    assert choose(four, 1, {1, 2, 3}) == {1}


# What decides among sets of one score.


def test_three_are_a_pair_and_the_odd_one_out() -> None:
    assert choose(KDP_1193, 3, {0, 1, 2, 3, 5}) in ({0, 1, 5}, {2, 3, 5})


def test_a_good_link_is_not_broken_to_spare_many_poor_ones() -> None:
    """The linked pair's PCIe links are few; the others have many among each other, worth more in sum."""
    eight = board([0] * 8, {**dict.fromkeys(combinations(range(2, 8), 2), SWITCH), **pairs_of(1, (0, 1))})
    assert choose(eight, 1).isdisjoint({0, 1})


def test_the_numa_node_with_fewer_left_is_used_up_first() -> None:
    switched = board([0, 0, 0, 1, 1, 1], {}, others=1200 + SYSTEM)
    assert choose(switched, 1, {0, 1, 2, 4}) == {4}


def test_numa_decides_where_links_say_nothing() -> None:
    unknown = board([0, 1, 0, 1, None, None], {}, others=0)
    assert choose(unknown, 2) == {0, 2}
    assert choose(unknown, 1) == {4}
    assert choose(unknown, 2, must={3}) == {1, 3}


def test_no_numa_node_is_no_common_one() -> None:
    assert choose(board([None, None, 1, 1], {}, others=0), 2) == {2, 3}


def test_the_order_decides_last() -> None:
    equal = board([0] * 4, {})
    assert [choose(equal, size) for size in (1, 2, 3)] == [{0}, {0, 1}, {0, 1, 2}]
    assert choose(equal, 2, {3, 2, 1}) == {1, 2}


# What else is on the list.


def test_shares_that_drain_do_not_hide_the_links() -> None:
    """The GPU's holder has it as shares from before an edit; the others are given out whole, as the plan says."""
    before = board([0] * 4, pairs_of(2, (1, 3)))
    resource = Resource(
        "nvidia.com/gpu",
        Mode.EXCLUSIVE,
        (gpu(0, 4), *before.resource.units[1:]),
        link_scores=before.resource.link_scores,
    )
    held = f"{gpu(0).uuid}::2"
    draining = Offer(resource, (Device(held, gpu(0).uuid), *before.devices[1:]), frozenset((held,)), {held: "draining"})
    answer = prefer(draining, [gpu(1).uuid, gpu(2).uuid, gpu(3).uuid], [], 2)
    assert set(answer) == {gpu(1).uuid, gpu(3).uuid}


def test_a_gpu_that_is_refused_is_no_link_to_spare() -> None:
    four = board([0] * 4, pairs_of(4, (0, 1)))
    drained = Offer(four.resource, four.devices, refused={gpu(1).uuid: "waits"})
    assert choose(drained, 1) == {0}


# Rules over random nodes, through the call that the kubelet's request comes to.


@st.composite
def nodes(draw: st.DrawFn, largest: int) -> tuple[Offer, set[int], set[int], int]:
    """A node, what is available, what must be included, and a size that can be met."""
    count = draw(st.integers(1, largest))
    rng = draw(st.randoms(use_true_random=False))
    levels = draw(st.sampled_from(((10, 20), (0, 10, 50, 410), tuple(range(3000)))))
    links = {pair: rng.choice(levels) for pair in combinations(range(count), 2)}
    an_offer = board([rng.choice((0, 1, None)) for _ in range(count)], links)
    available = set(draw(st.sets(st.integers(0, count - 1), min_size=1)))
    must = set(rng.sample(sorted(available), rng.randrange(min(4, len(available) + 1))))
    return an_offer, available, must, draw(st.integers(max(1, len(must)), len(available)))


def score(an_offer: Offer, chosen: Iterable[int]) -> int:
    rows = an_offer.resource.link_scores.rows
    return sum(rows[i][j] for i, j in combinations(sorted(chosen), 2))


@settings(max_examples=60)
@given(nodes(largest=12))
def test_the_choice_is_allowed_and_scores_most(case: tuple[Offer, set[int], set[int], int]) -> None:
    an_offer, available, must, size = case
    chosen = choose(an_offer, size, available, must)
    assert must <= chosen <= available
    assert len(chosen) == size
    others = combinations(available - must, size - len(must))
    assert score(an_offer, chosen) == max(score(an_offer, {*must, *some}) for some in others)


@settings(max_examples=30)
@given(nodes(largest=16))
def test_never_below_a_greedy_choice(case: tuple[Offer, set[int], set[int], int]) -> None:
    an_offer, available, must, size = case
    for start in available if not must else [None]:
        greedy = must | ({start} if start is not None else set())
        while len(greedy) < size:
            greedy = max((greedy | {one} for one in sorted(available - greedy)), key=lambda some: score(an_offer, some))
        assert score(an_offer, choose(an_offer, size, available, must)) >= score(an_offer, greedy)


@settings(max_examples=40)
@given(nodes(largest=10), st.randoms(use_true_random=False))
def test_the_same_request_in_any_order_gets_the_same(
    case: tuple[Offer, set[int], set[int], int], rng: random.Random
) -> None:
    an_offer, available, must, size = case
    shuffled = rng.sample(sorted(available), len(available))
    assert choose(an_offer, size, shuffled, rng.sample(sorted(must), len(must))) == choose(
        an_offer, size, available, must
    )


@settings(max_examples=40)
@given(nodes(largest=8))
def test_among_the_best_it_breaks_the_fewest_good_links(case: tuple[Offer, set[int], set[int], int]) -> None:
    an_offer, available, must, size = case
    rows, numa = an_offer.resource.link_scores.rows, [unit.numa_node for unit in an_offer.resource.units]

    def broken(chosen: set[int]) -> list[tuple[int, bool]]:
        """Best first; comparing such lists compares the fewest of the best kind, then of the next."""
        cut = [(i, j) for i in chosen for j in available - chosen]
        kinds = [(rows[i][j], numa[i] is not None and numa[i] == numa[j]) for i, j in cut]
        return sorted((kind for kind in kinds if kind != (0, False)), reverse=True)

    chosen = choose(an_offer, size, available, must)
    others = [{*must, *some} for some in combinations(available - must, size - len(must))]
    best = [some for some in others if score(an_offer, some) == score(an_offer, chosen)]
    assert broken(chosen) == min(map(broken, best))


@pytest.mark.parametrize("size", range(1, 33))
def test_a_node_larger_than_any_is_answered_too(size: int) -> None:
    many = board([index // 16 for index in range(32)], {(i, i + 1): 410 for i in range(0, 32, 2)})
    chosen = choose(many, size)
    assert len(chosen) == size
    assert sum({i, i + 1} <= chosen for i in range(0, 32, 2)) == size // 2
