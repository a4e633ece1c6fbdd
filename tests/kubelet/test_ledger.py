"""What was handed out: how long it counts, what it forbids, and waiting for Allocates that run."""

import logging
import threading

import pytest

from deviceplugin.errors import AllocationError
from deviceplugin.kubelet.ledger import READS_APART_S, Ledger
from deviceplugin.model.held import KUBELET_SETTLING_S, Held
from deviceplugin.model.plan import Unit
from tests.allocation.offers import gpu, mig

GPU = "nvidia.com/gpu"
SHARED = "nvidia.com/gpu.shared"
NOTHING = Held()


class Clock:
    """Seconds that only the test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def ledger(clock: Clock) -> Ledger:
    return Ledger(clock)


def share(unit: Unit, replica: int) -> dict[str, Unit]:
    return {f"{unit.uuid}::{replica}": unit}


def whole(unit: Unit) -> dict[str, Unit]:
    return {unit.uuid: unit}


def test_an_entry_ends_when_two_reads_some_seconds_apart_lack_it(ledger: Ledger, clock: Clock) -> None:
    ledger.hand_out(GPU, whole(gpu(0)))
    ledger.observe(NOTHING, 100.0)  # begun when it was handed out: proves nothing
    ledger.observe(NOTHING, 101.0)
    ledger.observe(NOTHING, 101.0 + READS_APART_S - 0.1)
    assert ledger.held() == Held({GPU: frozenset({gpu(0).uuid})})
    ledger.observe(NOTHING, 101.0 + READS_APART_S)
    assert ledger.held() == NOTHING


def test_a_read_that_has_the_id_starts_the_count_anew(ledger: Ledger) -> None:
    ledger.hand_out(GPU, whole(gpu(0)))
    ledger.observe(NOTHING, 101.0)
    ledger.observe(Held({GPU: frozenset({gpu(0).uuid})}), 104.0)
    ledger.observe(NOTHING, 107.0)
    assert ledger.held().of(GPU)
    ledger.observe(NOTHING, 107.0 + READS_APART_S)
    assert not ledger.held().of(GPU)


def test_the_same_id_under_another_resource_is_no_sign_of_life(ledger: Ledger) -> None:
    ledger.hand_out(GPU, whole(gpu(0)))
    other = Held({SHARED: frozenset({gpu(0).uuid})})
    ledger.observe(other, 101.0)
    ledger.observe(other, 110.0)
    assert ledger.held() == NOTHING


def test_an_id_handed_out_again_counts_from_then(ledger: Ledger, clock: Clock) -> None:
    ledger.hand_out(GPU, whole(gpu(0)))
    ledger.observe(NOTHING, 101.0)
    clock.now = 105.0
    ledger.hand_out(GPU, whole(gpu(0)))
    ledger.observe(NOTHING, 105.0)
    ledger.observe(NOTHING, 108.0)
    assert ledger.held().of(GPU)


def test_a_read_that_failed_proves_nothing(ledger: Ledger) -> None:
    ledger.hand_out(GPU, whole(gpu(0)))
    for began_at in (101.0, 110.0, 120.0):
        ledger.observe(Held(unknown_because="no socket"), began_at)
    assert ledger.held().of(GPU)


def test_a_young_kubelet_frees_what_it_has_shown_before(ledger: Ledger, clock: Clock) -> None:
    ledger.hand_out(GPU, whole(gpu(0)))
    clock.now = 102.0
    ledger.kubelet_started()
    ledger.observe(Held({GPU: frozenset(whole(gpu(0)))}), 103.0)
    ledger.observe(NOTHING, 104.0)
    assert ledger.held().of(GPU)
    ledger.observe(NOTHING, 104.0 + READS_APART_S)
    assert not ledger.held().of(GPU)


def test_a_read_of_the_kubelet_before_proves_nothing(ledger: Ledger, clock: Clock) -> None:
    ledger.hand_out(GPU, whole(gpu(0)))
    clock.now = 120.0
    ledger.kubelet_started()
    ledger.observe(Held({GPU: frozenset(whole(gpu(0)))}), 119.0)
    for began_at in (125.0, 135.0):
        ledger.observe(NOTHING, began_at)
    assert ledger.held().of(GPU)


def test_reads_while_a_kubelet_settles_prove_nothing(ledger: Ledger, clock: Clock) -> None:
    """Its PodResources is empty at first, then grows pod by pod (P5)."""
    ledger.hand_out(GPU, whole(gpu(0)))
    ledger.observe(NOTHING, 101.0)
    clock.now = 102.0
    ledger.kubelet_started()
    settled = 102.0 + KUBELET_SETTLING_S
    ledger.observe(NOTHING, 110.0)
    ledger.observe(NOTHING, settled)
    assert ledger.held().of(GPU)
    ledger.observe(NOTHING, settled + READS_APART_S)
    assert not ledger.held().of(GPU)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (whole(gpu(0)), share(gpu(0), 1)),
        (share(gpu(0), 0), whole(gpu(0))),
        (whole(gpu(0)), whole(mig(0, 1))),
        (share(mig(0, 1), 0), whole(gpu(0))),
        (whole(mig(0, 1)), share(mig(0, 1), 0)),
    ],
)
def test_overlaps_under_two_resources_are_refused(
    ledger: Ledger, first: dict[str, Unit], second: dict[str, Unit]
) -> None:
    ledger.hand_out(GPU, first)
    with pytest.raises(AllocationError, match=rf'"{SHARED}".*overlaps {next(iter(first))}, handed out as "{GPU}"'):
        ledger.hand_out(SHARED, {**whole(gpu(7)), **second})
    assert ledger.held() == Held({GPU: frozenset(first)})


@pytest.mark.parametrize(
    ("first", "second"),
    [(whole(mig(0, 1)), whole(mig(0, 2))), (whole(gpu(0)), whole(gpu(1))), (whole(mig(0, 1)), whole(gpu(1)))],
)
def test_siblings_and_strangers_are_not(ledger: Ledger, first: dict[str, Unit], second: dict[str, Unit]) -> None:
    ledger.hand_out(GPU, first)
    ledger.hand_out(SHARED, second)
    assert ledger.held() == Held({GPU: frozenset(first), SHARED: frozenset(second)})


def test_an_overlap_ends_with_the_entry(ledger: Ledger) -> None:
    ledger.hand_out(GPU, whole(gpu(0)))
    ledger.observe(NOTHING, 101.0)
    ledger.observe(NOTHING, 110.0)
    ledger.hand_out(SHARED, share(gpu(0), 0))


def test_doubles_of_one_resource_are_logged_in_one_line(ledger: Ledger, caplog: pytest.LogCaptureFixture) -> None:
    many = {f"{gpu(0).uuid}::{n}": gpu(0) for n in range(1000)}
    ledger.hand_out(GPU, many)
    with caplog.at_level(logging.INFO):
        ledger.hand_out(GPU, many)
    assert [record.getMessage() for record in caplog.records] == [
        f"{GPU}: handed out again: {gpu(0).uuid}::0, {gpu(0).uuid}::1, {gpu(0).uuid}::2 and 997 more; "
        "the kubelet gave them back without telling"
    ]


def test_waiting_is_for_the_allocates_that_run_now_not_for_later_ones(ledger: Ledger) -> None:
    assert ledger.wait_idle(0) is True
    first_runs, second_runs = threading.Event(), threading.Event()
    end_first, end_second = threading.Event(), threading.Event()

    def allocate(runs: threading.Event, end: threading.Event) -> None:
        with ledger.allocating():
            runs.set()
            end.wait(10)

    first = threading.Thread(target=allocate, args=(first_runs, end_first))
    second = threading.Thread(target=allocate, args=(second_runs, end_second))
    first.start()
    assert first_runs.wait(10)
    outcome: list[bool] = []
    waiting = threading.Thread(target=lambda: outcome.append(ledger.wait_idle(10)))
    waiting.start()
    second.start()
    assert second_runs.wait(10)
    assert ledger.running == 2
    end_first.set()
    first.join(10)
    assert ledger.wait_idle(0.01) is False
    end_second.set()
    for thread in (waiting, second):
        thread.join(10)
    assert outcome == [True]
    assert ledger.running == 0


def test_an_allocate_that_fails_is_over_too(ledger: Ledger) -> None:
    with pytest.raises(AllocationError), ledger.allocating():
        raise AllocationError("no")
    assert ledger.running == 0
