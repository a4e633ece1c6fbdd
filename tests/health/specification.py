"""What must be unhealthy after a history, computed anew from the whole of it; knows nothing but the model.

A unit is a GPU or a MIG instance. A signal is *overcome* at a look that finds the unit in order, once nothing has
counted against the unit for as long as it must be quiet; one that asks for a reset only if the unit was reset after
the last signal of its kind.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from deviceplugin.model.health import Response, Signal

HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class Signalled:
    """A signal reached a unit."""

    at_s: float
    unit: str
    signal: Signal
    response: Response


@dataclass(frozen=True, slots=True)
class Looked:
    """Everything was looked at: these units were not in order, these have been reset since the look before."""

    at_s: float
    broken: frozenset[str] = frozenset()
    reset: frozenset[str] = frozenset()


History = Sequence[Signalled | Looked]


def unhealthy_units(history: History, quiet_s: float) -> frozenset[str]:
    """The units that are out of service at the end."""
    units = {step.unit for step in history if isinstance(step, Signalled)}
    units |= {unit for step in history if isinstance(step, Looked) for unit in step.broken}
    return frozenset(unit for unit in units if _open_signals(history, unit, quiet_s))


def _open_signals(history: History, unit: str, quiet_s: float) -> set[object]:
    """Signals not overcome; a broken look counts as a signal of its own kind."""
    against: list[tuple[int, float, object, bool]] = []  # position, time, kind, asks for a reset
    gone_down: list[float] = []
    standing: set[object] = set()
    for position, step in enumerate(history):
        if isinstance(step, Signalled):
            counts = step.unit == unit and step.response.takes_out
            kind: object = step.signal
            asks_reset = step.response is Response.UNTIL_RESET
        else:
            counts, kind, asks_reset = unit in step.broken, "broken", False
        if counts:
            if not standing:
                gone_down = [t for t in gone_down if step.at_s - t < HOUR_S] + [step.at_s]
            standing.add(kind)
            against.append((position, step.at_s, kind, asks_reset))
        elif isinstance(step, Looked) and standing:
            must_be_quiet = min(quiet_s * 2.0 ** max(0, len(gone_down) - 2), max(HOUR_S, quiet_s))
            last = max(time for _, time, kind_, _ in against if kind_ in standing)
            if step.at_s - last >= must_be_quiet:
                standing = {kind_ for kind_ in standing if _wants_reset(history[: position + 1], unit, kind_, against)}
    return standing


def _wants_reset(history: History, unit: str, kind: object, against: list[tuple[int, float, object, bool]]) -> bool:
    position, _, _, asks_reset = [one for one in against if one[2] == kind][-1]
    later = history[position + 1 :]
    return asks_reset and not any(isinstance(step, Looked) and unit in step.reset for step in later)
