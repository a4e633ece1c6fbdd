"""The single checks on a node with a GPU. Each returns what it found, or raises CheckFailed."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pynvml

from deviceplugin.config.model import Config
from deviceplugin.driver import Driver
from deviceplugin.driver.capture import description_text
from deviceplugin.driver.simulated import SimulatedDriver
from deviceplugin.errors import DriverError
from deviceplugin.model.node import Snapshot
from deviceplugin.model.plan import Plan
from deviceplugin.planning.build import build
from deviceplugin.simulator import Clock, Container, Kubelet, ListRecord, Pod

SERVE_PATIENCE_S = 30.0
STOP_PATIENCE_S = 2.0
"""Design 8: stop within 2 s regardless."""

EVENTS = pynvml.nvmlEventTypeXidCriticalError | pynvml.nvmlEventTypeDoubleBitEccError

SETTINGS: dict[str, Callable[[Any], object]] = {
    "compute mode": pynvml.nvmlDeviceGetComputeMode,
    "persistence mode": pynvml.nvmlDeviceGetPersistenceMode,
    "MIG mode": pynvml.nvmlDeviceGetMigMode,
    "ECC mode": pynvml.nvmlDeviceGetEccMode,
    "power limit": pynvml.nvmlDeviceGetPowerManagementLimit,
}


class CheckFailed(Exception):
    """The node, or the product on it, is not as it should be; the message says what was found and expected."""


def snapshot_of_gpus(driver: Driver) -> Snapshot:
    """The snapshot, complete for at least one GPU."""
    try:
        snapshot = driver.snapshot()
    except DriverError as error:
        raise CheckFailed(f"no NVIDIA GPU to check: {error}") from error
    if not snapshot.gpus:
        raise CheckFailed("no NVIDIA GPU to check: the driver works and lists none")
    for gpu in snapshot.gpus:
        if gpu.failure is not None:
            raise CheckFailed(f"{gpu.describe()} fails: {gpu.failure}")
        if None in (gpu.uuid, gpu.minor, gpu.pci_address, gpu.product_name, gpu.compute_capability):
            raise CheckFailed(f"{gpu.describe()} is incomplete without a failure: {gpu}")
    return snapshot


def settings(snapshot: Snapshot) -> dict[str, object]:
    """The settings of every GPU that a plugin could change, as NVML reads them."""
    with _nvml():
        return {
            f"{name} of GPU {gpu.index}": _or_error(read, pynvml.nvmlDeviceGetHandleByIndex(gpu.index))
            for gpu in snapshot.gpus
            for name, read in SETTINGS.items()
        }


def events_registered(snapshot: Snapshot) -> str:
    """Register for the events that health is judged by, on each GPU, and let go again."""
    registered = []
    with _nvml():
        events = pynvml.nvmlEventSetCreate()
        try:
            for gpu in snapshot.gpus:
                handle = pynvml.nvmlDeviceGetHandleByIndex(gpu.index)
                supported = pynvml.nvmlDeviceGetSupportedEventTypes(handle)
                if supported & EVENTS:
                    pynvml.nvmlDeviceRegisterEvents(handle, supported & EVENTS, events)
                    registered.append(gpu.index)
        except pynvml.NVMLError as error:
            raise CheckFailed(f"events cannot be registered: {error} (NVML {error.value})") from error
        finally:
            pynvml.nvmlEventSetFree(events)
    if not registered:
        raise CheckFailed("no GPU supports Xid or double-bit ECC events")
    return f"Xid and double-bit ECC events registered on GPUs {', '.join(map(str, registered))}"


def replayed(snapshot: Snapshot, out: Path) -> Plan:
    """Write the node as a description; the simulated driver must replay it to the same snapshot and plan."""
    path = out / "node.yaml"
    path.write_text(description_text(snapshot), encoding="utf-8")
    again = SimulatedDriver(path).snapshot()
    if again != snapshot:
        raise CheckFailed(f"{path} replays to another snapshot:\n{again}\nexpected\n{snapshot}")
    plan, plan_again = build(snapshot, Config()), build(again, Config())
    if plan != plan_again:
        raise CheckFailed(f"{path} replays to another plan:\n{plan_again}\nexpected\n{plan}")
    if not plan.resources:
        raise CheckFailed(f"the plan offers nothing; left out: {[one.reason for one in plan.left_out]}")
    return plan


def served(spec: str, plan: Plan) -> dict[str, object]:
    """Serve the node to the kubelet stand-in with the unchanged daemon and give one device to a pod.

    Returns:
        Measures: seconds from start to registered, and to stopped; MiB of resident memory.
    """
    resource = plan.resources[0]
    with tempfile.TemporaryDirectory(prefix="dp-") as directory, _daemon(spec, Path(directory)) as (kubelet, process):
        began = time.perf_counter()
        first_list = _first_list(kubelet, resource.name, process)
        registered_s = time.perf_counter() - began
        listed = set(first_list.ids)
        expected = {device.id for device in resource.devices}
        if listed != expected:
            raise CheckFailed(f"{resource.name} lists {sorted(listed)}, expected {sorted(expected)}")
        pod = kubelet.admit(Pod("device-check", containers=(Container("main", {resource.name: 1}),)))
        options = pod.containers["main"].options
        if pod.phase != "Running" or options is None:
            raise CheckFailed(f"a pod that asks for one {resource.name} is {pod.phase}: {pod.reason} {pod.message}")
        visible = dict(options.envs).get("NVIDIA_VISIBLE_DEVICES")
        if visible not in {unit.visible_id for unit in resource.units}:
            raise CheckFailed(f"the container got NVIDIA_VISIBLE_DEVICES={visible}, expected one of {sorted(expected)}")
        resident_mib = _resident_mib(process.pid)
        began = time.perf_counter()
        process.send_signal(signal.SIGTERM)
        status = process.wait(SERVE_PATIENCE_S)
        stopped_s = time.perf_counter() - began
    if status != 0 or stopped_s > STOP_PATIENCE_S:
        raise CheckFailed(
            f"stopped with status {status} after {stopped_s:.1f} s, expected 0 within {STOP_PATIENCE_S} s"
        )
    return {
        "resource": resource.name,
        "devices": len(expected),
        "registered_s": round(registered_s, 3),
        "resident_mib": resident_mib,
        "stopped_s": round(stopped_s, 3),
    }


@contextmanager
def _daemon(spec: str, directory: Path) -> Iterator[tuple[Kubelet, "subprocess.Popen[str]"]]:
    """A kubelet stand-in, and the daemon just started on it."""
    plugins = directory / "device-plugins"
    with Kubelet(device_plugins_dir=plugins, root_dir=directory, clock=Clock(scale=10)) as kubelet:
        kubelet.start()
        command = [sys.executable, "-m", "deviceplugin.cli.main", "serve", f"--driver={spec}"]
        command += [f"--kubelet-socket={kubelet.registration_socket}", f"--kubelet-root-dir={directory}"]
        command += [f"--status-socket={directory / 'status.sock'}"]
        with (directory / "log").open("w+", encoding="utf-8") as log:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=log, text=True)
            try:
                yield kubelet, process
            except CheckFailed as error:
                raise CheckFailed(f"{error}\n{_tail(log.name)}") from error
            finally:
                process.kill()
                process.wait()


def _first_list(kubelet: Kubelet, name: str, process: "subprocess.Popen[str]") -> ListRecord:
    """Wait for it; a daemon that ends instead is noticed."""
    deadline = time.monotonic() + SERVE_PATIENCE_S
    while time.monotonic() < deadline:
        with suppress(TimeoutError):
            kubelet.wait_for(lambda: kubelet.resources[name].lists, 0.5)
            return kubelet.resources[name].lists[0]
        if process.poll() is not None:
            raise CheckFailed(f"the daemon ended with status {process.returncode} instead of registering {name}")
    raise CheckFailed(f"the daemon did not register {name} within {SERVE_PATIENCE_S:.0f} s")


def _tail(path: str) -> str:
    lines = Path(path).read_text(encoding="utf-8").splitlines()
    return "\n".join(["--- the end of its log:", *lines[-30:]])


def _resident_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    kib = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:"))
    return round(kib / 1024, 1)


@contextmanager
def _nvml() -> Iterator[None]:
    """NVML in our own right, beside the driver under test: it counts who initialised it."""
    pynvml.nvmlInit()
    try:
        yield
    finally:
        pynvml.nvmlShutdown()


def _or_error(read: Callable[[Any], object], handle: Any) -> object:
    try:
        return read(handle)
    except pynvml.NVMLError as error:
        return str(error)


def machine() -> dict[str, object]:
    """What the measures depend on."""
    return {"cpus": os.cpu_count(), "python": sys.version.split()[0], "kernel": os.uname().release}
