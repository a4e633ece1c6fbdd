"""Over random histories the fold agrees with the specification."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from deviceplugin.health.fold import on_events, on_look
from deviceplugin.health.judge import report
from deviceplugin.health.policy import Policy
from deviceplugin.health.state import HealthState
from deviceplugin.model.health import Check, DriverEvent, Xid
from tests.health.nodes import NO_RESPONSE, failing, mig_uuid, node, probe, uuid
from tests.health.specification import Looked, Signalled, unhealthy_units

POLICY = Policy()
QUIET_S = POLICY.quiet_s
SNAPSHOT = node(2, migs=2)
MIGS = {mig_uuid(gpu, slot): (gpu, 3 + slot) for gpu in range(2) for slot in range(2)}
UNITS = [uuid(0), uuid(1), *MIGS]

_xids = st.sampled_from([13, 92, 94, 999, 48, 79])
_pauses = st.sampled_from([0.0, 1.0, 10.0, QUIET_S - 1, QUIET_S, 2 * QUIET_S, 4 * QUIET_S, 4000.0])
_events = st.tuples(st.just("event"), _pauses, st.sampled_from(UNITS), _xids)
# An instance fails alone or with its GPU; a GPU is set back by a counter that goes down.
_looks = st.tuples(
    st.just("look"), _pauses, st.sets(st.sampled_from(UNITS), max_size=2), st.sets(st.sampled_from([0, 1]))
)


@given(st.lists(st.one_of(_events, _looks), max_size=30))
def test_the_unhealthy_are_those_of_the_specification(steps: Sequence[tuple[str, float, object, object]]) -> None:
    errors = {0: 1000, 1: 1000}
    first = probe(SNAPSHOT, *(Check(uuid(gpu), uncorrectable_ecc=count) for gpu, count in errors.items()))
    state = on_look(HealthState(), SNAPSHOT, first, POLICY, now=0.0, at=0.0)
    history: list[Signalled | Looked] = [Looked(0.0)]
    now = 0.0
    for kind, pause, what, detail in steps:
        now += pause
        if kind == "event":
            assert isinstance(what, str)
            assert isinstance(detail, int)
            state = on_events(state, [_event(what, detail)], SNAPSHOT, POLICY, now=now, at=now)
            history.append(Signalled(now, what, Xid(detail), POLICY.response(Xid(detail))))
        else:
            assert isinstance(what, set)
            assert isinstance(detail, set)
            broken = _with_instances(what)
            snapshot = failing(SNAPSHOT, NO_RESPONSE, *what)
            reset = {gpu for gpu in detail if uuid(gpu) not in broken}
            for gpu in reset:
                errors[gpu] -= 1
            checks = [Check(uuid(gpu), uncorrectable_ecc=count) for gpu, count in errors.items()]
            state = on_look(state, snapshot, probe(snapshot, *checks), POLICY, now=now, at=now)
            history.append(Looked(now, broken, _with_instances({uuid(gpu) for gpu in reset})))
        assert report(state, POLICY).unhealthy.keys() == unhealthy_units(history, QUIET_S)


def _event(unit: str, number: int) -> DriverEvent:
    if unit in MIGS:
        gpu, gi = MIGS[unit]
        return DriverEvent(Xid(number), uuid(gpu), gi, 0)
    return DriverEvent(Xid(number), unit)


def _with_instances(units: set[str]) -> frozenset[str]:
    """What fails or is reset with these: the instances of a GPU as well."""
    below = {mig for mig, (gpu, _) in MIGS.items() if uuid(gpu) in units}
    return frozenset(units | below)
