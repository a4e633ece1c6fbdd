"""What the kubelet knows of devices: lists, endpoints, and who holds what (L*, S7, A13, C*).

One `DeviceManager` lives as long as one kubelet process. Every method takes the journal's condition for itself and
holds it only for table work, never during a call to a plugin (P7).
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from deviceplugin.simulator import checkpoint
from deviceplugin.simulator.checkpoint import NO_NUMA, Record
from deviceplugin.simulator.clock import STOP_GRACE_SECONDS, Clock
from deviceplugin.simulator.connection import PluginConnection
from deviceplugin.simulator.journal import HeldDeviceDropped, Journal, KubeletPanic, ListRecord
from deviceplugin.simulator.pods import PodTable
from deviceplugin.stubs import deviceplugin_v1beta1_pb2 as pb

HEALTHY = "Healthy"


@dataclass(slots=True)
class Endpoint:
    """A plugin as the manager knows it. Without a connection it is one that only the checkpoint names (S7).

    `stopped_at` is in kubelet seconds.
    """

    resource: str
    connection: PluginConnection | None = None
    options: pb.DevicePluginOptions | None = None
    stopped_at: float | None = None

    def expired(self, now: float) -> bool:
        """Whether strictly more than the grace has passed since it stopped (L9)."""
        return self.stopped_at is not None and now - self.stopped_at > STOP_GRACE_SECONDS


@dataclass(frozen=True, slots=True)
class LocalResource:
    """One resource in the manager's tables at this moment, before any status push."""

    healthy: frozenset[str]
    unhealthy: frozenset[str]
    allocated: frozenset[str]
    stopped: bool

    @property
    def capacity(self) -> int:
        """|healthy| + |unhealthy| (L8, L3)."""
        return len(self.healthy) + len(self.unhealthy)

    @property
    def allocatable(self) -> int:
        """|healthy|; allocations are not subtracted (L8)."""
        return len(self.healthy)


class DeviceManager:
    """The tables. `abort_on_drop`: a list that drops a held id ends the test (F18)."""

    def __init__(
        self,
        directory: Path,
        journal: Journal,
        clock: Clock,
        pods: PodTable,
        rng: random.Random,
        *,
        abort_on_drop: bool = True,
    ) -> None:
        self.directory = directory
        self.journal = journal
        self.clock = clock
        self.pods = pods
        self.rng = rng
        self.abort_on_drop = abort_on_drop
        self.started = False
        self.stopped = False
        self.sources_ready = False
        self.running_at_start: frozenset[tuple[str, str]] = frozenset()
        self.endpoints: dict[str, Endpoint] = {}
        self.healthy: dict[str, set[str]] = {}
        self.unhealthy: dict[str, set[str]] = {}
        self.devices: dict[str, dict[str, pb.Device]] = {}
        self.allocated: dict[str, set[str]] = {}
        self.records: checkpoint.PodRecords = {}
        self.pending_pod: str | None = None
        self._dropped: set[tuple[str, str, str]] = set()

    # -- start -------------------------------------------------------------------------------------------------

    def load(self) -> None:
        """Read the checkpoint: its resources appear with 0 devices and a stopped endpoint (S7, A31)."""
        with self.journal.changed:
            found = checkpoint.read(self.directory)
            if found is not None:
                self.records = found.pods
                self._rebuild_allocated()
                for resource in found.registered:
                    self.healthy[resource] = set()
                    self.unhealthy[resource] = set()
                    self.endpoints[resource] = Endpoint(resource, stopped_at=self.clock.now())
            self.running_at_start = self.pods.running_containers()
            self.started = True
            self.journal.changed.notify_all()

    # -- plugins -----------------------------------------------------------------------------------------------

    def connected(self, connection: PluginConnection, options: pb.DevicePluginOptions) -> None:
        """A registration succeeded: the newest endpoint wins for RPCs; the device tables stay as they are (R11, L6)."""
        with self.journal.changed:
            self.endpoints[connection.resource] = Endpoint(connection.resource, connection, options)
            self.journal.changed.notify_all()

    def disconnected(self, resource: str) -> None:
        """The stream of `resource` ended: healthy ids become unhealthy, its present endpoint stops (L7, L6, R12)."""
        with self.journal.changed:
            self.unhealthy.setdefault(resource, set()).update(self.healthy.get(resource, ()))
            self.healthy[resource] = set()
            endpoint = self.endpoints.get(resource)
            if endpoint is not None:
                endpoint.stopped_at = self.clock.now()
            self.journal.changed.notify_all()

    def apply_list(self, connection: PluginConnection, message: pb.ListAndWatchResponse) -> None:
        """Replace the whole resource by one list (L1 to L5), write the checkpoint (L13), look for breaches (F18)."""
        resource = connection.resource
        with self.journal.changed:
            if self.stopped or connection.closed:
                return
            before = self.devices.get(resource, {})
            self._replace(resource, message)
            self.journal.lists.append(
                ListRecord(
                    self.clock.now(),
                    resource,
                    connection.number,
                    tuple(
                        (d.ID, d.health, tuple(n.ID for n in d.topology.nodes) if d.HasField("topology") else None)
                        for d in message.devices
                    ),
                )
            )
            self._find_drops(resource)
            self._refresh_health(resource, before)
            self.write_checkpoint()
            self.journal.changed.notify_all()

    def _replace(self, resource: str, message: pb.ListAndWatchResponse) -> None:
        self.healthy[resource] = {d.ID for d in message.devices if d.health == HEALTHY}
        self.unhealthy[resource] = {d.ID for d in message.devices if d.health != HEALTHY}
        self.devices[resource] = {d.ID: d for d in message.devices}

    def _find_drops(self, resource: str) -> None:
        known = self.devices[resource]
        for uid, container, record in self._records_of(resource):
            missing = tuple(
                sorted(i for i in record.all_ids if i not in known and (uid, resource, i) not in self._dropped)
            )
            if not missing or not self.pods.is_active(uid):
                continue
            self._dropped.update((uid, resource, i) for i in missing)
            text = f"{resource}: a list drops {', '.join(missing)}, held by container {container} of pod {uid} (L16)"
            self.journal.fault("L16", resource, missing, text)
            if self.abort_on_drop:
                self.journal.fail(HeldDeviceDropped(text))

    def _refresh_health(self, resource: str, before: Mapping[str, pb.Device]) -> None:
        # H4: a change or (re)appearance of an id in the new list; H5: the holder is looked up by id alone.
        for device_id, device in self.devices[resource].items():
            old = before.get(device_id)
            if old is not None and (old.health == HEALTHY) == (device.health == HEALTHY):
                continue
            holders = sorted(
                uid
                for uid, containers in self.records.items()
                for resources in containers.values()
                for record in resources.values()
                if device_id in record.all_ids
            )
            if holders:
                self.journal.health_refreshes.append(self.rng.choice(holders))

    # -- reading -----------------------------------------------------------------------------------------------

    def capacity(self) -> tuple[dict[str, tuple[int, int]], frozenset[str]]:
        """((capacity, allocatable) by resource, the resources deleted just now): run by a status tick only (L8, L9)."""
        with self.journal.changed:
            now = self.clock.now()
            names = self.healthy.keys() | self.unhealthy.keys()
            deleted = frozenset(n for n in names if n not in self.endpoints or self.endpoints[n].expired(now))
            for name in deleted:
                self.endpoints.pop(name, None)
                self.healthy.pop(name, None)
                self.unhealthy.pop(name, None)
            if deleted:
                self.write_checkpoint()
                self.journal.changed.notify_all()
            return {name: self._amounts(name) for name in names - deleted}, deleted

    def _amounts(self, name: str) -> tuple[int, int]:
        healthy = len(self.healthy.get(name, ()))
        return healthy + len(self.unhealthy.get(name, ())), healthy

    def local(self) -> dict[str, LocalResource]:
        """The tables now, by resource."""
        with self.journal.changed:
            return {
                name: LocalResource(
                    frozenset(self.healthy.get(name, ())),
                    frozenset(self.unhealthy.get(name, ())),
                    frozenset(self.allocated.get(name, ())),
                    name not in self.endpoints or self.endpoints[name].stopped_at is not None,
                )
                for name in self.healthy.keys() | self.unhealthy.keys() | self.allocated.keys()
            }

    def knows(self, resource: str) -> bool:
        """Whether it is a known device resource: registered, or allocated to someone (A5)."""
        return resource in self.healthy or resource in self.allocated

    def numa_nodes(self, resource: str, device_id: str) -> tuple[int, ...]:
        """The NUMA nodes of a device in the last list, empty for none (L19). Raises KeyError when it is gone."""
        return tuple(node.ID for node in self.devices.get(resource, {})[device_id].topology.nodes)

    def has_numa(self, resource: str) -> bool:
        """Whether one device with NUMA info makes the resource topology-aware (L20)."""
        return any(device.topology.nodes for device in self.devices.get(resource, {}).values())

    def pod_health(self, uid: str) -> dict[str, dict[str, dict[str, str]]]:
        """container -> resource -> id -> health, for the app containers of a pod.

        A vanished id and one of a dead plugin show the last or the default value, never `Unknown` (H1, H2, L16).
        """
        with self.journal.changed:
            apps = {c.name for c in self.pods.get(uid).spec.containers if c.kind == "app"}
            return {
                container: {
                    resource: {i: self._health(resource, i) for i in sorted(record.all_ids)}
                    for resource, record in resources.items()
                }
                for container, resources in self.records.get(uid, {}).items()
                if container in apps
            }

    def _health(self, resource: str, device_id: str) -> str:
        device = self.devices.get(resource, {}).get(device_id)
        return HEALTHY if device is None or device.health == HEALTHY else "Unhealthy"

    def holdings(self, uid: str) -> dict[str, dict[str, frozenset[str]]]:
        """container -> resource -> ids as recorded."""
        with self.journal.changed:
            return {
                container: {resource: record.all_ids for resource, record in resources.items()}
                for container, resources in self.records.get(uid, {}).items()
            }

    # -- holding -----------------------------------------------------------------------------------------------

    def free_ended_pods(self) -> None:
        """The lazy freeing: forget pods that are terminal and rebuild the table (A13). In-flight ids get lost (A14)."""
        with self.journal.changed:
            if not self.sources_ready:
                return
            ended = [uid for uid in self.records if uid != self.pending_pod and not self.pods.is_active(uid)]
            if ended:
                for uid in ended:
                    del self.records[uid]
                self._rebuild_allocated()
                self.journal.changed.notify_all()

    def record(self, uid: str, container: str, resource: str, ids: Iterable[str], response: bytes) -> None:
        """Write down what a container was given (A16). An id that vanished during its Allocate panics here (L17).

        Only here: an Allocate that fails is forgotten before anything looks its ids up. A plugin can refuse a call
        that was on its way when it sent the list; that call harms nobody but its pod.
        """
        with self.journal.changed:
            by_node: dict[int, list[str]] = {}
            for device_id in ids:
                try:
                    nodes = self.numa_nodes(resource, device_id)
                except KeyError:
                    text = f"{resource}: nil device {device_id!r} when its Allocate returned (L17)"
                    self.journal.fault("L17", resource, (device_id,), text)
                    panic = KubeletPanic(text)
                    self.journal.fail(panic)
                    raise panic from None
                for node in nodes or (NO_NUMA,):
                    by_node.setdefault(node, []).append(device_id)
            record = Record({node: tuple(found) for node, found in by_node.items()}, response)
            self.records.setdefault(uid, {}).setdefault(container, {})[resource] = record
            self.journal.changed.notify_all()

    def restore(self) -> None:
        """After a failed Allocate: the table is what the records say (A15)."""
        with self.journal.changed:
            self._rebuild_allocated()

    def _rebuild_allocated(self) -> None:
        self.allocated = {}
        for containers in self.records.values():
            for resources in containers.values():
                for resource, record in resources.items():
                    self.allocated.setdefault(resource, set()).update(record.all_ids)

    def _records_of(self, resource: str) -> list[tuple[str, str, Record]]:
        return [
            (uid, container, resources[resource])
            for uid, containers in self.records.items()
            for container, resources in containers.items()
            if resource in resources
        ]

    def write_checkpoint(self) -> None:
        """Write the checkpoint (C3). A missing directory is only a log line for the kubelet, so nothing here."""
        with self.journal.changed:
            if self.stopped:
                return
            registered = {name: tuple(self.rng.sample(sorted(ids), len(ids))) for name, ids in self.healthy.items()}
            try:
                checkpoint.write(self.directory, checkpoint.Checkpoint(self.records, registered))
            except FileNotFoundError:
                return
            self.journal.checkpoint_writes += 1
