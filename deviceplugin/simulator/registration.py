"""The registration server and the kubelet's table of plugin connections (R3 to R14, L7)."""

from __future__ import annotations

import os.path
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import grpc

from deviceplugin.simulator.clock import Clock
from deviceplugin.simulator.connection import PluginConnection, PluginError
from deviceplugin.simulator.devicemanager import DeviceManager
from deviceplugin.simulator.journal import Journal, RegistrationRecord
from deviceplugin.stubs import deviceplugin_v1beta1_pb2 as pb
from deviceplugin.stubs.deviceplugin_v1beta1_pb2_grpc import RegistrationServicer

VERSION = "v1beta1"
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")


def is_extended_resource_name(name: str) -> bool:
    """Whether the kubelet accepts `name` for a resource (R4)."""
    prefix, slash, base = name.partition("/")
    if not slash or "/" in base or "kubernetes.io/" in name or prefix.startswith("requests."):
        return False
    if len(prefix) > 244 or len(base) > 63:
        return False
    return _SUBDOMAIN.fullmatch(prefix) is not None and _NAME.fullmatch(base) is not None


@dataclass(slots=True)
class RegistrationFaults:
    """What a bad node does to Register: refusals and late answers, each for so many calls. Outlives the process."""

    refuse_text: str = ""
    refuse_times: int = 0
    late_seconds: float = 0.0
    late_times: int = 0


class ConnectionTable:
    """Clients by resource NAME, which is what the traps R12 and R13 come from."""

    connection_type: type[PluginConnection] = PluginConnection

    def __init__(
        self,
        directory: Path,
        manager: DeviceManager,
        journal: Journal,
        clock: Clock,
        next_number: Callable[[], int],
    ) -> None:
        self.directory = directory
        self.manager = manager
        self.journal = journal
        self.clock = clock
        self._next_number = next_number
        self.by_name: dict[str, PluginConnection] = {}
        self._all: list[PluginConnection] = []
        self._threads: list[threading.Thread] = []
        self._stopped = False

    def connect(self, request: pb.RegisterRequest, caller_alive: Callable[[], bool]) -> None:
        """Dial the plugin, ask for its options, start its stream, in this order (R5 to R9). Raises `PluginError`."""
        name = request.resource_name
        path = os.path.normpath(f"{self.directory}/{request.endpoint}")  # R5
        connection = self.connection_type(name, path, self._next_number(), self.journal, self.clock)
        with self.journal.changed:
            self._all.append(connection)
            self.by_name[name] = connection  # R11: an older one is neither closed nor forgotten by its stream
            stopped = self._stopped
        try:
            if stopped:
                raise PluginError("the kubelet has stopped")
            connection.dial(caller_alive)
            options = self.options_for(request, connection, caller_alive)
        except PluginError:
            with self.journal.changed:
                self.by_name.pop(name, None)  # R13
            connection.close()
            raise
        self.manager.connected(connection, options)
        self.start_stream(connection)

    def options_for(
        self, request: pb.RegisterRequest, connection: PluginConnection, caller_alive: Callable[[], bool]
    ) -> pb.DevicePluginOptions:
        """The plugin's own answer; what the request says about options is ignored (R8, R9). Raises `PluginError`."""
        try:
            return connection.options(caller_alive)
        except PluginError as error:
            raise PluginError(f"failed to get device plugin options: {error}") from None

    def start_stream(self, connection: PluginConnection) -> None:
        """Consume the connection's lists in a thread of its own, until the stream ends (R6)."""
        thread = threading.Thread(
            target=self._consume, args=(connection,), name=f"kubelet-lists-{connection.number}", daemon=True
        )
        with self.journal.changed:
            if self._stopped:
                return
            self._threads.append(thread)
            thread.start()

    def _consume(self, connection: PluginConnection) -> None:
        for message in connection.lists():
            self.manager.apply_list(connection, message)
        if not self._stopped:
            self.stream_ended(connection)

    def stream_ended(self, connection: PluginConnection) -> None:
        """Hang up on whatever connection bears the NAME now, the new one included (R12); on none after R13."""
        with self.journal.changed:
            current = self.by_name.pop(connection.resource, None)
        if current is None:
            return
        current.hang_up()
        self.manager.disconnected(connection.resource)
        current.close()

    def close(self) -> None:
        """The process ends: every connection is cut, every thread joined."""
        with self.journal.changed:
            self._stopped = True
            connections, threads = list(self._all), list(self._threads)
            self.journal.changed.notify_all()
        for connection in connections:
            connection.hang_up()
        for connection in connections:
            connection.close()
        for thread in threads:
            thread.join()


class Registrar(RegistrationServicer):
    """The Registration service (R3, R6). It answers nobody while no device manager runs."""

    def __init__(self, table: ConnectionTable, journal: Journal, clock: Clock, faults: RegistrationFaults) -> None:
        self.table: ConnectionTable | None = table
        self.journal = journal
        self.clock = clock
        self.faults = faults

    def Register(self, request: pb.RegisterRequest, context: grpc.ServicerContext) -> pb.Empty:
        """Check, dial back, ask for options, and only then answer (R3, R6)."""
        self._wake_when_over(context)
        table = self.table
        if table is None or self.journal.panic is not None:
            context.abort(grpc.StatusCode.UNAVAILABLE, "connection refused")
        started = self.clock.now()
        error = self.refusal(request)
        if error is None:
            try:
                self.accept(table, request, context.is_active)
            except PluginError as failure:
                error = str(failure)
        with self.journal.changed:
            self.journal.registrations.append(
                RegistrationRecord(started, request.resource_name, request.endpoint, request.version, error)
            )
            self.journal.changed.notify_all()
        if error is not None:
            self._refuse(context, error)
        self._answer_late(context, started)
        return pb.Empty()

    def accept(self, table: ConnectionTable, request: pb.RegisterRequest, caller_alive: Callable[[], bool]) -> None:
        """Connect before the answer (R6). Raises `PluginError`."""
        table.connect(request, caller_alive)

    def refusal(self, request: pb.RegisterRequest) -> str | None:
        """Why the request is refused without a dial, or None: version first, then the name (R3, R4)."""
        with self.journal.changed:
            if self.faults.refuse_times > 0:
                self.faults.refuse_times -= 1
                return self.faults.refuse_text
        if request.version != VERSION:
            return (
                f'requested API version "{request.version}" is not supported by kubelet. '
                f'Supported version is "{VERSION}"'
            )
        if not is_extended_resource_name(request.resource_name):
            return f'the ResourceName "{request.resource_name}" is invalid'
        return None

    def _wake_when_over(self, context: grpc.ServicerContext) -> None:
        def wake() -> None:
            with self.journal.changed:
                self.journal.changed.notify_all()

        context.add_callback(wake)

    def _answer_late(self, context: grpc.ServicerContext, started: float) -> None:
        with self.journal.changed:
            if self.faults.late_times <= 0:
                return
            self.faults.late_times -= 1
            self.clock.wait_until(
                self.journal.changed,
                lambda: self.table is None or not context.is_active(),
                started + self.faults.late_seconds,
            )

    @staticmethod
    def _refuse(context: grpc.ServicerContext, text: str) -> NoReturn:
        context.abort(grpc.StatusCode.UNKNOWN, text)
        raise AssertionError("abort returns never")
