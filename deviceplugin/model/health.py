"""Verdicts on GPUs and MIG instances beyond what a snapshot itself shows."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

NO_VERDICT: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class HealthReport:
    """Which GPUs and MIG instances are not to be given out.

    Attributes:
        unhealthy: UUID of a GPU (with everything on it) or of a MIG instance -> reason.
    """

    unhealthy: Mapping[str, str] = field(default_factory=lambda: NO_VERDICT)
