"""The stand-in for NVIDIA's driver library, called through the real pynvml."""

import math
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from ctypes import byref, c_char, c_uint, c_void_p, create_string_buffer
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pynvml
import pytest

from tests.nvml_standin import (
    MODELS,
    PROFILES,
    Control,
    NodeDescription,
    Profile,
    bound_pynvml,
    build,
    capability_minor,
    mig_minors,
    parse_node,
    write_sysfs,
)

GOLDEN = Path(__file__).parent / "golden"
NODES = sorted(path for path in GOLDEN.glob("*/node.txt") if not parse_node(path.read_text()).init_return)
GRACE = 30.0  # no test waits this long unless it fails

THREE_T4 = """\
driver 570.133.20 cuda=12080
gpu 0 model=t4 uuid=GPU-00000000-0000-4000-8000-000000000000 minor=2 bus=00000000:10:00.0 numa=0
gpu 1 model=t4 uuid=GPU-00000001-0000-4000-8000-000000000000 minor=1 bus=00000000:11:00.0 numa=0
gpu 2 model=t4 uuid=GPU-00000002-0000-4000-8000-000000000000 minor=0 bus=0000000A:12:00.0 numa=1
"""
MIG = (GOLDEN / "055-mig-mixed-compute-instances/node.txt").read_text()


@dataclass
class Bench:
    """A stand-in of its own under pynvml, with the files that drive it."""

    nvml: Any
    node_file: Path
    control: Control

    def start(self, node: str, *faults: str) -> list[Any]:
        """Begins a session on a node and returns the handles of its GPUs, which must all be reachable."""
        self.prepare(node, *faults)
        self.nvml.nvmlInit()
        return [self.nvml.nvmlDeviceGetHandleByIndex(i) for i in range(self.nvml.nvmlDeviceGetCount())]

    def prepare(self, node: str, *faults: str) -> None:
        self.node_file.write_text(node)
        if faults:
            self.control.append(*faults)

    def code(self, call: Callable[..., object], *arguments: object) -> int:
        """What the library answers: 0 for success."""
        try:
            call(*arguments)
        except self.nvml.NVMLError as error:
            return int(error.value)
        return 0

    def raw(self, name: str, *arguments: object) -> int:
        """Calls a function of the library past pynvml."""
        return int(getattr(self.nvml.nvmlLib, name)(*arguments))


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("standin"))


@pytest.fixture
def bench(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    monkeypatch.setenv("NVML_STANDIN_NODE", str(tmp_path / "node.txt"))
    monkeypatch.setenv("NVML_STANDIN_CONTROL", str(tmp_path / "faults"))
    with bound_pynvml(library, tmp_path):
        yield Bench(pynvml, tmp_path / "node.txt", Control(tmp_path / "faults"))


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor() as pool:
        yield pool


def entered(bench: Bench, work: Future[Any]) -> None:
    """Returns when a call in another thread must be inside the library: it has been given time, and is not done."""
    done = threading.Event()
    work.add_done_callback(lambda _: done.set())
    assert not done.wait(0.05)
    assert bench.nvml.nvmlDeviceGetCount() >= 0


# --- building and loading ----------------------------------------------------------------------------------


def test_build_twice_compiles_once(tmp_path: Path) -> None:
    first = build(tmp_path)
    inode = first.stat().st_ino
    assert build(tmp_path).stat().st_ino == inode
    assert first.name == "libnvidia-ml.so.1"


def test_two_builds_at_once_both_give_a_whole_library(tmp_path: Path, threads: ThreadPoolExecutor) -> None:
    inodes = {work.result().stat().st_ino for work in [threads.submit(build, tmp_path) for _ in range(2)]}
    assert len(inodes) == 1


def run_python(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script], env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )


def test_pynvml_finds_it_by_library_path(library: Path) -> None:
    done = run_python(
        "import pynvml as p; p.nvmlInit(); print(p.nvmlSystemGetDriverVersion(), p.nvmlDeviceGetCount())",
        LD_LIBRARY_PATH=str(library.parent),
        NVML_STANDIN_NODE=str(GOLDEN / "003-hgx-h100/node.txt"),
    )
    assert done.stdout == "570.133.20 8\n", done.stderr


@pytest.mark.parametrize(
    ("node", "faults", "message"),
    [
        ("gpu 0 model=t5 uuid=GPU-0 bus=00000000:10:00.0", "", "node.txt:1: model= names no model"),
        ("# one\ngpu 1 model=t4 uuid=GPU-0 bus=00000000:10:00.0", "", "node.txt:2: GPUs are numbered from 0"),
        ("gpu 0 model=t4 uuid=GPU-0 bus=00000000:10:00.0 nume=1", "", "an option that is not known"),
        ("gpu 0 model=t4 uuid=GPU-0 bus=10", "", "bus= is like"),
        ("warp 9", "", "not a directive"),
        ("driver 570.1", "lots 1", "faults:1: not a fault"),
        ("driver 570.1", "fail nvmlInit many", "not a number in range"),
    ],
)
def test_a_file_it_does_not_understand_ends_the_process(
    library: Path, tmp_path: Path, node: str, faults: str, message: str
) -> None:
    (tmp_path / "node.txt").write_text(f"{node}\n")
    (tmp_path / "faults").write_text(f"{faults}\n")
    done = run_python(
        f"import ctypes; ctypes.CDLL({str(library)!r}).nvmlInit_v2()",
        NVML_STANDIN_NODE=str(tmp_path / "node.txt"),
        NVML_STANDIN_CONTROL=str(tmp_path / "faults"),
    )
    assert done.returncode == -signal.SIGABRT
    assert message in done.stderr


# --- init and shutdown -------------------------------------------------------------------------------------


def test_uninitialised_before_init_and_after_the_last_shutdown(bench: Bench) -> None:
    nvml = bench.nvml
    bench.prepare(THREE_T4)
    assert bench.code(nvml.nvmlDeviceGetCount) == nvml.NVML_ERROR_UNINITIALIZED
    assert bench.code(nvml.nvmlShutdown) == nvml.NVML_ERROR_UNINITIALIZED
    nvml.nvmlInit()
    nvml.nvmlInit()
    nvml.nvmlShutdown()
    assert nvml.nvmlDeviceGetCount() == 3
    nvml.nvmlShutdown()
    assert bench.code(nvml.nvmlDeviceGetCount) == nvml.NVML_ERROR_UNINITIALIZED


def test_a_handle_does_not_outlive_its_session(bench: Bench) -> None:
    nvml = bench.nvml
    (gpu, *_) = bench.start(THREE_T4)
    nvml.nvmlShutdown()
    assert bench.code(nvml.nvmlDeviceGetUUID, gpu) == nvml.NVML_ERROR_UNINITIALIZED
    nvml.nvmlInit()
    assert bench.code(nvml.nvmlDeviceGetUUID, gpu) == nvml.NVML_ERROR_INVALID_ARGUMENT


@pytest.mark.parametrize("handle", [None, 1, 0x7FFF_0000_1000])
def test_a_wrong_handle_is_refused(bench: Bench, handle: int | None) -> None:
    bench.start(THREE_T4)
    assert bench.raw("nvmlDeviceGetIndex", c_void_p(handle), byref(c_uint())) == bench.nvml.NVML_ERROR_INVALID_ARGUMENT


@pytest.mark.parametrize("code", [4, 9, 18, 999])
def test_init_fails_by_control_until_lifted(bench: Bench, code: int) -> None:
    bench.prepare(THREE_T4, f"init {code}")
    assert bench.code(bench.nvml.nvmlInit) == code
    assert bench.code(bench.nvml.nvmlDeviceGetCount) == bench.nvml.NVML_ERROR_UNINITIALIZED
    bench.control.append("init 0")
    assert bench.code(bench.nvml.nvmlInit) == 0


def test_init_fails_by_node(bench: Bench) -> None:
    bench.prepare((GOLDEN / "007-driver-not-loaded/node.txt").read_text())
    assert bench.code(bench.nvml.nvmlInit) == bench.nvml.NVML_ERROR_DRIVER_NOT_LOADED


def test_versions_and_error_texts(bench: Bench) -> None:
    nvml = bench.nvml
    bench.start(THREE_T4)
    assert nvml.nvmlSystemGetDriverVersion() == "570.133.20"
    assert nvml.nvmlSystemGetCudaDriverVersion() == nvml.nvmlSystemGetCudaDriverVersion_v2() == 12080
    assert nvml.nvmlSystemGetNVMLVersion() == "12.570.133.20"
    assert nvml.nvmlErrorString(15) == "GPU is lost"
    assert nvml.nvmlErrorString(999) == "Unknown Error"


# --- every recorded node -----------------------------------------------------------------------------------


@pytest.mark.parametrize("path", NODES, ids=lambda path: path.parent.name)
def test_library_and_parser_agree_on_recorded_nodes(bench: Bench, path: Path) -> None:
    nvml, text = bench.nvml, path.read_text()
    node = parse_node(text)
    handles = bench.start(text)
    assert len(handles) == len(node.gpus)
    for gpu, handle in zip(node.gpus, handles, strict=True):
        assert nvml.nvmlDeviceGetUUID(handle) == gpu.uuid
        assert nvml.nvmlDeviceGetName(handle) == gpu.product_name
        assert nvml.nvmlDeviceGetMinorNumber(handle) == gpu.minor
        assert nvml.nvmlDeviceGetIndex(handle) == gpu.index
        assert nvml.nvmlDeviceGetPciInfo(handle).busId == gpu.bus
        assert nvml.nvmlDeviceGetMemoryInfo(handle).total == gpu.memory_mib << 20
        assert nvml.nvmlDeviceGetCudaComputeCapability(handle) == gpu.compute_capability
        if gpu.mig_current is None:
            assert bench.code(nvml.nvmlDeviceGetMigMode, handle) == nvml.NVML_ERROR_NOT_SUPPORTED
        else:
            assert nvml.nvmlDeviceGetMigMode(handle) == [gpu.mig_current, gpu.mig_pending]
        check_links(bench, node, handles, gpu.index)
    comments = re.findall(r"^mig gpu=(\d+) slot=(\d+) .*# (\S+)$", text, re.MULTILINE)
    assert [(mig.gpu, mig.slot, mig.profile) for mig in node.migs] == sorted(
        (int(gpu), int(slot), profile) for gpu, slot, profile in comments
    )
    for mig in node.migs:
        check_mig(bench, node, handles[mig.gpu], mig.slot)


def check_links(bench: Bench, node: NodeDescription, handles: list[Any], index: int) -> None:
    nvml, gpu, handle = bench.nvml, node.gpus[index], handles[index]
    if not gpu.model.nvlinks:
        assert bench.code(nvml.nvmlDeviceGetNvLinkState, handle, 0) == nvml.NVML_ERROR_NOT_SUPPORTED
    levels = ["internal", "single", "multiple", "hostbridge", "node", "system"]
    peers: dict[str, int] = {}
    for link in range(gpu.model.nvlinks):
        if nvml.nvmlDeviceGetNvLinkState(handle, link):
            remote = nvml.nvmlDeviceGetNvLinkRemotePciInfo(handle, link).busId
            switch = nvml.nvmlDeviceGetNvLinkRemoteDeviceType(handle, link) == nvml.NVML_NVLINK_DEVICE_TYPE_SWITCH
            peers["switch" if switch else remote] = peers.get("switch" if switch else remote, 0) + 1
    expected = {"switch": gpu.nvswitch_links} if gpu.nvswitch_links else {}
    for (a, b), count in node.nvlinks.items():
        if index in (a, b):
            expected[node.gpus[a + b - index].bus] = count
    assert peers == expected
    for other in node.gpus:
        level = nvml.nvmlDeviceGetTopologyCommonAncestor(handle, handles[other.index])
        assert levels[level // 10] == node.level(index, other.index)


def check_mig(bench: Bench, node: NodeDescription, parent: Any, slot: int) -> None:
    nvml = bench.nvml
    handle = nvml.nvmlDeviceGetMigDeviceHandleByIndex(parent, slot)
    gpu = node.gpus[nvml.nvmlDeviceGetIndex(parent)]
    mig = next(mig for mig in gpu.migs if mig.slot == slot)
    profile = PROFILES[gpu.model.key, mig.gi_profile]
    assert nvml.nvmlDeviceGetName(handle) == f"{gpu.product_name} MIG {mig.profile}"
    assert nvml.nvmlDeviceGetUUID(handle) == mig.uuid
    assert nvml.nvmlDeviceGetIndex(nvml.nvmlDeviceGetHandleByUUID(mig.uuid)) == slot
    assert nvml.nvmlDeviceIsMigDeviceHandle(handle).value == 1  # pynvml hands out the c_uint
    assert nvml.nvmlDeviceIsMigDeviceHandle(parent).value == 0  # pynvml hands out the c_uint
    assert nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle)) == gpu.uuid
    assert nvml.nvmlDeviceGetGpuInstanceId(handle) == mig.gpu_instance_id
    assert nvml.nvmlDeviceGetComputeInstanceId(handle) == mig.compute_instance_id
    assert nvml.nvmlDeviceGetMemoryInfo(handle).total == mig.memory_mib << 20
    attributes = nvml.nvmlDeviceGetAttributes(handle)
    assert attributes.gpuInstanceSliceCount == profile.slices
    assert attributes.memorySizeMB == mig.memory_mib
    instance = nvml.nvmlDeviceGetGpuInstanceById(parent, mig.gpu_instance_id)
    info = nvml.nvmlGpuInstanceGetInfo(instance)
    assert (info.id, info.profileId) == (mig.gpu_instance_id, profile.profile_id)
    assert (info.placement.start, info.placement.size) == (mig.start, mig.size)
    compute = nvml.nvmlGpuInstanceGetComputeInstanceById(instance, mig.compute_instance_id)
    assert nvml.nvmlComputeInstanceGetInfo(compute).profileId == mig.ci_profile
    assert nvml.nvmlComputeInstanceGetInfo(compute).id == mig.compute_instance_id
    if int(node.driver.partition(".")[0]) < 510:
        assert (
            bench.code(nvml.nvmlDeviceGetGpuInstanceProfileInfo, parent, mig.gi_profile)
            == nvml.NVML_ERROR_FUNCTION_NOT_FOUND
        )
        return
    by_gpu = nvml.nvmlDeviceGetGpuInstanceProfileInfo(parent, mig.gi_profile)
    assert (by_gpu.name, by_gpu.id) == (f"MIG {profile.name}", profile.profile_id)
    assert nvml.nvmlDeviceGetGpuInstanceProfileInfo(parent, mig.gi_profile, version=1).memorySizeMB == mig.memory_mib
    by_instance = nvml.nvmlGpuInstanceGetComputeInstanceProfileInfo(instance, mig.ci_profile, 0)
    assert by_instance.name == f"MIG {mig.profile}"
    assert by_instance.sliceCount == attributes.computeInstanceSliceCount


# --- models ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", MODELS)
def test_models(bench: Bench, key: str) -> None:
    nvml, model = bench.nvml, MODELS[key]
    (gpu,) = bench.start(f"driver 570.133.20\ngpu 0 model={key} uuid=GPU-0 bus=00000000:10:00.0 numa=0\n")
    assert nvml.nvmlDeviceGetName(gpu) == model.product_name
    assert nvml.nvmlDeviceGetBrand(gpu) == model.brand
    assert nvml.nvmlDeviceGetMemoryInfo(gpu, nvml.nvmlMemory_v2).total == model.memory_mib << 20
    events = nvml.nvmlDeviceGetSupportedEventTypes(gpu)
    assert bool(events & nvml.nvmlEventTypeDoubleBitEccError) == model.ecc
    assert events & nvml.nvmlEventTypeXidCriticalError
    pages = nvml.NVML_PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS
    retires = model.ecc and not model.row_remapping
    assert (bench.code(nvml.nvmlDeviceGetRetiredPages, gpu, pages) == 0) == retires
    assert (bench.code(nvml.nvmlDeviceGetRetiredPagesPendingStatus, gpu) == 0) == retires
    assert (bench.code(nvml.nvmlDeviceGetRemappedRows, gpu) == 0) == model.row_remapping
    assert (bench.code(nvml.nvmlDeviceGetEccMode, gpu) == 0) == model.ecc
    assert (bench.code(nvml.nvmlDeviceGetTotalEccErrors, gpu, 0, 0) == 0) == model.ecc
    assert (bench.code(nvml.nvmlDeviceGetMigMode, gpu) == 0) == bool(model.max_mig_devices)
    assert nvml.nvmlDeviceGetMaxMigDeviceCount(gpu) == 0
    expected = nvml.NVML_ERROR_NOT_FOUND if model.max_mig_devices else nvml.NVML_ERROR_NOT_SUPPORTED
    assert bench.code(nvml.nvmlDeviceGetMigDeviceHandleByIndex, gpu, 0) == expected
    beyond = nvml.NVML_ERROR_INVALID_ARGUMENT if model.nvlinks else nvml.NVML_ERROR_NOT_SUPPORTED
    assert bench.code(nvml.nvmlDeviceGetNvLinkState, gpu, model.nvlinks) == beyond
    fabric = bench.code(nvml.nvmlDeviceGetGpuFabricInfoV, gpu, byref(nvml.c_nvmlGpuFabricInfo_v2_t()))
    assert (fabric == 0) == model.fabric


@pytest.mark.parametrize("profile", PROFILES.values(), ids=lambda profile: f"{profile.model}-{profile.name}")
def test_profile_memory_gives_the_profile_name(bench: Bench, profile: Profile) -> None:
    """Programs that do not ask NVML for the name compute it from memory, in eighths of the GPU."""
    model = MODELS[profile.model]
    eighths = math.ceil(profile.memory_mib / model.memory_mib * 8) / 8
    gigabytes = math.floor(eighths * math.ceil(model.memory_mib / 1024) + 0.5)
    assert profile.name.partition("+")[0].removesuffix("-me") == f"{profile.slices}g.{gigabytes}gb"
    (gpu,) = bench.start(f"gpu 0 model={profile.model} uuid=GPU-0 bus=00000000:10:00.0\n")
    placements = (bench.nvml.c_nvmlGpuInstancePlacement_t * 8)()
    count = c_uint()
    bench.nvml.nvmlDeviceGetGpuInstancePossiblePlacements(gpu, profile.profile_id, placements, byref(count))
    assert 1 <= count.value <= 7
    last = placements[count.value - 1]
    assert last.start + last.size <= model.memory_slices


def test_profiles_can_be_walked_to_the_end(bench: Bench) -> None:
    nvml = bench.nvml
    (gpu,) = bench.start("gpu 0 model=h100-80gb uuid=GPU-0 bus=00000000:10:00.0\n")
    codes = [bench.code(nvml.nvmlDeviceGetGpuInstanceProfileInfo, gpu, index) for index in range(19)]
    assert [index for index, code in enumerate(codes) if code == 0] == [0, 1, 2, 3, 4, 7, 9]
    assert {code for code in codes[:18] if code} == {nvml.NVML_ERROR_NOT_SUPPORTED}
    assert codes[18] == nvml.NVML_ERROR_INVALID_ARGUMENT


def test_options_of_a_gpu(bench: Bench) -> None:
    nvml = bench.nvml
    one, two = bench.start(
        'gpu 0 model=gh200 uuid=GPU-0 bus=00000009:01:00.0 mem=1000 name="NVIDIA GH 144" serial=42 mig=0,1 ats=1 '
        "fabric=01020304-0506-0708-090a-0b0c0d0e0f10 clique=7 events=0\n"
        "gpu 1 model=h100-80gb uuid=GPU-1 bus=00000000:02:00.0 mig=na numa=3\n"
    )
    assert nvml.nvmlDeviceGetName(one) == "NVIDIA GH 144"
    assert nvml.nvmlDeviceGetSerial(one) == "42"
    assert nvml.nvmlDeviceGetMemoryInfo(one).total == 1000 << 20
    assert nvml.nvmlDeviceGetMigMode(one) == [0, 1]
    assert nvml.nvmlDeviceGetAddressingMode(one) == nvml.NVML_DEVICE_ADDRESSING_MODE_ATS
    assert nvml.nvmlDeviceGetAddressingMode(two) == nvml.NVML_DEVICE_ADDRESSING_MODE_NONE
    fabric = nvml.c_nvmlGpuFabricInfo_v2_t()
    nvml.nvmlDeviceGetGpuFabricInfoV(one, byref(fabric))
    assert bytes(fabric.clusterUuid) == bytes(range(1, 17))
    assert (fabric.state, fabric.cliqueId) == (nvml.NVML_GPU_FABRIC_STATE_COMPLETED, 7)
    nvml.nvmlDeviceGetGpuFabricInfoV(two, byref(fabric))
    assert fabric.state == nvml.NVML_GPU_FABRIC_STATE_NOT_SUPPORTED
    assert bench.code(nvml.nvmlDeviceGetSerial, two) == nvml.NVML_ERROR_NOT_SUPPORTED
    assert bench.code(nvml.nvmlDeviceGetMigMode, two) == nvml.NVML_ERROR_NOT_SUPPORTED
    assert list(nvml.nvmlDeviceGetMemoryAffinity(two, 1, 0)) == [1 << 3]
    assert bench.code(nvml.nvmlDeviceGetMemoryAffinity, one, 1, 0) == nvml.NVML_ERROR_NOT_SUPPORTED
    assert nvml.nvmlDeviceGetSupportedEventTypes(one) == 0
    events = nvml.nvmlEventSetCreate()
    assert bench.code(nvml.nvmlDeviceRegisterEvents, one, 0, events) == nvml.NVML_ERROR_NOT_SUPPORTED
    assert nvml.nvmlDeviceGetP2PStatus(one, two, nvml.NVML_P2P_CAPS_INDEX_NVLINK) == nvml.NVML_P2P_STATUS_NOT_SUPPORTED


def test_older_drivers_lack_functions_and_the_name_prefix(bench: Bench) -> None:
    nvml = bench.nvml
    (gpu,) = bench.start("driver 460.32.03\ngpu 0 model=a100-40gb uuid=GPU-0 bus=00000000:10:00.0\n")
    assert nvml.nvmlDeviceGetName(gpu) == "A100-SXM4-40GB"
    assert bench.code(nvml.nvmlDeviceGetMemoryInfo, gpu, nvml.nvmlMemory_v2) == nvml.NVML_ERROR_FUNCTION_NOT_FOUND
    assert bench.code(nvml.nvmlDeviceGetComputeRunningProcesses_v3, gpu) == nvml.NVML_ERROR_FUNCTION_NOT_FOUND
    assert nvml.nvmlDeviceGetComputeRunningProcesses_v2(gpu) == []


# --- arguments ---------------------------------------------------------------------------------------------


def test_a_buffer_too_small_by_one(bench: Bench) -> None:
    nvml = bench.nvml
    (gpu, *_) = bench.start(THREE_T4)
    for name, text in [("nvmlDeviceGetName", b"Tesla T4"), ("nvmlDeviceGetUUID", nvml.nvmlDeviceGetUUID(gpu).encode())]:
        buffer = create_string_buffer(96)
        assert bench.raw(name, gpu, buffer, c_uint(len(text))) == nvml.NVML_ERROR_INSUFFICIENT_SIZE
        assert bench.raw(name, gpu, buffer, c_uint(len(text) + 1)) == 0
        assert buffer.value == text
        assert bench.raw(name, gpu, None, c_uint(96)) == nvml.NVML_ERROR_INVALID_ARGUMENT
    short = (c_char * 10)()
    assert bench.raw("nvmlSystemGetDriverVersion", short, c_uint(10)) == nvml.NVML_ERROR_INSUFFICIENT_SIZE


def test_versioned_structs_are_checked(bench: Bench) -> None:
    nvml = bench.nvml
    (gpu, *_) = bench.start(THREE_T4)
    assert bench.code(nvml.nvmlDeviceGetMemoryInfo, gpu, 0x03000028) == nvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH
    pci = nvml.nvmlPciInfoExt_v1_t()
    assert bench.code(nvml.nvmlDeviceGetPciInfoExt, gpu, byref(pci)) == nvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH
    pci.version = nvml.nvmlPciInfoExt_v1
    nvml.nvmlDeviceGetPciInfoExt(gpu, byref(pci))
    assert (pci.busId, pci.baseClass, pci.subClass) == ("00000000:10:00.0", 3, 2)


def test_pci_addresses_in_all_versions(bench: Bench) -> None:
    nvml = bench.nvml
    (*_, gpu) = bench.start(THREE_T4)
    info = nvml.nvmlDeviceGetPciInfo(gpu)
    assert (info.busId, info.busIdLegacy) == ("0000000A:12:00.0", "000A:12:00.0")
    assert (info.domain, info.bus, info.device, info.pciDeviceId) == (10, 0x12, 0, 0x1EB810DE)
    old = nvml.nvmlPciInfo_v2_t()
    assert bench.raw("nvmlDeviceGetPciInfo_v2", gpu, byref(old)) == 0
    assert old.busId == "000A:12:00.0"


@pytest.mark.parametrize(
    ("text", "index"),
    [("0000000A:12:00.0", 2), ("000a:12:00.0", 2), ("a:12:0", 2), ("11:00.0", 1), ("00000000:99:00.0", None)],
)
def test_handle_by_pci_address(bench: Bench, text: str, index: int | None) -> None:
    nvml = bench.nvml
    bench.start(THREE_T4)
    if index is None:
        assert bench.code(nvml.nvmlDeviceGetHandleByPciBusId, text) == nvml.NVML_ERROR_NOT_FOUND
    else:
        assert nvml.nvmlDeviceGetIndex(nvml.nvmlDeviceGetHandleByPciBusId(text)) == index
    assert bench.code(nvml.nvmlDeviceGetHandleByPciBusId, "GPU-1") == nvml.NVML_ERROR_INVALID_ARGUMENT


def test_handles_that_do_not_exist(bench: Bench) -> None:
    nvml = bench.nvml
    bench.start(THREE_T4)
    assert bench.code(nvml.nvmlDeviceGetHandleByIndex, 3) == nvml.NVML_ERROR_INVALID_ARGUMENT
    assert bench.code(nvml.nvmlDeviceGetHandleByUUID, "GPU-none") == nvml.NVML_ERROR_NOT_FOUND
    assert bench.raw("nvmlDeviceGetHandleByUUID", None, byref(c_void_p())) == nvml.NVML_ERROR_INVALID_ARGUMENT
    uuid = "GPU-00000001-0000-4000-8000-000000000000"
    found = nvml.nvmlDeviceGetHandleByUUIDV(uuid.encode(), nvml.NVML_UUID_TYPE_ASCII)
    assert nvml.nvmlDeviceGetUUID(found) == uuid


def test_mig_handles_are_not_gpu_handles(bench: Bench) -> None:
    nvml = bench.nvml
    (gpu,) = bench.start(MIG)
    mig = nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, 0)
    events = nvml.nvmlEventSetCreate()
    assert nvml.nvmlDeviceGetMaxMigDeviceCount(gpu) == 7
    assert bench.code(nvml.nvmlDeviceGetMigDeviceHandleByIndex, gpu, 4) == nvml.NVML_ERROR_NOT_FOUND
    assert bench.code(nvml.nvmlDeviceGetMigDeviceHandleByIndex, gpu, 7) == nvml.NVML_ERROR_INVALID_ARGUMENT
    for call in (nvml.nvmlDeviceGetMinorNumber, nvml.nvmlDeviceGetPciInfo, nvml.nvmlDeviceGetMigMode):
        assert bench.code(call, mig) == nvml.NVML_ERROR_NOT_SUPPORTED
    assert bench.code(nvml.nvmlDeviceGetNvLinkState, mig, 0) == nvml.NVML_ERROR_NOT_SUPPORTED
    assert bench.code(nvml.nvmlDeviceRegisterEvents, mig, 8, events) == nvml.NVML_ERROR_NOT_SUPPORTED
    assert bench.code(nvml.nvmlDeviceGetAttributes, gpu) == nvml.NVML_ERROR_NOT_SUPPORTED
    assert bench.code(nvml.nvmlDeviceGetGpuInstanceId, gpu) == nvml.NVML_ERROR_INVALID_ARGUMENT
    assert bench.code(nvml.nvmlDeviceGetGpuInstanceById, gpu, 3) == nvml.NVML_ERROR_NOT_FOUND
    assert bench.code(nvml.nvmlDeviceGetRemappedRows, gpu) == nvml.NVML_ERROR_NOT_SUPPORTED


def test_instances_are_listed_once(bench: Bench) -> None:
    nvml = bench.nvml
    (gpu,) = bench.start(MIG)
    instances, count = (nvml.c_nvmlGpuInstance_t * 8)(), c_uint()
    nvml.nvmlDeviceGetGpuInstances(gpu, 9, instances, byref(count))
    assert count.value == 1
    computes = (nvml.c_nvmlComputeInstance_t * 8)()
    nvml.nvmlGpuInstanceGetComputeInstances(instances[0], 0, computes, byref(count))
    assert [nvml.nvmlComputeInstanceGetInfo(compute).id for compute in computes[: count.value]] == [0, 1, 2]


def test_compute_mode_of_a_gpu_in_mig_mode_is_set_on_its_instances(bench: Bench) -> None:
    nvml = bench.nvml
    (gpu,) = bench.start(MIG)
    mig = nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, 0)
    exclusive = nvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS
    assert bench.code(nvml.nvmlDeviceSetComputeMode, gpu, exclusive) == nvml.NVML_ERROR_NOT_SUPPORTED
    nvml.nvmlDeviceSetComputeMode(mig, exclusive)
    assert nvml.nvmlDeviceGetComputeMode(mig) == exclusive
    assert nvml.nvmlDeviceGetComputeMode(gpu) == nvml.NVML_COMPUTEMODE_DEFAULT


def test_the_state_of_an_idle_gpu(bench: Bench) -> None:
    nvml = bench.nvml
    first, second, third = bench.start(THREE_T4)
    assert nvml.nvmlDeviceGetTemperature(first, nvml.NVML_TEMPERATURE_GPU) < nvml.nvmlDeviceGetTemperatureThreshold(
        first, nvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN
    )
    assert nvml.nvmlDeviceGetCurrentClocksEventReasons(first) == nvml.nvmlClocksEventReasonGpuIdle
    assert nvml.nvmlDeviceGetCurrentClocksThrottleReasons(first) == nvml.nvmlClocksEventReasonGpuIdle
    assert nvml.nvmlDeviceGetComputeRunningProcesses(first) == []
    assert nvml.nvmlDeviceGetPersistenceMode(first) == 0
    assert nvml.nvmlDeviceGetMemoryErrorCounter(first, 0, 0, 2) == 0
    values = nvml.nvmlDeviceGetFieldValues(first, [nvml.NVML_FI_DEV_ECC_CURRENT])
    assert [value.nvmlReturn for value in values] == [nvml.NVML_ERROR_NOT_SUPPORTED]
    assert bench.code(nvml.nvmlDeviceGetNumaNodeId, first) == nvml.NVML_ERROR_NOT_SUPPORTED
    nearest = nvml.nvmlDeviceGetTopologyNearestGpus(first, nvml.NVML_TOPOLOGY_SYSTEM)
    assert [nvml.nvmlDeviceGetUUID(gpu) for gpu in nearest] == [nvml.nvmlDeviceGetUUID(third)]
    assert nvml.nvmlDeviceGetP2PStatus(first, second, nvml.NVML_P2P_CAPS_INDEX_WRITE) == nvml.NVML_P2P_STATUS_OK


def test_memory_faults_leave_traces(bench: Bench) -> None:
    nvml = bench.nvml
    t4, a10 = bench.start(
        "gpu 0 model=t4 uuid=GPU-0 bus=00000000:10:00.0\ngpu 1 model=a10 uuid=GPU-1 bus=00000000:11:00.0\n"
    )
    bench.control.append("ecc-double 0", "ecc-double 0", "ecc-single 0", "xid 0 48", "retiring 0 1", "remapped 1 1 0")
    corrected, uncorrected = nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED
    assert nvml.nvmlDeviceGetTotalEccErrors(t4, corrected, nvml.NVML_VOLATILE_ECC) == 1
    assert nvml.nvmlDeviceGetTotalEccErrors(t4, uncorrected, nvml.NVML_AGGREGATE_ECC) == 2
    assert nvml.nvmlDeviceGetTotalEccErrors(a10, uncorrected, nvml.NVML_VOLATILE_ECC) == 0
    memory = nvml.NVML_MEMORY_LOCATION_DEVICE_MEMORY
    assert nvml.nvmlDeviceGetMemoryErrorCounter(t4, uncorrected, nvml.NVML_VOLATILE_ECC, memory) == 2
    assert nvml.nvmlDeviceGetRetiredPagesPendingStatus(t4) == 1
    assert nvml.nvmlDeviceGetRemappedRows(a10) == (0, 1, 1, 0)
    bench.control.append("retiring 0 0", "remapped 1 0 1")
    assert nvml.nvmlDeviceGetRetiredPagesPendingStatus(t4) == 0
    assert nvml.nvmlDeviceGetRemappedRows(a10) == (0, 0, 0, 1)


def test_links_of_a_gpu_that_has_some_down(bench: Bench) -> None:
    nvml = bench.nvml
    one, two = bench.start(
        "gpu 0 model=v100-16gb uuid=GPU-0 bus=00000000:10:00.0\n"
        "gpu 1 model=v100-16gb uuid=GPU-1 bus=00000000:11:00.0\nnvlink 0 1 2\n"
    )
    assert [nvml.nvmlDeviceGetNvLinkState(one, link) for link in range(6)] == [1, 1, 0, 0, 0, 0]
    assert nvml.nvmlDeviceGetNvLinkVersion(one, 0) == 2
    assert nvml.nvmlDeviceGetNvLinkCapability(one, 0, nvml.NVML_NVLINK_CAP_P2P_SUPPORTED) == 1
    assert nvml.nvmlDeviceGetNvLinkCapability(one, 2, nvml.NVML_NVLINK_CAP_P2P_SUPPORTED) == 0
    assert bench.code(nvml.nvmlDeviceGetNvLinkRemotePciInfo, one, 2) == nvml.NVML_ERROR_NOT_SUPPORTED
    assert nvml.nvmlDeviceGetP2PStatus(one, two, nvml.NVML_P2P_CAPS_INDEX_NVLINK) == nvml.NVML_P2P_STATUS_OK


# --- faults ------------------------------------------------------------------------------------------------


def test_a_lost_gpu_answers_nothing_and_comes_back(bench: Bench) -> None:
    nvml = bench.nvml
    first, second, _ = bench.start(THREE_T4)
    lost = nvml.NVML_ERROR_GPU_IS_LOST
    bench.control.append("lost 1")
    assert nvml.nvmlDeviceGetCount() == 3
    assert bench.code(nvml.nvmlDeviceGetHandleByIndex, 1) == lost
    assert bench.code(nvml.nvmlDeviceGetHandleByUUID, "GPU-00000001-0000-4000-8000-000000000000") == lost
    assert bench.code(nvml.nvmlDeviceGetHandleByPciBusId, "00000000:11:00.0") == lost
    for call in (nvml.nvmlDeviceGetUUID, nvml.nvmlDeviceGetName, nvml.nvmlDeviceGetMemoryInfo):
        assert bench.code(call, second) == lost
        assert bench.code(call, first) == 0
    assert bench.code(nvml.nvmlDeviceSetComputeMode, second, 0) == lost
    assert bench.code(nvml.nvmlDeviceGetTopologyCommonAncestor, first, second) == lost
    assert bench.code(nvml.nvmlDeviceGetHandleByUUID, "GPU-none") == lost  # it might have been that one
    bench.control.append("ok 1")
    assert bench.code(nvml.nvmlDeviceGetUUID, second) == 0


def test_mig_devices_of_a_lost_gpu_are_lost(bench: Bench) -> None:
    nvml = bench.nvml
    (gpu,) = bench.start(MIG)
    mig = nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, 0)
    bench.control.append("lost 0")
    assert bench.code(nvml.nvmlDeviceGetUUID, mig) == nvml.NVML_ERROR_GPU_IS_LOST


def test_a_failing_call_fails_where_it_is_told_to(bench: Bench) -> None:
    nvml = bench.nvml
    first, second, _ = bench.start(THREE_T4)
    bench.control.append("fail nvmlDeviceGetMemoryInfo 999 1")
    assert bench.code(nvml.nvmlDeviceGetMemoryInfo, first) == 0
    assert bench.code(nvml.nvmlDeviceGetMemoryInfo, second) == 999
    assert bench.code(nvml.nvmlDeviceGetMemoryInfo, second, nvml.nvmlMemory_v2) == 999
    assert bench.code(nvml.nvmlDeviceGetName, second) == 0
    bench.control.append("fail nvmlDeviceGetMemoryInfo 0 1", "fail nvmlDeviceGetHandleByIndex 4 1", "fail * 10 0")
    assert bench.code(nvml.nvmlDeviceGetMemoryInfo, second) == 0
    assert bench.code(nvml.nvmlDeviceGetHandleByIndex, 1) == nvml.NVML_ERROR_NO_PERMISSION
    assert bench.code(nvml.nvmlDeviceGetHandleByIndex, 2) == 0
    assert bench.code(nvml.nvmlDeviceGetName, first) == nvml.NVML_ERROR_TIMEOUT
    bench.control.append("fail nvmlDeviceGetCount 16")
    assert bench.code(nvml.nvmlDeviceGetCount) == nvml.NVML_ERROR_RESET_REQUIRED
    bench.control.clear()
    assert bench.code(nvml.nvmlDeviceGetName, first) == 0
    assert nvml.nvmlDeviceGetCount() == 3


def test_a_blocked_call_holds_up_no_other(bench: Bench, threads: ThreadPoolExecutor) -> None:
    nvml = bench.nvml
    first, second, _ = bench.start(THREE_T4, "block nvmlDeviceGetName 3600 1")
    blocked = threads.submit(nvml.nvmlDeviceGetName, second)
    try:
        entered(bench, blocked)
        assert nvml.nvmlDeviceGetName(first) == "Tesla T4"
        assert nvml.nvmlDeviceGetUUID(second)
        assert not blocked.done()
    finally:
        bench.control.remove("block nvmlDeviceGetName 3600 1")
    assert blocked.result(GRACE) == "Tesla T4"


def test_a_holding_block_holds_up_all_others(bench: Bench, threads: ThreadPoolExecutor) -> None:
    nvml = bench.nvml
    first, second, _ = bench.start(THREE_T4)
    bench.control.append("block nvmlDeviceGetName 3600 1 holding")
    blocked = threads.submit(nvml.nvmlDeviceGetName, second)
    done = threading.Event()
    try:
        blocked.add_done_callback(lambda _: done.set())
        done.wait(0.05)
        other = threads.submit(nvml.nvmlDeviceGetUUID, first)
        done.wait(0.05)
        assert not blocked.done()
        assert not other.done()
    finally:
        bench.control.clear()
    assert blocked.result(GRACE) == "Tesla T4"
    assert other.result(GRACE)


def test_a_block_ends_by_itself(bench: Bench) -> None:
    bench.start(THREE_T4, "block nvmlDeviceGetCount 0.02")
    assert bench.nvml.nvmlDeviceGetCount() == 3


def test_a_gpu_lost_during_a_block_is_lost_after_it(bench: Bench, threads: ThreadPoolExecutor) -> None:
    nvml = bench.nvml
    (first, *_) = bench.start(THREE_T4, "block nvmlDeviceGetName 3600 0")
    blocked = threads.submit(bench.code, nvml.nvmlDeviceGetName, first)
    try:
        entered(bench, blocked)
    finally:
        bench.control.append("lost 0", "block nvmlDeviceGetName 0 0")
    assert blocked.result(GRACE) == nvml.NVML_ERROR_GPU_IS_LOST


def test_a_line_still_being_written_is_not_read(bench: Bench) -> None:
    nvml = bench.nvml
    first, *_ = bench.start(THREE_T4)
    bench.control.path.write_text("# soon\nlost")
    assert bench.code(nvml.nvmlDeviceGetName, first) == 0
    with bench.control.path.open("a") as file:
        file.write(" 0\n")
    assert bench.code(nvml.nvmlDeviceGetName, first) == nvml.NVML_ERROR_GPU_IS_LOST


# --- events ------------------------------------------------------------------------------------------------


def watching(bench: Bench, handles: list[Any]) -> Any:
    events = bench.nvml.nvmlEventSetCreate()
    for handle in handles:
        mask = bench.nvml.nvmlDeviceGetSupportedEventTypes(handle)
        bench.nvml.nvmlDeviceRegisterEvents(handle, mask, events)
    return events


def wait(bench: Bench, events: Any, milliseconds: int = 0) -> tuple[int, int, int, int, int]:
    data = bench.nvml.nvmlEventSetWait(events, milliseconds)
    return (
        bench.nvml.nvmlDeviceGetIndex(data.device),
        data.eventType,
        data.eventData,
        data.gpuInstanceId,
        data.computeInstanceId,
    )


def test_events_come_once_in_order_and_only_after_registration(bench: Bench) -> None:
    nvml, nowhere = bench.nvml, 0xFFFF_FFFF
    handles = bench.start(THREE_T4, "xid 0 13")
    events = watching(bench, handles)
    assert bench.code(nvml.nvmlEventSetWait, events, 0) == nvml.NVML_ERROR_TIMEOUT
    bench.control.append("xid 0 79", "xid 1 48 gi=3 ci=0", "ecc-double 2")
    assert wait(bench, events) == (0, nvml.nvmlEventTypeXidCriticalError, 79, nowhere, nowhere)
    bench.control.append("xid 0 79", "ecc-single 0")
    assert wait(bench, events) == (1, nvml.nvmlEventTypeXidCriticalError, 48, 3, 0)
    assert wait(bench, events) == (2, nvml.nvmlEventTypeDoubleBitEccError, 0, nowhere, nowhere)
    assert wait(bench, events)[2] == 79
    assert wait(bench, events)[1] == nvml.nvmlEventTypeSingleBitEccError
    assert bench.code(nvml.nvmlEventSetWait, events, 0) == nvml.NVML_ERROR_TIMEOUT


def test_clearing_faults_repeats_no_event(bench: Bench) -> None:
    nvml = bench.nvml
    events = watching(bench, bench.start(THREE_T4))
    bench.control.append("xid 0 79", "lost 1")
    assert wait(bench, events)[2] == 79
    bench.control.clear()
    assert bench.code(nvml.nvmlEventSetWait, events, 0) == nvml.NVML_ERROR_TIMEOUT
    bench.control.append("xid 0 80")
    assert wait(bench, events)[2] == 80


def test_a_file_with_fewer_events_is_a_new_one(bench: Bench) -> None:
    events = watching(bench, bench.start(THREE_T4))
    bench.control.append("xid 0 1", "xid 0 2")
    assert [wait(bench, events)[2], wait(bench, events)[2]] == [1, 2]
    bench.control.path.write_text("xid 0 3\n")
    assert wait(bench, events)[2] == 3


def test_a_set_gets_only_what_it_registered(bench: Bench) -> None:
    nvml = bench.nvml
    first, second, _ = bench.start(THREE_T4)
    events = nvml.nvmlEventSetCreate()
    nvml.nvmlDeviceRegisterEvents(first, nvml.nvmlEventTypeXidCriticalError, events)
    assert bench.code(nvml.nvmlDeviceRegisterEvents, second, 1 << 40, events) == nvml.NVML_ERROR_NOT_SUPPORTED
    bench.control.append("xid 1 79", "ecc-double 0", "xid 0 31")
    assert wait(bench, events)[2] == 31
    nvml.nvmlEventSetFree(events)
    assert bench.code(nvml.nvmlEventSetWait, events, 0) == nvml.NVML_ERROR_INVALID_ARGUMENT
    assert bench.code(nvml.nvmlEventSetFree, events) == nvml.NVML_ERROR_INVALID_ARGUMENT


def test_a_waiting_thread_wakes_for_an_event(bench: Bench, threads: ThreadPoolExecutor) -> None:
    handles = bench.start(THREE_T4)
    waiting = threads.submit(wait, bench, watching(bench, handles), int(GRACE * 1000))
    entered(bench, waiting)
    bench.control.append("xid 2 79")
    assert waiting.result(GRACE)[:3] == (2, 8, 79)


def test_a_waiting_thread_wakes_for_shutdown(bench: Bench, threads: ThreadPoolExecutor) -> None:
    nvml = bench.nvml
    events = watching(bench, bench.start(THREE_T4))
    waiting = threads.submit(bench.code, nvml.nvmlEventSetWait, events, int(GRACE * 1000))
    entered(bench, waiting)
    nvml.nvmlShutdown()
    assert waiting.result(GRACE) in (nvml.NVML_ERROR_UNINITIALIZED, nvml.NVML_ERROR_INVALID_ARGUMENT)


def test_an_event_of_a_lost_gpu_comes_but_its_gpu_does_not_answer(bench: Bench) -> None:
    nvml = bench.nvml
    events = watching(bench, bench.start(THREE_T4))
    bench.control.append("lost 0", "xid 0 79")
    data = nvml.nvmlEventSetWait(events, 0)
    assert data.eventData == 79
    assert bench.code(nvml.nvmlDeviceGetUUID, data.device) == nvml.NVML_ERROR_GPU_IS_LOST


def test_wait_errors(bench: Bench) -> None:
    nvml = bench.nvml
    events = watching(bench, bench.start(THREE_T4))

    def codes(count: int) -> list[int]:
        return [bench.code(nvml.nvmlEventSetWait, events, 0) for _ in range(count)]

    bench.control.append("waiterr 999 2")
    assert codes(3) == [999, 999, nvml.NVML_ERROR_TIMEOUT]
    bench.control.append("waiterr 15 1")
    assert codes(2) == [15, nvml.NVML_ERROR_TIMEOUT]
    bench.control.append("waiterr 15")
    assert codes(3) == [15, 15, 15]
    bench.control.append("waitok")
    assert codes(1) == [nvml.NVML_ERROR_TIMEOUT]


def test_the_first_event_wait_knows_no_instances(bench: Bench) -> None:
    events = watching(bench, bench.start(THREE_T4))
    bench.control.append("xid 1 79 gi=3 ci=2")
    data = bench.nvml.c_nvmlEventData_t(gpuInstanceId=77)
    assert bench.raw("nvmlEventSetWait", events, byref(data), c_uint(0)) == 0
    assert (data.eventData, data.gpuInstanceId) == (79, 77)


# --- another node ------------------------------------------------------------------------------------------


def test_gpus_come_with_the_next_session_only(bench: Bench, tmp_path: Path) -> None:
    nvml = bench.nvml
    first, second, third = bench.start(THREE_T4)
    lines = THREE_T4.splitlines(keepends=True)
    new = "gpu 2 model=a10 uuid=GPU-new bus=00000000:20:00.0 numa=0\n"
    other = tmp_path / "other.txt"
    other.write_text(lines[0] + lines[3].replace("gpu 2", "gpu 0") + lines[1].replace("gpu 0", "gpu 1") + new)
    bench.control.append(f"node {other}")
    assert nvml.nvmlDeviceGetCount() == 3
    assert bench.code(nvml.nvmlDeviceGetUUID, second) == nvml.NVML_ERROR_GPU_IS_LOST
    assert nvml.nvmlDeviceGetIndex(third) == 2
    assert nvml.nvmlDeviceGetPciInfo(third).busId == "0000000A:12:00.0"
    assert nvml.nvmlDeviceGetTopologyCommonAncestor(first, third) == nvml.NVML_TOPOLOGY_SYSTEM
    assert bench.code(nvml.nvmlDeviceGetHandleByUUID, "GPU-new") == nvml.NVML_ERROR_GPU_IS_LOST
    nvml.nvmlShutdown()
    nvml.nvmlInit()
    uuids = [nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetHandleByIndex(index)) for index in range(3)]
    assert [uuid[:12] for uuid in uuids] == ["GPU-00000002", "GPU-00000000", "GPU-new"]


def test_links_follow_their_gpus_to_another_node(bench: Bench, tmp_path: Path) -> None:
    nvml = bench.nvml
    gpu = "gpu {} model=v100-16gb uuid=GPU-{} bus=00000000:1{}:00.0 numa=0\n"
    a, _ = bench.start(gpu.format(0, "a", 0) + gpu.format(1, "b", 1) + "nvlink 0 1 1\ntopo 0 1 single\n")
    other = tmp_path / "other.txt"
    other.write_text(
        gpu.format(0, "c", 2) + gpu.format(1, "b", 1) + gpu.format(2, "a", 0) + "nvlink 0 2 3\nnvlink 1 2 2\n"
    )
    bench.control.append(f"node {other}")
    up = [link for link in range(6) if nvml.nvmlDeviceGetNvLinkState(a, link)]
    assert len(up) == 2  # those to c, which this session does not know, do not count
    assert {nvml.nvmlDeviceGetNvLinkRemotePciInfo(a, link).busId for link in up} == {"00000000:11:00.0"}


def test_mig_layout_changes_under_a_running_session(bench: Bench, tmp_path: Path) -> None:
    nvml = bench.nvml
    (gpu,) = bench.start(MIG)
    zero, one = (nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, slot) for slot in (0, 1))
    other = tmp_path / "other.txt"
    other.write_text((GOLDEN / "118-preferred-mig-none/node.txt").read_text())
    bench.control.append(f"node {other}")
    assert nvml.nvmlDeviceGetName(zero).endswith("MIG 7g.40gb")  # handles may be reused
    assert bench.code(nvml.nvmlDeviceGetName, one) == nvml.NVML_ERROR_INVALID_ARGUMENT
    assert bench.code(nvml.nvmlDeviceGetMigDeviceHandleByIndex, gpu, 1) == nvml.NVML_ERROR_NOT_FOUND


def test_without_a_control_file_there_are_no_faults(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = bench.nvml
    first, *_ = bench.start(THREE_T4)
    bench.control.append("lost 0")
    assert bench.code(nvml.nvmlDeviceGetName, first) == nvml.NVML_ERROR_GPU_IS_LOST
    bench.control.path.unlink()
    assert bench.code(nvml.nvmlDeviceGetName, first) == 0
    monkeypatch.delenv("NVML_STANDIN_CONTROL")
    assert bench.code(nvml.nvmlDeviceGetName, first) == 0


# --- the parser and the files around the driver -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gpu 0 model=t5 uuid=GPU-0 bus=00000000:10:00.0", "line 1: KeyError\\('t5'\\)"),
        ("\ngpu 1 model=t4 uuid=GPU-0 bus=00000000:10:00.0", "line 2: .*numbered from 0"),
        ("warp 9", "not a directive: warp"),
    ],
)
def test_parser_names_the_line(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_node(text)


def test_mig_minors_are_the_drivers() -> None:
    lines = dict(line.rsplit(" ", 1) for line in mig_minors().splitlines())
    assert len(lines) == 2 + 32 * 15 * 9
    assert lines["config"] == "1"
    assert lines["monitor"] == "2"
    assert lines["gpu0/gi0/access"] == "3"
    assert lines["gpu0/gi1/access"] == "12"
    assert lines["gpu0/gi1/ci0/access"] == "13"
    assert lines["gpu0/gi11/access"] == "102"
    assert lines["gpu31/gi14/ci7/access"] == str(capability_minor(31, 14, 7)) == "4322"
    assert len(set(lines.values())) == len(lines)


def test_files_around_the_driver(tmp_path: Path) -> None:
    node = write_sysfs(tmp_path, MIG, extra_dev=["infiniband/uverbs0"], imex=[0, 3], no_dev=["nvidia-modeset"])
    pci = tmp_path / "sys/bus/pci/devices/0000:10:00.0"
    assert {path.name: path.read_text().strip() for path in pci.iterdir()} == {
        "vendor": "0x10de",
        "device": "0x20b0",
        "class": "0x030200",
        "numa_node": "0",
    }
    driver = tmp_path / "proc/driver"
    assert "570.133.20" in (driver / "nvidia/version").read_text()
    assert (driver / "nvidia/gpus/0000:10:00.0/information").is_file()
    for access, minor in [("gi1/access", 12), ("gi1/ci2/access", 15), ("gi11/ci0/access", 103)]:
        text = (driver / "nvidia/capabilities/gpu0/mig" / access).read_text()
        assert text.startswith(f"DeviceFileMinor: {minor}\n")
    devices = {
        str(path.relative_to(tmp_path / "dev")) for path in (tmp_path / "dev").rglob("*") if path.is_char_device()
    }
    caps = {f"nvidia-caps/nvidia-cap{minor}" for minor in (1, 2, 12, 13, 14, 15, 102, 103)}
    channels = {f"nvidia-caps-imex-channels/channel{channel}" for channel in (0, 3)}
    plain = {"nvidia0", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "infiniband/uverbs0"}
    assert devices == plain | caps | channels
    assert node == parse_node(MIG)


def test_files_that_are_left_out(tmp_path: Path) -> None:
    write_sysfs(tmp_path / "a", MIG, caps=False, no_numa_file=True)
    assert not (tmp_path / "a/proc/driver/nvidia-caps").exists()
    assert not (tmp_path / "a/dev/nvidia-caps").exists()
    assert not (tmp_path / "a/sys/bus/pci/devices/0000:10:00.0/numa_node").exists()
    write_sysfs(tmp_path / "b", f"init return=9\n{THREE_T4}")
    assert sorted(str(path.relative_to(tmp_path)) for path in (tmp_path / "b").iterdir()) == ["b/dev", "b/sys"]
    assert not list((tmp_path / "b/dev").iterdir())


def test_device_nodes_of_an_earlier_node_go(tmp_path: Path) -> None:
    write_sysfs(tmp_path, MIG, extra_dev=["gdrdrv"])
    write_sysfs(tmp_path, THREE_T4, no_dev=["nvidia1"])
    assert {path.name for path in (tmp_path / "dev").iterdir() if path.is_char_device()} == {
        *("nvidia0", "nvidia2", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset")
    }
