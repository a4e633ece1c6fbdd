"""Waiting for events: by the real binding on the stand-in library, and of a described node (issue 4)."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pynvml
import pytest

from deviceplugin.config.document import dump_document
from deviceplugin.driver import Driver
from deviceplugin.driver.simulated import SimulatedDriver
from deviceplugin.errors import DriverError
from deviceplugin.model.health import Condition, DriverEvent, Xid
from tests.driver.bench import PATIENCE_S, Bench, gpu_line, uuid, wait_until
from tests.driver.convert import node_text_to_description
from tests.driver.test_failures import NODE

Tell = Callable[..., None]


@pytest.fixture(params=["nvml", "simulated"])
def told(request: pytest.FixtureRequest, bench: Bench, tmp_path: Path) -> tuple[Driver, Tell]:
    """A driver whose snapshot has been taken and whose events are waited for, and how to make them happen."""
    faults: list[str] = []
    if request.param == "nvml":
        bench.put(NODE)
        bench.driver.snapshot()
        assert not bench.driver.wait_events()
        return bench.driver, bench.control.append
    path = tmp_path / "described.yaml"

    def tell(*lines: str) -> None:
        faults.extend(lines)
        scratch = path.with_suffix(".new")
        scratch.write_text(dump_document(node_text_to_description(NODE, faults=faults)))
        scratch.rename(path)

    tell()
    driver = SimulatedDriver(path)
    assert driver.wait_events() == ()
    return driver, tell


def test_events_come_once_in_order_with_what_they_are_about(told: tuple[Driver, Tell]) -> None:
    driver, tell = told
    tell("xid 0 79", "xid 1 48 gi=5 ci=0", "ecc-double 2", "xid 1 94 gi=1", "ecc-single 0")
    assert driver.wait_events() == (
        DriverEvent(Xid(79), uuid(0)),
        DriverEvent(Xid(48), uuid(1), 5, 0),
        DriverEvent(Condition.UNCORRECTABLE_ECC, uuid(2)),
        DriverEvent(Xid(94), uuid(1), 1),
    )
    assert driver.wait_events() == ()


def test_a_burst_is_one_batch(told: tuple[Driver, Tell]) -> None:
    driver, tell = told
    tell(*["xid 0 94"] * 500)
    assert driver.wait_events() == (DriverEvent(Xid(94), uuid(0)),) * 500


def test_an_event_between_two_waits_is_not_lost(told: tuple[Driver, Tell]) -> None:
    driver, tell = told
    tell("xid 0 79")
    driver.snapshot()
    assert driver.wait_events() == (DriverEvent(Xid(79), uuid(0)),)


def test_a_wait_that_fails_says_so_and_the_next_begins_afresh(told: tuple[Driver, Tell]) -> None:
    driver, tell = told
    tell("waiterr 15")
    for _ in range(2):
        with pytest.raises(DriverError, match="GPU is lost"):
            driver.wait_events()
    tell("waitok")
    assert driver.wait_events() == ()
    tell("xid 0 79")
    assert driver.wait_events() == (DriverEvent(Xid(79), uuid(0)),)


def test_an_event_of_a_lost_gpu_is_still_known_by_its_handle(bench: Bench) -> None:
    """NVIDIA's plugin marks every GPU then (golden plain-lost-then-xid)."""
    bench.look(NODE)
    bench.driver.wait_events()
    bench.control.append("lost 0", "xid 0 79")
    assert bench.driver.wait_events() == (DriverEvent(Xid(79), uuid(0)),)


def test_a_board_without_events_is_left_out_and_the_others_are_heard(bench: Bench) -> None:
    bench.look(gpu_line(0, "k80", "events=0") + gpu_line(1))
    assert not bench.driver.wait_events()
    bench.control.append("xid 0 79", "xid 1 79")
    assert bench.driver.wait_events() == (DriverEvent(Xid(79), uuid(1)),)


@pytest.mark.parametrize(
    "call",
    [
        "nvmlDeviceGetHandleByIndex 999 0",
        "nvmlDeviceGetUUID 999 0",
        "nvmlDeviceGetSupportedEventTypes 999 0",
        "nvmlDeviceRegisterEvents 999 0",
        "nvmlDeviceRegisterEvents 3 0",
    ],
)
def test_a_gpu_that_cannot_be_registered_keeps_no_other_from_being_heard(bench: Bench, call: str) -> None:
    bench.look(NODE)
    bench.control.append(f"fail {call}")
    assert not bench.driver.wait_events()
    bench.control.append("xid 1 79")
    assert bench.driver.wait_events() == (DriverEvent(Xid(79), uuid(1)),)


@pytest.mark.parametrize("call", ["nvmlEventSetCreate", "nvmlDeviceGetCount", "nvmlEventSetWait_v2"])
def test_no_event_set_at_all_is_an_error_that_keeps_nothing(bench: Bench, call: str) -> None:
    bench.look(NODE)
    bench.control.append(f"fail {call} 999")
    with pytest.raises(DriverError, match="Unknown Error"):
        bench.driver.wait_events()
    assert bench.driver.close()


def test_a_driver_too_old_for_events_says_so(bench: Bench) -> None:
    bench.look("driver 440.33.01 cuda=10020\n" + gpu_line(0))
    with pytest.raises(DriverError, match="too old to wait for events"):
        bench.driver.wait_events()


@pytest.fixture
def waiter(bench: Bench) -> Iterator[list[DriverEvent]]:
    """A thread that waits for events, as the product's does; what it has heard."""
    heard: list[DriverEvent] = []
    ends = threading.Event()

    def wait() -> None:
        while not ends.is_set():
            heard.extend(bench.driver.wait_events() or ())

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    yield heard
    ends.set()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


def _hears(bench: Bench, heard: list[DriverEvent], index: int) -> None:
    """Events until one is heard: those before the set was registered are nobody's."""
    wanted = DriverEvent(Xid(79), uuid(index))
    before = heard.count(wanted)

    def again() -> bool:
        bench.control.append(f"xid {index} 79")
        return heard.count(wanted) > before

    wait_until(again)


def test_nothing_is_opened_before_the_first_snapshot(bench: Bench, waiter: list[DriverEvent]) -> None:
    bench.put(NODE)
    assert not waiter
    assert pynvml._nvmlLib_refcount == 0
    bench.driver.snapshot()
    _hears(bench, waiter, 0)


def test_nvml_is_opened_afresh_under_the_waiter(bench: Bench, waiter: list[DriverEvent]) -> None:
    """It lists GPUs as they were when it was really opened: the waiter must not keep it open (reports H8)."""
    bench.look(gpu_line(0))
    _hears(bench, waiter, 0)
    assert len(bench.look(gpu_line(0) + gpu_line(1), f"node {bench.node_file}").gpus) == 2
    _hears(bench, waiter, 1)


def test_close_takes_nvml_from_the_waiter_and_a_snapshot_gives_it_back(bench: Bench, waiter: list[DriverEvent]) -> None:
    bench.look(NODE)
    _hears(bench, waiter, 2)
    assert bench.driver.close()
    with pytest.raises(pynvml.NVMLError):
        pynvml.nvmlDeviceGetCount()
    bench.driver.snapshot()
    _hears(bench, waiter, 2)


def test_a_waiter_that_hangs_keeps_nvml_and_stops_no_snapshot(
    bench: Bench, waiter: list[DriverEvent], caplog: pytest.LogCaptureFixture
) -> None:
    well = bench.look(NODE)
    _hears(bench, waiter, 0)
    bench.control.append("block nvmlEventSetWait 3600")
    # The wait that is under way when the line comes still ends; it is the next one that hangs.
    wait_until(lambda: bench.driver.snapshot() == well and not bench.driver.close())
    assert bench.driver.snapshot() == well
    assert not bench.driver.close()
    assert caplog.text.count("the wait for events has not come back") == 1  # asked again every second, said once
    bench.control.clear()
    assert bench.driver.close()
