"""What is known of the health of each GPU and MIG instance: facts. What they amount to is for health.judge."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from deviceplugin.model.health import Check, Signal
from deviceplugin.model.node import Failure

NO_COUNTS: Mapping[Signal, int] = MappingProxyType({})
NO_UNITS: Mapping[str, "Unit"] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Cause:
    """A signal that has not been overcome.

    Attributes:
        first_at, last_at: monotonic seconds.
        began: seconds since the epoch of the first, for people.
        times: how often it came since then.
        detail: the newest one's own words, e.g. which call failed.
        reset_since: there has been evidence of a reset after the last.
    """

    signal: Signal
    first_at: float
    last_at: float
    began: float
    times: int = 1
    detail: str = ""
    reset_since: bool = False


@dataclass(frozen=True, slots=True)
class Unit:
    """A GPU or MIG instance.

    Attributes:
        causes: by signal, in the order in which they first came.
        downs: when it became unhealthy, within the last hour; monotonic seconds.
        check: the newest complete probe, however old; None before the first.
        failure: the call that failed at the newest look; None when all went well.
        present: whether the newest look found it at all.
        counts: how often each signal came since the start; signals that are ignored, too.
    """

    causes: tuple[Cause, ...] = ()
    downs: tuple[float, ...] = ()
    check: Check | None = None
    failure: Failure | None = None
    present: bool = False
    counts: Mapping[Signal, int] = field(default_factory=lambda: NO_COUNTS)


@dataclass(frozen=True, slots=True)
class HealthState:
    """All of it.

    Attributes:
        units: by UUID of the GPU or MIG instance.
        unknown_events: events that named no device that the driver lists; they mark nothing.
        driver_load: of the newest probe that could tell (model.health.Probe).
    """

    units: Mapping[str, Unit] = field(default_factory=lambda: NO_UNITS)
    unknown_events: int = 0
    driver_load: int | None = None

    def of(self, uuid: str) -> Unit:
        """What is known of one; nothing yet, when nothing is."""
        return self.units.get(uuid, NOTHING_KNOWN)


NOTHING_KNOWN = Unit()
