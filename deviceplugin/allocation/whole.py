"""Which whole GPUs a container should get: the best connected, and such that the others stay well connected."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from deviceplugin.allocation.subset import best_subset
from deviceplugin.model.links import LinkScores
from deviceplugin.model.plan import Device


def choose_whole_gpus(scores: LinkScores, free: Sequence[Device], must: Sequence[Device], count: int) -> list[str]:
    """The ids of the `count` devices of `free` that make the best set with `must`, in the order of `free`.

    The best set, each rule deciding among what those before it leave equal:
    1. has the greatest sum of link scores over its pairs (design 8);
    2. breaks the fewest good links to what it leaves free: of the best kind first, then of the next (reports K1);
    3. has the most pairs on one NUMA node;
    4. comes first in the order of `must` and `free`.

    Args:
        scores: among the GPUs; a pair that it does not know scores 0.
        free: at least `count` whole GPUs.
        must: whole GPUs that the set has anyway, none of them in `free`.
    """
    worth = _worth(scores, [*must, *free])
    fixed = range(len(must))
    choosable = range(len(must), len(must) + len(free))
    own = [worth.own[i] + sum([worth.pairs[i][j] for j in fixed]) for i in choosable]
    pairs = [worth.pairs[i][len(must) :] for i in choosable]
    return [free[place].id for place in best_subset(own, pairs, count)]


@dataclass(frozen=True, slots=True)
class _Worth:
    """What each device and each pair of devices adds to a set."""

    own: list[int]
    pairs: list[list[int]]


def _worth(scores: LinkScores, devices: Sequence[Device]) -> _Worth:
    """The four rules as one number, each in digits of its own above those of the next, so that nothing ever ties.

    A set breaks the links that its members have less those between two of them, which count for both; so this too is
    a sum over members and pairs. Kinds of links, each a score with or without a common NUMA node, have digits by rank.
    """
    size = len(devices)
    score = scores.among([device.unit_uuid for device in devices])
    pairs = list(combinations(range(size), 2))
    together = {pair: _on_one_numa_node(*(devices[i] for i in pair)) for pair in pairs}
    kinds = sorted({(score[i][j], together[i, j]) for i, j in pairs} - {(0, False)})
    digit = len(pairs) + 1  # more than can ever be summed up in one digit
    of_kind = {kind: digit**rank for rank, kind in enumerate(kinds)}
    above_broken = digit ** len(kinds)
    order = 1 << size
    own = [1 << (size - 1 - i) for i in range(size)]
    worth = [[0] * size for _ in devices]
    for i, j in pairs:
        numa = together[i, j]
        broken = of_kind.get((score[i][j], numa), 0)
        for end in (i, j):
            own[end] -= broken * digit * order
        worth[i][j] = worth[j][i] = ((score[i][j] * above_broken + 2 * broken) * digit + numa) * order
    return _Worth(own, worth)


def _on_one_numa_node(one: Device, other: Device) -> bool:
    return one.numa_node is not None and one.numa_node == other.numa_node
