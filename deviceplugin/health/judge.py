"""What the known facts amount to: the verdicts for planning, and what status says of them. Pure."""

import time
from collections.abc import Iterator
from typing import Any

from deviceplugin.health.fold import awaits_reset, counting, required_quiet_s
from deviceplugin.health.policy import Policy, words
from deviceplugin.health.state import Cause, HealthState, Unit
from deviceplugin.model.health import HealthReport, Response
from deviceplugin.model.node import Snapshot

Document = dict[str, Any]

MAX_CAUSES_SAID = 5


def report(state: HealthState, policy: Policy) -> HealthReport:
    """Which GPUs and MIG instances are not to be given out, each with its causes and what is awaited.

    A reason says nothing that changes with time alone, so that an equal state makes equal lists.
    """
    return HealthReport({uuid: reason for uuid, unit in state.units.items() if (reason := _reason(unit, policy))})


def release_report(snapshot: Snapshot, reason: str) -> HealthReport:
    """Every GPU out of service for one reason: the driver has been let go of."""
    return HealthReport({gpu.uuid: reason for gpu in snapshot.gpus if gpu.uuid is not None})


def _reason(unit: Unit, policy: Policy) -> str:
    causes = counting(unit, policy)
    if not causes:
        return ""
    said = [_cause_words(cause) for cause in causes[:MAX_CAUSES_SAID]]
    more = [f"{len(causes) - MAX_CAUSES_SAID} more"] if len(causes) > MAX_CAUSES_SAID else []
    return f"{', '.join(said + more)}; awaited: {_awaited(unit, policy)}"


def _cause_words(cause: Cause) -> str:
    return f"{words(cause.signal)}: {cause.detail}" if cause.detail else words(cause.signal)


def _awaited(unit: Unit, policy: Policy) -> str:
    needs = ["a reset of the GPU"] if any(awaits_reset(cause, policy) for cause in counting(unit, policy)) else []
    needs.append(f"{required_quiet_s(unit, policy):.0f} s without a signal")
    needs.append("a probe that passes")
    return ", ".join(needs)


def documents(state: HealthState, policy: Policy, *, now: float) -> Iterator[Document]:
    """What status says: one entry for each GPU and MIG instance of which there is something to say.

    Args:
        state, policy: as they are.
        now: monotonic seconds.
    """
    for uuid, unit in sorted(state.units.items()):
        causes = counting(unit, policy)
        warned = {s: times for s, times in unit.counts.items() if policy.response(s) is Response.WARN}
        if not causes and not unit.counts and not (unit.check and not unit.check.events):
            continue
        yield {
            "uuid": uuid,
            "healthy": not causes,
            "reason": _reason(unit, policy),
            "causes": [_cause(cause, policy) for cause in causes],
            "awaited": _awaited(unit, policy) if causes else "",
            "quiet_for_s": round(now - max(cause.last_at for cause in causes), 1) if causes else None,
            "unhealthy_times_in_the_last_hour": len(unit.downs),
            "signals": {words(signal): times for signal, times in sorted(unit.counts.items(), key=_by_name)},
            "warnings": [f"{words(signal)}, {times} times" for signal, times in sorted(warned.items(), key=_by_name)],
            "events": unit.check is None or unit.check.events,
        }


def _cause(cause: Cause, policy: Policy) -> Document:
    return {
        "signal": _cause_words(cause),
        "response": policy.response(cause.signal).value,
        "since": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(cause.began)),
        "times": cause.times,
        "reset_since": cause.reset_since,
    }


def _by_name(counted: tuple[Any, int]) -> str:
    return words(counted[0])
