"""Parts of the text that more than one command prints."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any


def render_left_out(left_out: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """What no resource offers: each reason once, with all that it keeps out."""
    by_reason: dict[str, list[str]] = {}
    for one in left_out:
        by_reason.setdefault(one["reason"], []).append(one["what"])
    if by_reason:
        yield "left out:"
    for reason, what in by_reason.items():
        yield f"  {what[0]}: {reason}" if len(what) == 1 else f"  {reason}:"
        yield from (f"    {one}" for one in what if len(what) > 1)
