"""Seeded randomness: the orders that the kubelet leaves to Go's maps, repeatable (F6)."""

from __future__ import annotations

import random


def seeded(seed: int) -> random.Random:
    """A generator that always yields the same sequence for `seed`."""
    return random.Random(seed)  # noqa: S311 - repeatable on purpose, not for secrets


def fork(rng: random.Random) -> random.Random:
    """A generator of its own, so that draws in one part do not shift those in another."""
    return seeded(rng.getrandbits(64))
