"""Parts of the text that more than one command prints."""

import shlex
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

MOST_IDS_NAMED = 8
"""A line names so many ids and counts the others."""


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


def by_pod(ids: Iterable[str], pods: Mapping[str, str]) -> dict[str, list[str]]:
    """Device ids by the pod that holds them: `namespace/name`; last those of which no source names the pod.

    Args:
        pods: device id -> pod, where it is known.
    """
    found: dict[str, list[str]] = {}
    for device_id in ids:
        found.setdefault(pods.get(device_id, ""), []).append(device_id)
    named = sorted(found.items(), key=lambda item: (not item[0], item))
    return {pod or "a pod not listed yet": held for pod, held in named}


def holders(ids: Sequence[str], pods: Mapping[str, str]) -> str:
    """Who holds what, in one line: `default/a holds GPU-...::0, GPU-...::1; default/b holds GPU-...::2`."""
    lines = []
    for pod, held in by_pod(ids, pods).items():
        more = len(held) - MOST_IDS_NAMED
        lines.append(f"{pod} holds {', '.join(held[:MOST_IDS_NAMED])}" + (f" and {more} more" if more > 0 else ""))
    return "; ".join(lines)


def program(started: str) -> str:
    """What to type to run another command of this program, as it was started itself.

    Args:
        started: sys.argv[0].
    """
    if Path(started).suffix == ".py":  # python -m
        return f"{shlex.quote(sys.executable)} -m deviceplugin.cli.main"
    name = Path(started).name
    return name if shutil.which(name) == started else shlex.quote(started)
