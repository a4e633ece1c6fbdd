"""Probes: what they find, and that what can't be checked is not broken (issue 4, statement 1)."""

import pynvml
import pytest

from deviceplugin.model.health import Check
from tests.driver.bench import Bench, gpu_line, uuid
from tests.driver.test_failures import CALLS_OF_A_PROBE, NODE, UNKNOWN

T4 = gpu_line(0, "t4")
A100 = gpu_line(0, "a100-40gb")


def checks(bench: Bench) -> dict[str, Check]:
    """A look, then a probe; by UUID."""
    return {check.uuid: check for check in bench.driver.probe(bench.driver.snapshot()).checks}


def test_every_gpu_and_instance_is_probed(bench: Bench) -> None:
    bench.put(NODE)
    found = checks(bench)
    assert found.keys() == {uuid(0), uuid(1), uuid(2), "MIG-a", "MIG-b"}
    assert all(check.failure is None and check.events for check in found.values())
    assert found[uuid(0)] == Check(
        uuid(0), uncorrectable_ecc=0, remapping_pending=False, remapping_failed=False, retirement_pending=None
    )
    assert found["MIG-a"] == Check("MIG-a")


def test_what_a_probe_finds(bench: Bench) -> None:
    bench.put(T4 + gpu_line(1, "a100-40gb"), "retiring 0 1", "remapped 1 1 0", "ecc-double 1", "ecc-single 1")
    found = checks(bench)
    assert found[uuid(0)].retirement_pending
    assert (found[uuid(1)].remapping_pending, found[uuid(1)].remapping_failed) == (True, False)
    assert found[uuid(1)].uncorrectable_ecc == 1
    bench.control.append("remapped 1 0 1", "retiring 0 0")
    found = checks(bench)
    assert (found[uuid(1)].remapping_pending, found[uuid(1)].remapping_failed) == (False, True)
    assert found[uuid(0)].retirement_pending is False


def test_a_board_without_ecc_and_events_has_nothing_to_say(bench: Bench) -> None:
    bench.put(gpu_line(0, "k80", "events=0") + gpu_line(1, "rtx3090"))
    found = checks(bench)
    assert not found[uuid(0)].events
    assert found[uuid(1)] == Check(uuid(1))


@pytest.mark.parametrize("call", CALLS_OF_A_PROBE)
@pytest.mark.parametrize("code", [UNKNOWN, pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED])
def test_a_call_that_fails_is_that_gpus(bench: Bench, call: str, code: int) -> None:
    bench.put(NODE)
    snapshot = bench.driver.snapshot()
    bench.control.append(f"fail {call} {code} 1")
    found = {check.uuid: check for check in bench.driver.probe(snapshot).checks}
    failure = found[uuid(1)].failure
    assert failure is not None
    assert (failure.call, failure.code) == (call, code)
    assert found[uuid(0)].failure is found[uuid(2)].failure is None


@pytest.mark.parametrize("call", CALLS_OF_A_PROBE)
@pytest.mark.parametrize(
    "code", [pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_NO_PERMISSION, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND]
)
def test_what_cannot_be_checked_is_not_broken(bench: Bench, call: str, code: int) -> None:
    bench.put(NODE)
    snapshot = bench.driver.snapshot()
    bench.control.append(f"fail {call} {code}")
    assert all(check.failure is None for check in bench.driver.probe(snapshot).checks)


def test_a_gpu_that_fails_already_is_not_probed(bench: Bench) -> None:
    bench.put(NODE, "lost 1")
    assert checks(bench).keys() == {uuid(0), uuid(2)}


def test_a_driver_that_goes_away_gives_no_checks_and_blames_nobody(bench: Bench) -> None:
    bench.put(NODE)
    snapshot = bench.driver.snapshot()
    bench.control.append("fail * 1")
    assert bench.driver.probe(snapshot).checks == ()


def test_a_load_of_the_module_is_told_from_the_next(bench: Bench) -> None:
    bench.put(T4)
    assert bench.driver.probe(bench.driver.snapshot()).driver_load is None
    module = bench.root / "sys/module/nvidia"
    module.mkdir(parents=True)
    first = bench.driver.probe(bench.driver.snapshot()).driver_load
    assert first is not None
    assert bench.driver.probe(bench.driver.snapshot()).driver_load == first
    # A new entry before the old one goes, so that no file system gives it the same number.
    module.rename(module.with_name("old"))
    module.mkdir()
    assert bench.driver.probe(bench.driver.snapshot()).driver_load not in (first, None)
