"""Runs a recorded case: the daemon as a process on either driver, the calls of the recording, our answers in its form.

What is compared, and what is information only, is the table in `compare`.
"""

import contextlib
import subprocess
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

import grpc

from deviceplugin.observe.status_socket import StatusUnavailable
from deviceplugin.stubs import deviceplugin_v1beta1_pb2 as pb
from deviceplugin.stubs.deviceplugin_v1beta1_pb2_grpc import DevicePluginStub
from tests.goldens.case import Case, Json
from tests.serving.harness import Node

SETTLE_S: Final = 30
CALL_S: Final = 10
NO_LIBRARY: Final = "init 12"  # NVML_ERROR_LIBRARY_NOT_FOUND


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a case came to.

    Attributes:
        result: exit status and resources, in the form of an expected.json.
        log: the daemon's.
        ready: what its status says of its readiness; empty when it ended.
    """

    result: Json
    log: str
    ready: Json


class CaseNode(Node):
    """The node of a case."""

    def __init__(self, case: Case, driver: str) -> None:
        super().__init__(
            case.node_text,
            case.config if case.gives_config else None,
            driver=driver,
            args=case.args,
            sandbox=case.sandbox,
            faults=_faults(case, driver),
            mps="mps_control" in case.sandbox,
        )
        self._case = case
        self._unnamed_config = self.root / "unnamed.yaml"
        if case.config is not None and not case.gives_config:
            self._unnamed_config.write_text(case.config)
        if case.kubelet_reject is not None:
            self.kubelet.refuse_registrations(case.kubelet_reject, times=1_000_000)

    def environ(self) -> dict[str, str]:
        """The environment of the daemon, with the variables of the case."""
        config = str(self._unnamed_config)
        return super().environ() | {key: text.replace("{config}", config) for key, text in self._case.env.items()}

    def wait_settled(self) -> Json:
        """Wait until the daemon is ready or says what it waits for for ever, and return that; empty when it ended."""
        assert self.process is not None
        deadline = time.monotonic() + SETTLE_S
        ready: Json = {}
        while time.monotonic() < deadline:
            try:
                ready = self.status()["ready"]
            except StatusUnavailable:
                pass
            else:
                if ready["ok"] or self._waits_for_ever(ready["reasons"]):
                    return ready
            try:
                self.process.wait(0.02)
            except subprocess.TimeoutExpired:
                continue
            return {}
        raise AssertionError(f"{self._case.name}: neither ended nor settled in {SETTLE_S} s; its last word: {ready}")

    def _waits_for_ever(self, reasons: Iterable[str]) -> bool:
        if self._case.kubelet_reject is not None:
            return any(record.error is not None for record in self.kubelet.registrations)
        return any(reason.startswith("waiting for the driver:") for reason in reasons)


def _faults(case: Case, driver: str) -> tuple[str, ...]:
    """The faults as the driver can play them: a description has no library path that could lead nowhere."""
    no_library = driver == "simulated" and "LD_LIBRARY_PATH" in case.env
    return (*case.faults, NO_LIBRARY) if no_library else case.faults


@contextlib.contextmanager
def _mps_daemons(node: CaseNode, case: Case) -> Iterator[None]:
    """The control daemons of a node where commands to them succeed (`ok`) or fail; else there is no such program."""
    if "mps_control" not in case.sandbox:
        yield
        return
    with contextlib.ExitStack() as running:
        for gpu in range(len(case.node().gpus)):
            running.enter_context(node.mps_daemon(gpu)).limit(25, 3840)
        if case.sandbox["mps_control"] == "fail":
            node.mps_faults.set("fail")
        yield


def run_case(case: Case, driver: str, expected: Json) -> Outcome:
    """Start the daemon, put to each resource that the kubelet accepted the questions of `expected`, stop it.

    Raises:
        AssertionError: it crashed, or neither ended nor settled, or a stop by signal did not end it with zero.
    """
    with CaseNode(case, driver) as node, _mps_daemons(node, case):
        node.kubelet.start()
        node.start()
        ready = node.wait_settled()
        assert node.process is not None
        if node.process.poll() is not None:
            status = node.wait_exit()
            assert "Traceback" not in node.log, f"{case.name}: it did not refuse but crash:\n{node.log}"
            return Outcome({"exit": status, "resources": {}, "cdi_specs": node.cdi_specs()}, node.log, {})
        endpoints = {record.resource: record.endpoint for record in node.kubelet.registrations if record.error is None}
        resources = {name: _ask(node, name, endpoints[name], expected) for name in sorted(endpoints)}
        status = node.stop()
        assert status == 0, f"{case.name}: stopped by SIGTERM, it ended with {status}"
        # After the end: pods that run still need their names.
        return Outcome({"exit": None, "resources": resources, "cdi_specs": node.cdi_specs()}, node.log, ready)


def _ask(node: Node, name: str, endpoint: str, expected: Json) -> Json:
    node.wait_listed(name)
    first = node.kubelet.resources[name].lists[0]
    questions = expected["resources"].get(name, {"preferred": [], "allocate": []})
    with grpc.insecure_channel("unix:" + quote(str(node.kubelet.registration_socket.parent / endpoint))) as channel:
        plugin = DevicePluginStub(channel)  # type: ignore[no-untyped-call]
        options = plugin.GetDevicePluginOptions(pb.Empty(), timeout=CALL_S)
        return {
            "endpoint": endpoint,
            "options": {
                "get_preferred_allocation_available": options.get_preferred_allocation_available,
                "pre_start_required": options.pre_start_required,
            },
            "devices": [{"id": id, "health": health, "numa": list(numa or ())} for id, health, numa in first.devices],
            "preferred": [_prefer(plugin, question["request"]) for question in questions["preferred"]],
            "allocate": [_allocate(plugin, question["request"]) for question in questions["allocate"]],
        }


def _prefer(plugin: Any, request: Json) -> Json:
    message = pb.PreferredAllocationRequest(
        container_requests=[
            pb.ContainerPreferredAllocationRequest(
                available_deviceIDs=request["available"],
                must_include_deviceIDs=request["must"],
                allocation_size=request["size"],
            )
        ]
    )
    try:
        answer = plugin.GetPreferredAllocation(message, timeout=CALL_S)
    except grpc.RpcError as error:
        return {"request": request, "response": _error(error)}
    (container,) = answer.container_responses
    return {"request": request, "response": sorted(container.deviceIDs)}


def _allocate(plugin: Any, request: list[Any]) -> Json:
    several = bool(request) and isinstance(request[0], list)
    containers = request if several else [request]
    message = pb.AllocateRequest(
        container_requests=[pb.ContainerAllocateRequest(devices_ids=ids) for ids in containers]
    )
    try:
        answer = plugin.Allocate(message, timeout=CALL_S)
    except grpc.RpcError as error:
        return {"request": request, "response": _error(error)}
    answers = [_container(container) for container in answer.container_responses]
    return {"request": request, "response": {"containers": answers} if several else answers[0]}


def _container(container: Any) -> Json:
    mounts = sorted(container.mounts, key=lambda mount: mount.container_path)
    files = sorted(container.devices, key=lambda file: file.container_path)
    return {
        "annotations": dict(container.annotations),
        "cdi": [device.name for device in container.cdi_devices],
        "devices": [
            {"container_path": file.container_path, "host_path": file.host_path, "permissions": file.permissions}
            for file in files
        ],
        "envs": dict(container.envs),
        "mounts": [
            {"container_path": mount.container_path, "host_path": mount.host_path, "read_only": mount.read_only}
            for mount in mounts
        ],
    }


def _error(error: grpc.RpcError) -> Json:
    assert isinstance(error, grpc.Call)
    return {"error": {"code": error.code().name, "details": error.details()}}
