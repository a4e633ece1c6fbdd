"""What the driver tells about health, what a policy makes of it, and the verdicts that planning reads."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from deviceplugin.model.node import Failure

NO_VERDICT: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class HealthReport:
    """Which GPUs and MIG instances are not to be given out.

    Attributes:
        unhealthy: UUID of a GPU (with everything on it) or of a MIG instance -> reason.
    """

    unhealthy: Mapping[str, str] = field(default_factory=lambda: NO_VERDICT)


class Response(StrEnum):
    """What a signal does to the GPU or MIG instance that it is about; the words of the config file."""

    IGNORE = "ignore"
    WARN = "warn"
    UNTIL_RECOVERED = "untilRecovered"
    UNTIL_RESET = "untilReset"

    @property
    def takes_out(self) -> bool:
        """Whether the GPU or MIG instance is unhealthy from now on."""
        return self in (Response.UNTIL_RECOVERED, Response.UNTIL_RESET)


class Condition(StrEnum):
    """A signal that is no Xid; the keys of the config file's `health.conditions`."""

    UNCORRECTABLE_ECC = "uncorrectableEcc"
    REMAPPING_PENDING = "remappingPending"
    REMAPPING_FAILED = "remappingFailed"
    RETIREMENT_PENDING = "retirementPending"
    RESET_REQUIRED = "resetRequired"
    FAILED_CALL = "failedCall"


@dataclass(frozen=True, slots=True, order=True)
class Xid:
    """An Xid error by its number (NVIDIA's XID Errors document)."""

    number: int


Signal = Xid | Condition


@dataclass(frozen=True, slots=True)
class DriverEvent:
    """Something that the driver reported at the moment it happened.

    Attributes:
        signal: an Xid, or Condition.UNCORRECTABLE_ECC for a double-bit ECC error.
        gpu_uuid: None when the driver would not say which GPU it means.
        gpu_instance_id, compute_instance_id: which MIG instance; both None when the whole GPU is meant. Without the
            second, every compute instance of the first.
    """

    signal: Signal
    gpu_uuid: str | None
    gpu_instance_id: int | None = None
    compute_instance_id: int | None = None


@dataclass(frozen=True, slots=True)
class Check:
    """One probe of a GPU or MIG instance. None: not supported there, which is no fault.

    Attributes:
        uuid: of the GPU or MIG instance.
        failure: the first call that failed: a handle by UUID, memory, and for a GPU the counters below.
        uncorrectable_ecc: volatile count: errors since the driver was loaded or the GPU reset.
        remapping_pending, remapping_failed: a row remapping awaits a reset; one could not be done.
        retirement_pending: a page retirement awaits a reset (boards older than A100).
        events: whether the GPU reports events; without, it is known by probes only.
    """

    uuid: str
    failure: Failure | None = None
    uncorrectable_ecc: int | None = None
    remapping_pending: bool | None = None
    remapping_failed: bool | None = None
    retirement_pending: bool | None = None
    events: bool = True


@dataclass(frozen=True, slots=True)
class Probe:
    """One round of probes.

    Attributes:
        checks: one for each GPU and MIG instance that the snapshot beside it shows without a failure.
        driver_load: differs between two loads of the kernel module, None where that can't be told. A load resets
            every GPU.
    """

    checks: tuple[Check, ...] = ()
    driver_load: int | None = None
