"""How GPUs and MIG instances leave service and come back, with a stepped clock (issue 4, statements 2 to 4)."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from deviceplugin.config.model import HealthConfig
from deviceplugin.config.settings import XidList
from deviceplugin.health.fold import on_events, on_look, on_reset
from deviceplugin.health.judge import documents, report
from deviceplugin.health.policy import Policy
from deviceplugin.health.state import HealthState
from deviceplugin.model.health import Check, Condition, DriverEvent, Probe, Response, Xid
from deviceplugin.model.node import Failure, Snapshot
from tests.health.nodes import LOST, NO_RESPONSE, failing, mig_uuid, node, probe, uuid, xid

QUIET_S = 60.0


@dataclass
class Watch:
    """A node that is watched, on a clock of its own."""

    snapshot: Snapshot = field(default_factory=node)
    policy: Policy = field(default_factory=Policy)
    state: HealthState = field(default_factory=HealthState)
    now: float = 1000.0

    def __post_init__(self) -> None:
        self.look()

    def events(self, *events: DriverEvent) -> None:
        """Events, now."""
        self.state = on_events(self.state, events, self.snapshot, self.policy, now=self.now, at=self.now)

    def look(self, *special: Check, after: float = 0.0, driver_load: int | None = None) -> frozenset[str]:
        """Look at all, some seconds later. Returns what is unhealthy then."""
        self.now += after
        found = probe(self.snapshot, *special, driver_load=driver_load)
        self.state = on_look(self.state, self.snapshot, found, self.policy, now=self.now, at=self.now)
        return self.unhealthy

    @property
    def unhealthy(self) -> frozenset[str]:
        """The UUIDs that are out of service."""
        return frozenset(report(self.state, self.policy).unhealthy)

    def reason(self, of: str) -> str:
        """Why."""
        return report(self.state, self.policy).unhealthy[of]


# Policy.


@pytest.mark.parametrize("number", [13, 31, 43, 45, 68, 109])
def test_application_errors_are_ignored_as_nvidia_does(number: int) -> None:
    watch = Watch()
    watch.events(xid(0, number))
    assert watch.unhealthy == frozenset()
    assert watch.state.of(uuid(0)).counts == {Xid(number): 1}


@pytest.mark.parametrize("number", [48, 62, 63, 64, 74, 79, 94, 95, 119, 999, 2**64 - 1])
def test_others_take_the_gpu_out_and_no_other(number: int) -> None:
    watch = Watch()
    watch.events(xid(0, number))
    assert watch.unhealthy == {uuid(0)}
    assert watch.reason(uuid(0)).startswith(f"Xid {number} (")


def test_the_file_beats_the_table_and_the_variables_beat_the_file() -> None:
    """H2: `disable=94`; `disable=all, enable=79` (design 8)."""
    file = HealthConfig(xids={94: Response.IGNORE, 13: Response.UNTIL_RESET, 92: Response.UNTIL_RECOVERED})
    assert Policy(file).response(Xid(94)) is Response.IGNORE
    assert Policy(file).response(Xid(13)) is Response.UNTIL_RESET
    disabled = Policy(file, disabled=XidList(xids=frozenset({13})))
    assert disabled.response(Xid(13)) is Response.IGNORE
    assert disabled.response(Xid(79)) is Response.UNTIL_RESET
    only_79 = Policy(file, disabled=XidList(every=True), enabled=XidList(xids=frozenset({79, 94})))
    assert {n: only_79.response(Xid(n)) for n in (13, 48, 79, 94)} == {
        13: Response.IGNORE,
        48: Response.IGNORE,
        79: Response.UNTIL_RESET,
        94: Response.UNTIL_RECOVERED,
    }
    assert Policy(enabled=XidList(every=True)).response(Xid(31)) is Response.UNTIL_RECOVERED


def test_all_health_checks_off_leaves_only_what_cannot_be_given_out() -> None:
    off = Policy(disabled=XidList(every=True))
    assert off.response(Condition.UNCORRECTABLE_ECC) is Response.WARN
    assert off.response(Condition.REMAPPING_FAILED) is Response.WARN
    assert off.response(Condition.FAILED_CALL) is Response.UNTIL_RECOVERED
    assert off.response(Condition.RESET_REQUIRED) is Response.UNTIL_RECOVERED


def test_a_policy_that_no_longer_counts_a_signal_brings_its_gpu_back() -> None:
    """Hot reload: somebody writes 94 into the ignored ones because of this GPU."""
    watch = Watch()
    watch.events(xid(0, 94))
    watch.policy = Policy(HealthConfig(xids={94: Response.IGNORE}))
    assert watch.unhealthy == frozenset()
    watch.look()
    assert watch.state.of(uuid(0)).causes == ()


# Scope.


def test_an_event_for_an_instance_marks_exactly_that() -> None:
    watch = Watch(node(2, migs=3))
    watch.events(xid(0, 48, gi=4, ci=0))
    assert watch.unhealthy == {mig_uuid(0, 1)}


def test_an_event_for_a_gpu_instance_marks_all_in_it() -> None:
    watch = Watch(node(1, migs=2))
    first, second = watch.snapshot.gpus[0].mig_instances
    one = replace(second, gpu_instance_id=first.gpu_instance_id, compute_instance_id=1)
    watch.snapshot = replace(watch.snapshot, gpus=(replace(watch.snapshot.gpus[0], mig_instances=(first, one)),))
    watch.events(xid(0, 48, gi=3))
    assert watch.unhealthy == {first.uuid, one.uuid}


def test_an_event_for_an_instance_that_may_not_be_listed_marks_its_gpu() -> None:
    """Without the right to list them a GPU can be offered whole all the same, under migStrategy none."""
    watch = Watch(node(2, migs=1))
    gpu, other = watch.snapshot.gpus
    hidden = replace(gpu, mig_instances=(), mig_hidden=Failure("nvmlDeviceGetMigDeviceHandleByIndex", "no right", 4))
    watch.snapshot = replace(watch.snapshot, gpus=(hidden, other))
    watch.events(xid(0, 48, gi=3, ci=0), xid(1, 48, gi=9, ci=0))
    assert watch.unhealthy == {uuid(0)}


@pytest.mark.parametrize(
    "event", [DriverEvent(Xid(79), None), DriverEvent(Xid(79), "GPU-elsewhere"), xid(0, 79, gi=9, ci=0)]
)
def test_an_event_for_something_unknown_marks_nothing_and_is_counted(event: DriverEvent) -> None:
    watch = Watch(node(2, migs=3))
    watch.events(event, event)
    assert watch.unhealthy == frozenset()
    assert watch.state.unknown_events == 2


def test_instance_ids_on_a_gpu_without_instances_mean_the_gpu() -> None:
    watch = Watch()
    watch.events(xid(1, 79, gi=0, ci=0))
    assert watch.unhealthy == {uuid(1)}


def test_an_instance_that_has_just_gone_takes_its_gpu_out_neither_now_nor_when_others_are_made() -> None:
    """The last instance is removed in the second in which it fails: nothing is left that the event could be about."""
    watch = Watch(node(1, migs=1))
    before = watch.snapshot
    watch.snapshot = replace(before, gpus=(replace(before.gpus[0], mig_instances=()),))
    watch.look()
    watch.events(xid(0, 48, gi=3, ci=0))
    assert watch.unhealthy == frozenset()
    assert watch.state.unknown_events == 1
    watch.snapshot = before
    watch.look()
    assert watch.unhealthy == frozenset()


# Recovery.


def test_recovers_after_quiet_and_a_passing_probe_and_not_before() -> None:
    """H1: 94, then good for T s."""
    watch = Watch()
    watch.events(xid(0, 94))
    assert watch.look(after=QUIET_S - 1) == {uuid(0)}
    assert watch.look(after=1) == frozenset()


def test_a_new_signal_starts_the_quiet_time_anew_and_an_ignored_one_does_not() -> None:
    watch = Watch()
    watch.events(xid(0, 94))
    watch.now += 50
    watch.events(xid(0, 94))
    assert watch.look(after=50) == {uuid(0)}
    watch.events(xid(0, 13))
    assert watch.look(after=10) == frozenset()


@pytest.mark.parametrize(
    "finding",
    [
        Check(uuid(0), failure=Failure("nvmlDeviceGetHandleByUUID", "Not Found", 6)),
        Check(uuid(0), failure=NO_RESPONSE),
        Check(uuid(0), failure=Failure("nvmlDeviceGetMemoryInfo", "GPU requires reset", 16)),
        Check(uuid(0), uncorrectable_ecc=1, remapping_pending=False),
        Check(uuid(0), uncorrectable_ecc=0, remapping_pending=True),
        Check(uuid(0), uncorrectable_ecc=0, remapping_failed=True),
        Check(uuid(0), uncorrectable_ecc=0, retirement_pending=True),
    ],
)
def test_quiet_but_one_item_of_the_probe_fails(finding: Check) -> None:
    """Each single item keeps the GPU out, though the quiet time has passed; and its quiet time begins anew."""
    watch = Watch()
    watch.events(xid(0, 94))
    assert watch.look(finding, after=2 * QUIET_S) == {uuid(0)}
    steady = replace(finding, failure=None, remapping_pending=False, remapping_failed=False, retirement_pending=False)
    assert watch.look(steady, after=QUIET_S - 1) == {uuid(0)}
    assert watch.look(steady, after=1) == frozenset()


def test_a_gpu_that_gives_no_probe_at_all_does_not_recover() -> None:
    watch = Watch()
    watch.events(xid(0, 94))
    watch.now += 2 * QUIET_S
    watch.state = on_look(watch.state, watch.snapshot, Probe(), watch.policy, now=watch.now, at=watch.now)
    assert watch.unhealthy == {uuid(0)}


def test_an_instance_is_judged_by_its_own_probe_not_by_its_gpus() -> None:
    """HAMi's review, reports H1."""
    watch = Watch(node(1, migs=2))
    watch.events(xid(0, 94, gi=3, ci=0))
    assert watch.look(Check(mig_uuid(0, 0), failure=NO_RESPONSE), after=2 * QUIET_S) == {mig_uuid(0, 0)}
    assert watch.look(after=QUIET_S) == frozenset()


def test_until_reset_outlasts_every_quiet_time_and_a_harmless_xid_clears_nothing() -> None:
    """H1: `last event wins` is wrong; 79 never recovers without a reset."""
    watch = Watch()
    watch.events(xid(0, 79))
    watch.events(xid(0, 94), xid(0, 43))
    assert watch.look(after=10 * QUIET_S) == {uuid(0)}
    assert watch.reason(uuid(0)).startswith("Xid 79 (GPU has fallen off the bus); awaited: a reset of the GPU")


def _lost_and_back(watch: Watch) -> None:
    whole = watch.snapshot
    watch.snapshot = failing(whole, LOST, uuid(0))
    watch.look(after=1)
    watch.snapshot = whole


def _away_and_back(watch: Watch) -> None:
    whole = watch.snapshot
    watch.snapshot = replace(whole, gpus=whole.gpus[1:])
    watch.look(after=1)
    watch.snapshot = whole


def _remapped(watch: Watch) -> None:
    watch.look(Check(uuid(0), remapping_pending=True), after=1)


def _retired(watch: Watch) -> None:
    watch.look(Check(uuid(0), retirement_pending=True), after=1)
    watch.look(Check(uuid(0), retirement_pending=False), after=1)


def _counters_set_back(watch: Watch) -> None:
    watch.look(Check(uuid(0), uncorrectable_ecc=3), after=1)


def _driver_loaded(watch: Watch) -> None:
    watch.look(driver_load=1)
    watch.look(driver_load=2)


def _told(watch: Watch) -> None:
    watch.state = on_reset(watch.state)


@pytest.mark.parametrize(
    "reset",
    [_lost_and_back, _away_and_back, _remapped, _retired, _counters_set_back, _driver_loaded, _told],
    ids=lambda function: function.__name__,
)
def test_evidence_of_a_reset_lets_it_be_probed_afresh(reset: Callable[[Watch], None]) -> None:
    watch = Watch()
    watch.events(xid(0, 79))
    reset(watch)
    assert watch.look(after=1) == {uuid(0)}
    assert "a reset of the GPU" not in watch.reason(uuid(0))
    assert watch.look(after=QUIET_S) == frozenset()


def test_a_reset_before_the_signal_is_no_evidence_after_it() -> None:
    watch = Watch()
    watch.events(xid(0, 79))
    watch.state = on_reset(watch.state)
    watch.events(xid(0, 79))
    assert watch.look(after=2 * QUIET_S) == {uuid(0)}


def test_the_same_driver_load_and_an_unknown_one_are_no_reset() -> None:
    watch = Watch()
    watch.look(driver_load=1)
    watch.events(xid(0, 79))
    watch.look(driver_load=1, after=QUIET_S)
    watch.look(driver_load=None, after=QUIET_S)
    assert watch.look(driver_load=1, after=QUIET_S) == {uuid(0)}


def test_a_gpu_that_flaps_must_be_quiet_for_longer() -> None:
    """The third time within an hour, then doubling, at most an hour."""
    watch = Watch()
    for expected in (QUIET_S, QUIET_S, 2 * QUIET_S, 4 * QUIET_S, 8 * QUIET_S):
        watch.events(xid(0, 94))
        assert watch.look(after=expected - 1) == {uuid(0)}
        assert watch.look(after=1) == frozenset()
    watch.now += 3600
    watch.events(xid(0, 94))
    assert watch.look(after=QUIET_S) == frozenset()


def test_one_lost_gpu_says_nothing_of_the_others() -> None:
    watch = Watch(node(8))
    watch.snapshot = failing(watch.snapshot, LOST, uuid(3))
    assert watch.look() == {uuid(3)}
    assert "GPU is lost" in watch.reason(uuid(3))


def test_a_counter_that_was_there_at_the_start_is_no_news() -> None:
    watch = Watch()
    watch.state = HealthState()
    assert watch.look(Check(uuid(0), uncorrectable_ecc=7)) == frozenset()
    assert watch.look(Check(uuid(0), uncorrectable_ecc=8)) == {uuid(0)}


def test_what_goes_and_had_nothing_is_forgotten() -> None:
    watch = Watch()
    watch.events(xid(0, 79))
    watch.snapshot = replace(watch.snapshot, gpus=())
    watch.look()
    assert watch.state.units.keys() == {uuid(0)}


def test_a_reason_does_not_change_while_nothing_happens_and_not_through_repetition() -> None:
    """So that nothing is sent again: a burst costs one list."""
    watch = Watch()
    watch.events(xid(0, 94))
    once = report(watch.state, watch.policy)
    watch.events(*[xid(0, 94)] * 10_000)
    watch.look(after=1)
    assert report(watch.state, watch.policy) == once
    assert watch.state.of(uuid(0)).counts == {Xid(94): 10_001}


def test_the_document_says_which_when_and_what_is_awaited() -> None:
    watch = Watch(now=0.0)
    watch.events(xid(0, 79), xid(1, 92))
    watch.now += 5
    first, second = documents(watch.state, watch.policy, now=watch.now)
    assert first["causes"] == [
        {
            "signal": "Xid 79 (GPU has fallen off the bus)",
            "response": "untilReset",
            "since": "1970-01-01T00:00:00Z",
            "times": 1,
            "reset_since": False,
        }
    ]
    assert first["awaited"] == "a reset of the GPU, 60 s without a signal, a probe that passes"
    assert first["quiet_for_s"] == 5.0
    assert second["healthy"]
    assert second["warnings"] == ["Xid 92 (high single-bit ECC error rate), 1 times"]
