"""What happened on the node: the records that tests read, and the panics that end a test (F18)."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

from deviceplugin.errors import DevicePluginError
from deviceplugin.simulator.clock import Clock


class SimulatorError(DevicePluginError):
    """Anything that the stand-in itself reports to the code that drives it."""


class KubeletPanic(SimulatorError):
    """The real kubelet would have crashed here (L17, L18). The test is over: every further use raises this again."""


class HeldDeviceDropped(KubeletPanic):
    """A list dropped an id that a live pod holds (L16): a panic is within reach (F18)."""


class KubeletStopped(SimulatorError):
    """The kubelet's process ended under the call, or is not running. Start it again."""


@dataclass(frozen=True, slots=True)
class RegistrationRecord:
    """One Register RPC: `error` is the text it was refused with, or None when it was accepted."""

    at: float
    resource: str
    endpoint: str
    version: str
    error: str | None


@dataclass(frozen=True, slots=True)
class ListRecord:
    """One list as it arrived: `devices` are (id, health as sent, NUMA nodes or None) in the order of the message.

    `connection` numbers the connections of the kubelet since it was made, so that two streams can be told apart (R11).
    """

    at: float
    resource: str
    connection: int
    devices: tuple[tuple[str, str, tuple[int, ...] | None], ...]

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids in the order of the message."""
        return tuple(device[0] for device in self.devices)

    @property
    def healthy(self) -> frozenset[str]:
        """The ids that count as healthy (L2)."""
        return frozenset(device[0] for device in self.devices if device[1] == "Healthy")


@dataclass(frozen=True, slots=True)
class RpcRecord:
    """One call of the kubelet to a plugin, written when it starts (`error` stays None) and again when it ends.

    `ids` are the device ids of the request in their order; for GetPreferredAllocation they are the available ones,
    `must_include` and `size` are its other fields. `phase` is `begin` or `end`.
    """

    at: float
    resource: str
    connection: int
    method: str
    phase: str
    ids: tuple[str, ...] = ()
    must_include: tuple[str, ...] = ()
    size: int = 0
    error: str | None = None


@dataclass(frozen=True, slots=True)
class StatusSnapshot:
    """A node status as it was PATCHed (L11): resource -> (capacity, allocatable)."""

    at: float
    resources: Mapping[str, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class PodEvent:
    """A Warning event on a pod (A20, A23)."""

    at: float
    pod_uid: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Fault:
    """Something the plugin did that the contract forbids: `statement` is the contract's number."""

    at: float
    statement: str
    resource: str
    ids: tuple[str, ...]
    text: str


@dataclass(slots=True)
class Journal:
    """All records, under one condition that is notified at every change. Lives as long as the node, not the process."""

    clock: Clock
    changed: threading.Condition = field(default_factory=threading.Condition)
    registrations: list[RegistrationRecord] = field(default_factory=list)
    lists: list[ListRecord] = field(default_factory=list)
    rpcs: list[RpcRecord] = field(default_factory=list)
    statuses: list[StatusSnapshot] = field(default_factory=list)
    events: list[PodEvent] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    health_refreshes: list[str] = field(default_factory=list)
    checkpoint_writes: int = 0
    panic: KubeletPanic | None = None

    def rpc(
        self,
        resource: str,
        connection: int,
        method: str,
        phase: str,
        *,
        ids: tuple[str, ...] = (),
        must_include: tuple[str, ...] = (),
        size: int = 0,
        error: str | None = None,
    ) -> None:
        """Record the begin or the end of one call to a plugin."""
        with self.changed:
            self.rpcs.append(
                RpcRecord(self.clock.now(), resource, connection, method, phase, ids, must_include, size, error)
            )
            self.changed.notify_all()

    def fault(self, statement: str, resource: str, ids: tuple[str, ...], text: str) -> None:
        """Record a breach of the contract by the plugin."""
        with self.changed:
            self.faults.append(Fault(self.clock.now(), statement, resource, ids, text))
            self.changed.notify_all()

    def event(self, pod_uid: str, reason: str, message: str) -> None:
        """Record a Warning event."""
        with self.changed:
            self.events.append(PodEvent(self.clock.now(), pod_uid, reason, message))
            self.changed.notify_all()

    def fail(self, panic: KubeletPanic) -> None:
        """Make `panic` the end of the test, unless another one came first."""
        with self.changed:
            self.panic = self.panic or panic
            self.changed.notify_all()

    def check(self) -> None:
        """Raise the panic, if there is one."""
        if self.panic is not None:
            raise type(self.panic)(str(self.panic))
