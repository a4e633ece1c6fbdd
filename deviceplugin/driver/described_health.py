"""The part of a node description that is about health: what probes find, and events that happen.

driver:
  load: 1                             # another number: the kernel module was loaded anew, which resets every GPU
  eventFailure: {call: nvmlEventSetWait, message: Unknown Error, code: 999}     # waiting for events fails
gpus:
- index: 0
  health:
    uncorrectableEcc: 0               # the volatile counter
    remappingPending: false
    remappingFailed: false
    retirementPending: false
    noEvents: true                    # a board that reports none
    failure: {call: nvmlDeviceGetMemoryInfo, message: Unknown Error, code: 999}     # the probe fails
events:                               # each happens once, when the running plugin first sees it: append to them
- {gpu: 0, xid: 79}
- {gpu: 0, xid: 48, gpuInstanceId: 3, computeInstanceId: 0}
- {gpu: 0, uncorrectableEcc: true, times: 100}
- {xid: 79}                           # of a GPU that the driver can't name
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import groupby
from types import MappingProxyType

from deviceplugin.config.document import Plain
from deviceplugin.driver.fields import Fields
from deviceplugin.model.health import Check, Condition, DriverEvent, Signal, Xid
from deviceplugin.model.node import Failure

NO_CHECKS: Mapping[str, Check] = MappingProxyType({})
MAX_TIMES = 1_000_000


@dataclass(frozen=True, slots=True)
class DescribedHealth:
    """What a description says of health.

    Attributes:
        checks: what a probe of a GPU finds, by UUID; all is well with the others.
        events: in order.
        wait_failure: waiting for events fails with this.
        driver_load: as model.health.Probe.
    """

    checks: Mapping[str, Check] = field(default_factory=lambda: NO_CHECKS)
    events: tuple[DriverEvent, ...] = ()
    wait_failure: Failure | None = None
    driver_load: int | None = None


def read_failure(parent: Fields, key: str = "failure") -> Failure | None:
    """A driver call that fails; None when the description has none."""
    described = parent.fields(key)
    if described is None:
        return None
    failure = Failure(
        call=described.text("call", required=True) or "",
        message=described.text("message", required=True) or "",
        code=described.whole("code"),
    )
    described.refuse_others()
    return failure


def plain_failure(failure: Failure | None) -> dict[str, Plain] | None:
    """A failure as plain data."""
    if failure is None:
        return None
    return present(call=failure.call, message=failure.message, code=failure.code)


def present(**values: Plain) -> dict[str, Plain]:
    """The values that are there."""
    return {key: value for key, value in values.items() if value is not None}


def read_check(gpu: Fields, uuid: str | None) -> Check | None:
    """The probe that one GPU's `health` describes."""
    described = gpu.fields("health")
    if described is None or uuid is None:
        return None
    check = Check(
        uuid,
        failure=read_failure(described),
        uncorrectable_ecc=described.whole("uncorrectableEcc"),
        remapping_pending=described.flag("remappingPending"),
        remapping_failed=described.flag("remappingFailed"),
        retirement_pending=described.flag("retirementPending"),
        events=not described.flag("noEvents"),
    )
    described.refuse_others()
    return check


def read_events(top: Fields, uuid_of: Mapping[int, str | None]) -> tuple[DriverEvent, ...]:
    """The events of a description.

    Args:
        top: the whole description.
        uuid_of: the GPUs by index.
    """
    events: list[DriverEvent] = []
    for described in top.list_of_fields("events"):
        index = described.whole("gpu")
        xid = described.whole("xid")
        ecc = described.flag("uncorrectableEcc")
        times = described.whole("times")
        if (xid is None) == (not ecc):
            described.refuse("xid", "neither or both", "either xid or uncorrectableEcc: true")
        if index is not None and index not in uuid_of:
            described.refuse("gpu", str(index), "the index of a GPU above")
        if times is not None and times > MAX_TIMES:
            described.refuse("times", str(times), f"at most {MAX_TIMES}")
        signal: Signal = Condition.UNCORRECTABLE_ECC if xid is None else Xid(xid)
        uuid = None if index is None else uuid_of.get(index)
        event = DriverEvent(signal, uuid, described.whole("gpuInstanceId"), described.whole("computeInstanceId"))
        described.refuse_others()
        events += [event] * min(1 if times is None else times, MAX_TIMES)
    return tuple(events)


def plain_check(check: Check | None) -> dict[str, Plain] | None:
    """A probe as plain data."""
    if check is None:
        return None
    return present(
        uncorrectableEcc=check.uncorrectable_ecc,
        remappingPending=check.remapping_pending or None,
        remappingFailed=check.remapping_failed or None,
        retirementPending=check.retirement_pending or None,
        noEvents=None if check.events else True,
        failure=plain_failure(check.failure),
    )


def plain_events(events: tuple[DriverEvent, ...], index_of: Mapping[str | None, int]) -> list[Plain]:
    """Events as plain data; equal ones in a row are one entry."""
    entries: list[Plain] = []
    for event, run in groupby(events):
        times = len(list(run))
        entries.append(
            present(
                gpu=None if event.gpu_uuid is None else index_of[event.gpu_uuid],
                xid=event.signal.number if isinstance(event.signal, Xid) else None,
                uncorrectableEcc=None if isinstance(event.signal, Xid) else True,
                gpuInstanceId=event.gpu_instance_id,
                computeInstanceId=event.compute_instance_id,
                times=None if times == 1 else times,
            )
        )
    return entries
