"""The best few of several things by what each of them, and each pair of them, is worth. Whole numbers, no devices.

Choosing them is the densest-subgraph problem, for which no fast exact way is known, so the exact way ends at a size
that keeps every answer within milliseconds; beyond it a search whose work grows with the cube of the size at most.
"""

from collections.abc import Sequence
from itertools import combinations
from operator import add
from typing import Final

EXACT_UP_TO: Final = 16
"""With so many the optimum is found, over 12,870 sets at most; no node in use has more GPUs in one resource."""

STARTS: Final = 16
"""Beyond that, the search grows a set from so many different things and improves the best one."""

Matrix = Sequence[Sequence[int]]


def best_subset(own: Sequence[int], pairs: Matrix, count: int) -> tuple[int, ...]:
    """The places, in rising order, of the `count` things whose set is worth most.

    Of sets worth the same any may be chosen, always the same one; make worths differ to choose between them.

    Args:
        own: what each thing is worth.
        pairs: what each pair is worth besides; symmetric, with 0 on the diagonal.
        count: 0 to `len(own)`.
    """
    search = _exact if len(own) <= EXACT_UP_TO else _grown
    return search(own, pairs, count)


def _worth(own: Sequence[int], pairs: Matrix, places: Sequence[int]) -> int:
    return sum([own[i] for i in places]) + sum([pairs[i][j] for i, j in combinations(places, 2)])


def _exact(own: Sequence[int], pairs: Matrix, count: int) -> tuple[int, ...]:
    """Looks at every set, as part of one half joined with part of the other.

    What a part is worth alone, and with each thing of the other half, is worked out once for all sets it is in; a set
    then costs one sum, and all sets with the same part of the first half are summed in one go.
    """
    half = len(own) // 2
    first, second = range(half), range(half, len(own))
    best: tuple[int, ...] = ()
    best_worth: int | None = None
    for size in range(max(0, count - half), min(count, len(second)) + 1):
        tails = list(combinations(second, size))
        alone = [_worth(own, pairs, tail) for tail in tails]
        joined = [[sum([row[j] for j in tail]) for tail in tails] for row in pairs[:half]]
        for head in combinations(first, count - size):
            sums = list(map(sum, zip(alone, *[joined[i] for i in head], strict=True)))
            top = max(sums)
            worth = _worth(own, pairs, head) + top
            if best_worth is None or worth > best_worth:
                best, best_worth = head + tails[sums.index(top)], worth
    return best


def _grown(own: Sequence[int], pairs: Matrix, count: int) -> tuple[int, ...]:
    """Grows sets greedily from the most promising things, and exchanges one for one in the best while that helps."""
    if count == 0:
        return ()
    promise = [alone + sum(row) for alone, row in zip(own, pairs, strict=True)]
    starts = sorted(range(len(own)), key=promise.__getitem__, reverse=True)[:STARTS]
    grown = [_grow(own, pairs, count, start) for start in starts]
    best = max(grown, key=lambda places: _worth(own, pairs, sorted(places)))
    for _ in own:
        if not _exchange(own, pairs, best):
            break
    return tuple(sorted(best))


def _grow(own: Sequence[int], pairs: Matrix, count: int, start: int) -> set[int]:
    """From one thing on, always the one that adds most."""
    chosen = {start}
    gains = list(map(add, own, pairs[start]))
    left = set(range(len(own))) - chosen
    while len(chosen) < count:
        place = max(sorted(left), key=gains.__getitem__)
        left.remove(place)
        chosen.add(place)
        gains = list(map(add, gains, pairs[place]))
    return chosen


def _exchange(own: Sequence[int], pairs: Matrix, chosen: set[int]) -> bool:
    """Makes the one exchange that helps most. Returns whether there was one."""
    gains = [alone + sum([row[i] for i in chosen]) for alone, row in zip(own, pairs, strict=True)]
    others = [place for place in range(len(own)) if place not in chosen]
    exchanges = [(gains[to] - gains[out] - pairs[out][to], out, to) for out in sorted(chosen) for to in others]
    better, out, to = max(exchanges, default=(0, 0, 0))
    if better <= 0:
        return False
    chosen.remove(out)
    chosen.add(to)
    return True
