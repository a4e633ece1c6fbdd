"""(state, what the driver said, policy, now) -> state. Pure: monotonic `now` and wall-clock `at` are passed in.

How a GPU or MIG instance leaves service and comes back:
- A signal that the policy lets take it out becomes one of its causes. As long as it has a cause it is unhealthy.
- Causes go when, at one and the same look, the last signal of any of them is `quiet_s` ago and the probe passes: handle
  by UUID, memory, no counter that grew, nothing that awaits a reset. One that asks for a reset goes only if, besides,
  there has been evidence of one since. Nothing else ever removes a cause but a policy that no longer lets it count.
- The third time within an hour, and every time after, it must have been quiet for twice as long as the time before.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from deviceplugin.health.policy import Policy
from deviceplugin.health.state import Cause, HealthState, Unit
from deviceplugin.model.health import Check, Condition, DriverEvent, Probe, Response, Signal
from deviceplugin.model.node import Failure, Snapshot

FLAPPING_WITHIN_S = 3600.0
PATIENT_TIMES = 2
LONGEST_QUIET_S = 3600.0
MAX_DOUBLINGS = 32

# NVML_ERROR_GPU_IS_LOST and NVML_ERROR_RESET_REQUIRED (nvml.h).
GPU_IS_LOST, RESET_REQUIRED = 15, 16
# A unit's counters stay bounded, whatever numbers a driver sends.
MAX_COUNTED_SIGNALS = 64


def on_events(
    state: HealthState, events: Iterable[DriverEvent], snapshot: Snapshot, policy: Policy, *, now: float, at: float
) -> HealthState:
    """Learn of events, in order.

    Args:
        state: before.
        events: as the driver gave them.
        snapshot: which GPUs and MIG instances there are.
        policy: which signals take a unit out.
        now: monotonic seconds.
        at: seconds since the epoch.
    """
    units = dict(state.units)
    unknown = state.unknown_events
    for event in events:
        targets = _targets(event, snapshot)
        unknown += not targets
        for uuid in targets:
            units[uuid] = _signalled(units.get(uuid, Unit()), event.signal, policy, now=now, at=at)
    return replace(state, units=units, unknown_events=unknown)


def on_look(
    state: HealthState, snapshot: Snapshot, probe: Probe, policy: Policy, *, now: float, at: float
) -> HealthState:
    """Learn from one look at every GPU: what stands, what shows a reset, and what recovers.

    Args:
        state, policy, now, at: as above.
        snapshot: the look, with the identity of lost GPUs remembered.
        probe: made right after it.
    """
    loaded_anew = None not in (state.driver_load, probe.driver_load) and state.driver_load != probe.driver_load
    checks = {check.uuid: check for check in probe.checks}
    units: dict[str, Unit] = {}

    def judge(uuid: str, failure: Failure | None, *, gpu_was_reset: bool = False) -> tuple[Unit, bool]:
        before = state.of(uuid)
        after = _looked_at(before, failure, checks.get(uuid))
        was_reset = gpu_was_reset or (loaded_anew and after.failure is None) or _shows_reset(before, after)
        units[uuid] = _judged(before, after, checks.get(uuid), policy, was_reset=was_reset, now=now, at=at)
        return units[uuid], was_reset

    for gpu in snapshot.gpus:
        if gpu.uuid is None:
            continue
        whole, was_reset = judge(gpu.uuid, gpu.failure)
        for instance in gpu.mig_instances:
            judge(instance.uuid, instance.failure or whole.failure, gpu_was_reset=was_reset)
    for uuid in state.units.keys() - units.keys():
        # What is not there any more and had nothing is forgotten; the rest is remembered for when it is back.
        if state.units[uuid].causes:
            units[uuid] = replace(state.units[uuid], present=False)
    load = state.driver_load if probe.driver_load is None else probe.driver_load
    return replace(state, units=units, driver_load=load)


def on_reset(state: HealthState) -> HealthState:
    """Somebody who must know says that every GPU has been reset: an operator, or a driver that was not loaded."""
    return replace(state, units={uuid: _with_reset(unit) for uuid, unit in state.units.items()})


def required_quiet_s(unit: Unit, policy: Policy) -> float:
    """How long the unit must be quiet this time, in seconds."""
    extra = min(max(0, len(unit.downs) - PATIENT_TIMES), MAX_DOUBLINGS)
    return min(policy.quiet_s * float(2**extra), max(LONGEST_QUIET_S, policy.quiet_s))


def counting(unit: Unit, policy: Policy) -> tuple[Cause, ...]:
    """The causes that take the unit out, by the policy of now."""
    return tuple(cause for cause in unit.causes if policy.response(cause.signal).takes_out)


def _targets(event: DriverEvent, snapshot: Snapshot) -> tuple[str, ...]:
    """The UUIDs of what an event is about; none when the driver lists no such thing."""
    gpu = next((gpu for gpu in snapshot.gpus if gpu.uuid is not None and gpu.uuid == event.gpu_uuid), None)
    if gpu is None or gpu.uuid is None:
        return ()
    if event.gpu_instance_id is None or not gpu.mig_enabled:
        return (gpu.uuid,)
    named = tuple(
        instance.uuid
        for instance in gpu.mig_instances
        if instance.gpu_instance_id == event.gpu_instance_id
        and event.compute_instance_id in (None, instance.compute_instance_id)
    )
    # What may not be listed may be what is meant, and is part of a GPU that is offered whole under migStrategy none.
    return named or ((gpu.uuid,) if gpu.mig_hidden is not None else ())


def _signalled(unit: Unit, signal: Signal, policy: Policy, *, now: float, at: float) -> Unit:
    counts = dict(unit.counts)
    if signal in counts or len(counts) < MAX_COUNTED_SIGNALS:
        counts[signal] = counts.get(signal, 0) + 1
    unit = replace(unit, counts=counts)
    if not policy.response(signal).takes_out:
        return unit
    return _blamed(unit, signal, policy, now=now, at=at)


def _blamed(unit: Unit, signal: Signal, policy: Policy, *, now: float, at: float, detail: str = "") -> Unit:
    """The unit with one more cause, or with a known one that came again."""
    known = next((cause for cause in unit.causes if cause.signal == signal), None)
    if known is None:
        fresh = Cause(signal, first_at=now, last_at=now, began=at, detail=detail)
        downs = unit.downs
        if not counting(unit, policy):
            downs = (*(down for down in downs if now - down < FLAPPING_WITHIN_S), now)
        return replace(unit, causes=(*unit.causes, fresh), downs=downs)
    again = replace(known, last_at=now, times=known.times + 1, detail=detail, reset_since=False)
    return replace(unit, causes=tuple(again if cause is known else cause for cause in unit.causes))


def _looked_at(unit: Unit, failure: Failure | None, check: Check | None) -> Unit:
    failure = failure or (check.failure if check else None)
    return replace(unit, check=check if check and not failure else unit.check, failure=failure, present=True)


def _shows_reset(before: Unit, after: Unit) -> bool:
    """Whether it must have been reset between two looks.

    It is back from being lost, from requiring a reset, or from not being there; what only a reset completes is
    complete; or its volatile error counter, which only a reset or a load of the driver sets back, went down (nvml.h,
    NVML_VOLATILE_ECC).
    """
    if after.failure is not None:
        return False
    if before.causes and not before.present:
        return True
    if before.failure is not None and before.failure.code in (GPU_IS_LOST, RESET_REQUIRED):
        return True
    was, now = before.check, after.check
    if was is None or now is None:
        return False
    completed = (was.remapping_pending and now.remapping_pending is False) or (
        was.retirement_pending and now.retirement_pending is False
    )
    return bool(completed) or (now.uncorrectable_ecc or 0) < (was.uncorrectable_ecc or 0)


def _judged(
    before: Unit, after: Unit, check: Check | None, policy: Policy, *, was_reset: bool, now: float, at: float
) -> Unit:
    """The unit with what the look found as causes, and without those that have been overcome."""
    if was_reset:
        after = _with_reset(after)
    found = [signal for signal in _findings(before, after, check) if policy.response(signal).takes_out]
    for signal in found:
        detail = str(after.failure) if signal in (Condition.FAILED_CALL, Condition.RESET_REQUIRED) else ""
        after = _blamed(after, signal, policy, now=now, at=at, detail=detail)
    standing = counting(after, policy)
    overcome = (
        check is not None
        and after.failure is None
        and not found
        and standing
        and now - max(cause.last_at for cause in standing) >= required_quiet_s(after, policy)
    )
    return replace(after, causes=tuple(c for c in standing if not overcome or awaits_reset(c, policy)))


def awaits_reset(cause: Cause, policy: Policy) -> bool:
    """Whether only evidence of a reset can end a cause, and there is none."""
    return policy.response(cause.signal) is Response.UNTIL_RESET and not cause.reset_since


def _findings(before: Unit, after: Unit, check: Check | None) -> Iterator[Signal]:
    """What a look finds wrong, as signals."""
    if after.failure is not None:
        yield Condition.RESET_REQUIRED if after.failure.code == RESET_REQUIRED else Condition.FAILED_CALL
    if check is None:
        return
    was = before.check.uncorrectable_ecc if before.check else None
    if was is not None and check.uncorrectable_ecc is not None and check.uncorrectable_ecc > was:
        yield Condition.UNCORRECTABLE_ECC
    if check.remapping_pending:
        yield Condition.REMAPPING_PENDING
    if check.remapping_failed:
        yield Condition.REMAPPING_FAILED
    if check.retirement_pending:
        yield Condition.RETIREMENT_PENDING


def _with_reset(unit: Unit) -> Unit:
    return replace(unit, causes=tuple(replace(cause, reset_since=True) for cause in unit.causes))
