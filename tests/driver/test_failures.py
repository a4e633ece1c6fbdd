"""Calls that fail, hang, or speak of the driver as a whole."""

import re
import threading
from pathlib import Path

import pynvml
import pytest

import deviceplugin.driver
from deviceplugin.errors import DriverError
from deviceplugin.model.node import Snapshot
from tests.driver.bench import PATIENCE_S, Bench, gpu_line, only, uuid, wait_until
from tests.driver.convert import lost_gpu

UNKNOWN = 999

NODE = (
    "".join(gpu_line(index, "a100-40gb", "mig=1" if index == 1 else "") for index in range(3))
    + "mig gpu=1 slot=0 gi=1 ci=0 giprofile=2 ciprofile=2 start=0 size=4 uuid=MIG-a\n"
    + "mig gpu=1 slot=1 gi=5 ci=0 giprofile=1 ciprofile=1 start=4 size=2 uuid=MIG-b\n"
    + "nvlink 0 1 4\nnvlink 0 2 4\nnvlink 1 2 4\n"
)

CALLS_ON_A_GPU = (
    "nvmlDeviceGetHandleByIndex",
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetMinorNumber",
    "nvmlDeviceGetPciInfo",
    "nvmlDeviceGetName",
    "nvmlDeviceGetMemoryInfo",
    "nvmlDeviceGetCudaComputeCapability",
    "nvmlDeviceGetMigMode",
    "nvmlDeviceGetMaxMigDeviceCount",
    "nvmlDeviceGetMigDeviceHandleByIndex",
    "nvmlDeviceGetNvLinkState",
    "nvmlDeviceGetNvLinkRemoteDeviceType",
    "nvmlDeviceGetNvLinkRemotePciInfo",
)
CALLS_ON_AN_INSTANCE = ("nvmlDeviceGetGpuInstanceId", "nvmlDeviceGetComputeInstanceId", "nvmlDeviceGetAttributes")
CALLS_THAT_ONLY_INFORM = (
    "nvmlDeviceGetTopologyCommonAncestor",  # names two GPUs: nobody's failure
    "nvmlDeviceGetGpuInstanceById",  # these three only where a MIG device's name does not tell its profile
    "nvmlGpuInstanceGetInfo",
    "nvmlDeviceGetGpuInstanceProfileInfo",
)
CALLS_OF_THE_SYSTEM = (
    "nvmlInit",
    "nvmlShutdown",
    "nvmlSystemGetDriverVersion",
    "nvmlSystemGetCudaDriverVersion_v2",
    "nvmlDeviceGetCount",
)
CALLS_OF_A_PROBE = (  # tests/driver/test_checks.py
    "nvmlDeviceGetHandleByUUID",
    "nvmlDeviceGetMemoryInfo",
    "nvmlDeviceGetTotalEccErrors",
    "nvmlDeviceGetRemappedRows",
    "nvmlDeviceGetRetiredPagesPendingStatus",
    "nvmlDeviceGetSupportedEventTypes",
)
CALLS_ABOUT_EVENTS = (  # tests/driver/test_events.py
    "nvmlEventSetCreate",
    "nvmlEventSetFree",
    "nvmlEventSetWait_v2",
    "nvmlDeviceRegisterEvents",
)


def test_the_lists_above_name_every_call_that_the_driver_makes() -> None:
    # What the MPS supervisor changes on a GPU is no part of looking at one, and has tests of its own.
    package = Path(deviceplugin.driver.__file__).parent
    sources = [source for source in package.glob("*.py") if source.name != "computemode.py"]
    used = {name for source in sources for name in re.findall(r"\bpynvml\.(nvml[A-Z]\w+)", source.read_text())}
    known = {*CALLS_ON_A_GPU, *CALLS_ON_AN_INSTANCE, *CALLS_THAT_ONLY_INFORM, *CALLS_OF_THE_SYSTEM}
    known |= {*CALLS_OF_A_PROBE, *CALLS_ABOUT_EVENTS}
    assert {name for name in used if not name.startswith("nvmlEventType")} - {"nvmlLib"} == known


@pytest.mark.parametrize("call", CALLS_ON_A_GPU)
@pytest.mark.parametrize("code", [UNKNOWN, pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_UNINITIALIZED])
def test_a_gpu_that_fails_a_call_is_that_gpu_with_its_error(bench: Bench, call: str, code: int) -> None:
    well = bench.look(NODE)
    bench.control.append(f"fail {call} {code} 1")
    ill = bench.driver.snapshot()
    assert ill.gpus[0] == well.gpus[0]
    assert ill.gpus[2] == well.gpus[2]
    failure = ill.gpus[1].failure
    assert failure is not None
    assert (failure.call, failure.code) == (call, code)
    assert ill.gpus[1].uuid == (None if call in CALLS_ON_A_GPU[:2] else uuid(1))
    assert [link for link in ill.links if uuid(1) not in (link.first, link.second)] == [well.links[1]]


@pytest.mark.parametrize("call", CALLS_ON_AN_INSTANCE)
def test_an_instance_that_fails_a_call_is_that_instance_with_its_error(bench: Bench, call: str) -> None:
    well = bench.look(NODE)
    bench.control.append(f"fail {call} {UNKNOWN} 1")
    ill = bench.driver.snapshot()
    assert [gpu.failure for gpu in ill.gpus] == [None] * 3
    assert (ill.gpus[0], ill.gpus[2], ill.links) == (well.gpus[0], well.gpus[2], well.links)
    failures = [one.failure for one in ill.gpus[1].mig_instances]
    assert [failure and (failure.call, failure.code) for failure in failures] == [(call, UNKNOWN)] * 2
    assert [one.profile for one in ill.gpus[1].mig_instances] == ["3g.20gb", "2g.10gb"]


@pytest.mark.parametrize("call", CALLS_THAT_ONLY_INFORM)
def test_calls_whose_failure_is_no_gpus(bench: Bench, call: str) -> None:
    snapshot = bench.look(NODE, f"fail {call} {UNKNOWN} 1")
    assert [gpu.failure for gpu in snapshot.gpus] == [None] * 3
    assert [link.nvlinks for link in snapshot.links] == [4, 4, 4]


def test_nvlinks_that_only_one_side_reports_count_once(bench: Bench) -> None:
    snapshot = bench.look(NODE, f"fail nvmlDeviceGetNvLinkState {UNKNOWN} 1")
    assert [link.nvlinks for link in snapshot.links] == [4, 4, 4]


def test_not_supported_is_a_value(bench: Bench) -> None:
    """GPUs with unified memory do not say how much they have; that is not a failure."""
    gpu = only(bench.look(gpu_line(0), "fail nvmlDeviceGetMemoryInfo 3", "fail nvmlDeviceGetMinorNumber 3"))
    assert (gpu.memory_mib, gpu.minor, gpu.failure) == (None, None, None)


def test_a_gpu_lost_before_the_start(bench: Bench) -> None:
    snapshot = bench.look(NODE, "lost 0")
    assert snapshot.gpus[0] == lost_gpu(0)
    assert [gpu.failure for gpu in snapshot.gpus[1:]] == [None, None]
    assert len(snapshot.links) == 1


def test_a_gpu_lost_and_found(bench: Bench) -> None:
    well = bench.look(NODE)
    bench.control.append("lost 2")
    ill = bench.driver.snapshot()
    assert ill.gpus[2].failure is not None
    bench.control.append("ok 2")
    assert bench.driver.snapshot() == well


def test_listing_mig_without_permission_says_what_to_set(bench: Bench) -> None:
    gpu = bench.look(NODE, "fail nvmlDeviceGetMigDeviceHandleByIndex 4").gpus[1]
    assert "privileges.mig" in str(gpu.mig_hidden)
    assert "NVIDIA_MIG_MONITOR_DEVICES" in str(gpu.mig_hidden)
    assert gpu.failure is None, "nothing is wrong with the GPU"


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (pynvml.NVML_ERROR_DRIVER_NOT_LOADED, "install or load the driver"),
        (pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH, "started afresh"),
        (pynvml.NVML_ERROR_NO_PERMISSION, "/dev/nvidiactl"),
        (pynvml.NVML_ERROR_UNKNOWN, "daemon-reload"),
    ],
)
def test_a_driver_that_does_not_start_says_what_to_do(bench: Bench, code: int, advice: str) -> None:
    with pytest.raises(DriverError, match=re.escape(advice)) as raised:
        bench.look(gpu_line(0), f"init {code}")
    assert raised.value.code == code
    assert bench.driver.nvidia_device_present()


def test_a_driver_that_comes_later_is_found(bench: Bench) -> None:
    """Reports J2: no restart."""
    with pytest.raises(DriverError):
        bench.look(gpu_line(0), f"init {pynvml.NVML_ERROR_DRIVER_NOT_LOADED}")
    bench.control.clear()
    assert only(bench.driver.snapshot()).failure is None


def test_a_session_that_somebody_shut_is_opened_again(bench: Bench) -> None:
    well = bench.look(NODE)
    pynvml.nvmlShutdown()
    assert bench.driver.snapshot() == well


def test_a_driver_that_went_away_under_an_open_session(bench: Bench) -> None:
    bench.look(NODE)
    bench.control.append("fail * 9", "init 9")
    with pytest.raises(DriverError) as raised:
        bench.driver.snapshot()
    assert raised.value.code == pynvml.NVML_ERROR_DRIVER_NOT_LOADED


def test_a_driver_that_was_upgraded_under_an_open_session(bench: Bench) -> None:
    """Reports J2: the old session only fails; that the versions differ shows when it is opened anew."""
    bench.look(NODE)
    bench.control.append(f"fail nvmlDeviceGetHandleByIndex {UNKNOWN}", "init 18")
    with pytest.raises(DriverError) as raised:
        bench.driver.snapshot()
    assert raised.value.code == pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH


def test_a_driver_that_was_reloaded_under_an_open_session(bench: Bench) -> None:
    """All handles are dead, and a new session has new ones."""
    well = bench.look(NODE)
    bench.put(NODE.replace(uuid(0), "GPU-new"))
    assert bench.driver.snapshot() == well
    bench.control.append("lost 0", "lost 1", "lost 2")
    assert [gpu.failure and gpu.failure.code for gpu in bench.driver.snapshot().gpus] == [15] * 3
    bench.control.clear()
    assert bench.driver.snapshot().gpus[0].uuid == "GPU-new"


def test_the_only_gpu_lost_is_a_gpu_lost_even_if_nvml_would_not_open_again(bench: Bench) -> None:
    bench.look(gpu_line(0))
    bench.control.append("lost 0", f"init {UNKNOWN}")
    assert bench.driver.snapshot().gpus == (lost_gpu(0),)


def test_a_driver_that_counts_no_more(bench: Bench) -> None:
    with pytest.raises(DriverError, match="nvmlDeviceGetCount") as raised:
        bench.look(NODE, f"fail nvmlDeviceGetCount {UNKNOWN}")
    assert raised.value.code == UNKNOWN


def test_close_ends_the_session_and_can_be_repeated(bench: Bench) -> None:
    bench.driver.close()
    bench.look(NODE)
    bench.driver.close()
    bench.driver.close()
    with pytest.raises(pynvml.NVMLError):
        pynvml.nvmlDeviceGetCount()
    assert len(bench.driver.snapshot().gpus) == 3


@pytest.mark.parametrize("holding", ["", " holding"])
def test_a_call_that_hangs_keeps_nobody_waiting(bench: Bench, holding: str) -> None:
    """Neither close nor the others: the thread that hangs shuts NVML when it is let go."""
    bench.put(NODE, f"block nvmlDeviceGetMemoryInfo 3600 1{holding}")
    answers: list[Snapshot] = []
    thread = threading.Thread(target=lambda: answers.append(bench.driver.snapshot()), daemon=True)
    thread.start()
    wait_until(lambda: _refused(bench))
    assert bench.driver.nvidia_device_present()
    bench.driver.close()
    assert thread.is_alive()
    bench.control.clear()
    thread.join(PATIENCE_S)
    assert [gpu.failure for gpu in answers[0].gpus] == [None] * 3
    with pytest.raises(pynvml.NVMLError):
        pynvml.nvmlDeviceGetCount()


def _refused(bench: Bench) -> bool:
    """Whether a snapshot is running: a second one is then refused at once."""
    if pynvml._nvmlLib_refcount == 0:
        return False  # the first has not got as far as nvmlInit
    with pytest.raises(DriverError, match="hangs"):
        bench.driver.snapshot()
    return True
