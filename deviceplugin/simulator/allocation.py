"""The choice of devices and the Allocate call for one container (A4 to A11, A15 to A17, A22 to A25)."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from typing import TypeVar

from deviceplugin.simulator.connection import PluginConnection, PluginError
from deviceplugin.simulator.devicemanager import DeviceManager, Endpoint
from deviceplugin.simulator.journal import KubeletPanic, KubeletStopped
from deviceplugin.simulator.pods import Container, DeviceNode, MountSpec, PodState, RunOptions
from deviceplugin.stubs import deviceplugin_v1beta1_pb2 as pb

T = TypeVar("T")


class AllocationError(Exception):
    """The kubelet's own error text; in admission it fails the pod for good (A20), at a start it is retried (A23)."""


class Allocator:
    """Chooses ids and calls the plugins; what the kubelet leaves to Go's map order is a seeded shuffle (F6)."""

    def __init__(self, manager: DeviceManager, rng: random.Random) -> None:
        self.manager = manager
        self.rng = rng

    def shuffled(self, items: Iterable[T]) -> list[T]:
        """The items in a random order (A2, A11, A17)."""
        found = sorted(items)  # type: ignore[type-var]
        self.rng.shuffle(found)
        return found

    def allocate_container(self, pod: PodState, container: Container, reusable: Mapping[str, set[str]]) -> None:
        """All resources of one container, in random order, one Allocate each (A2); then one checkpoint write (C3).

        `reusable`: ids of earlier plain init containers of this pod (A7, A12). Raises `AllocationError`.
        """
        manager = self.manager
        changed = freed = False
        for resource in self.shuffled(container.limits):
            if not manager.knows(resource):
                continue  # A5
            if not freed:
                manager.free_ended_pods()  # A13
                freed = True
            chosen = self.choose(
                pod, container.name, resource, container.limits[resource], reusable.get(resource, set())
            )
            if chosen:
                changed = True
                self._call_allocate(pod, container.name, resource, chosen)
        if changed:
            manager.write_checkpoint()

    # -- gate and choice ---------------------------------------------------------------------------------------

    def gate(self, uid: str, container: str, resource: str, wanted: int) -> int:
        """How many more ids are needed, 0 for none; the checks come in the order of A4. Raises `AllocationError`."""
        manager = self.manager
        record = manager.records.get(uid, {}).get(container, {}).get(resource)
        held = record.all_ids if record is not None else frozenset()
        needed = wanted
        if record is not None:
            needed -= len(held)
            if needed != 0:
                raise AllocationError(
                    f'pod "{uid}" container "{container}" changed request for resource "{resource}" '
                    f"from {len(held)} to {wanted}"
                )
        if not manager.sources_ready and (uid, container) in manager.running_at_start:
            return 0  # A28
        if resource not in manager.healthy:
            raise AllocationError(f"cannot allocate unregistered device {resource}")
        healthy = manager.healthy[resource]
        if not healthy:
            raise AllocationError(f"no healthy devices present; cannot allocate unhealthy devices {resource}")
        if not held <= healthy:
            raise AllocationError(
                f"previously allocated devices are no longer healthy; cannot allocate unhealthy devices {resource}"
            )
        return needed

    def choose(self, pod: PodState, container: str, resource: str, wanted: int, reusable: set[str]) -> set[str]:
        """The ids to allocate now, recorded as in use; empty when nothing is to be done. Raises `AllocationError`."""
        manager = self.manager
        with manager.journal.changed:
            needed = self.gate(pod.uid, container, resource, wanted)
            if needed == 0:
                return set()
            chosen: set[str] = set()
            in_use = manager.allocated.setdefault(resource, set())
            if self._take(reusable, chosen, resource, needed):
                return chosen
            available = manager.healthy[resource] - in_use
            needed -= len(chosen)
            if len(available) < needed:
                raise AllocationError(
                    f"requested number of devices unavailable for {resource}. "
                    f"Requested: {needed}, Available: {len(available)}"
                )
            aligned, unaligned, no_affinity = self.by_affinity(pod, resource, available)
            if needed < len(aligned):
                preferred = self.preferred(resource, aligned | chosen, chosen, wanted)
                sources = [preferred & aligned, aligned]
            elif self._take(aligned, chosen, resource, wanted):
                return chosen
            else:
                preferred = self.preferred(resource, available | chosen, chosen, wanted)
                sources = [preferred & available, unaligned, no_affinity]
            for source in sources:
                if self._take(source, chosen, resource, wanted):
                    return chosen
        raise AllocationError(f"unexpectedly allocated less resources than required for {resource}")

    def _take(self, source: set[str], chosen: set[str], resource: str, total: int) -> bool:
        with self.manager.journal.changed:
            in_use = self.manager.allocated.setdefault(resource, set())
            for device_id in self.shuffled(source - chosen):
                if len(chosen) == total:
                    break
                chosen.add(device_id)
                in_use.add(device_id)
            return len(chosen) == total

    def by_affinity(self, pod: PodState, resource: str, available: set[str]) -> tuple[set[str], set[str], set[str]]:
        """(aligned, unaligned, without affinity): all without, when there is no hint or no NUMA info (A7)."""
        hint = pod.spec.numa_hint
        if hint is None or not self.manager.has_numa(resource):
            return set(), set(), set(available)
        nodes = {device_id: set(self.manager.numa_nodes(resource, device_id)) for device_id in available}
        aligned = {device_id for device_id, found in nodes.items() if found & hint}
        no_affinity = {device_id for device_id, found in nodes.items() if not found}
        return aligned, available - aligned - no_affinity, no_affinity

    def preferred(self, resource: str, available: set[str], must: set[str], total: int) -> set[str]:
        """The plugin's wish as a set (A10); empty when it did not offer the call. Raises `AllocationError`.

        The caller holds the condition exactly once; it is released during the call (P7).
        """
        endpoint = self.manager.endpoints.get(resource)
        if endpoint is None:
            raise AllocationError(f"endpoint not found in cache for a registered resource: {resource}")
        if endpoint.options is None or not endpoint.options.get_preferred_allocation_available:
            return set()
        request = tuple(self.shuffled(available)), tuple(self.shuffled(must)), total
        self.manager.journal.changed.release()
        try:
            answer = self._live(endpoint).preferred(*request)
        except PluginError as error:
            self._die_with_process()
            raise AllocationError(f"device plugin GetPreferredAllocation rpc failed with err: {error}") from None
        finally:
            self.manager.journal.changed.acquire()
        responses = answer.container_responses
        return set(responses[0].deviceIDs) if responses else set()

    # -- the call ----------------------------------------------------------------------------------------------

    def _live(self, endpoint: Endpoint) -> PluginConnection:
        if endpoint.connection is None or endpoint.stopped_at is not None:
            raise PluginError(f"endpoint {endpoint.resource} has been stopped")
        return endpoint.connection

    def _die_with_process(self) -> None:
        if self.manager.stopped:
            raise KubeletStopped("the kubelet stopped during the call")

    def _call_allocate(self, pod: PodState, container: str, resource: str, chosen: set[str]) -> None:
        manager = self.manager
        with manager.journal.changed:
            endpoint = manager.endpoints.get(resource)
        if endpoint is None:
            manager.restore()
            raise AllocationError(f"unknown Device Plugin {resource}")
        ids = tuple(self.shuffled(chosen))
        try:
            answer = self._live(endpoint).allocate(ids)
            self._die_with_process()
            if not answer.container_responses:
                # A15: the ids stay in the table until some tracked pod ends.
                raise AllocationError("no containers return in allocation response " + str(answer).strip())
            response = answer.container_responses[0].SerializeToString()
            manager.record(pod.uid, container, resource, ids, response)
        except PluginError as error:
            self._die_with_process()
            manager.restore()
            raise AllocationError(str(error)) from None

    # -- container starts --------------------------------------------------------------------------------------

    def run_options(self, pod: PodState, container: Container) -> RunOptions | None:
        """What a start of the container gets: PreStart, a late Allocate where nothing is cached, then the cached
        responses merged (A16, A17, A22 to A25); None when it holds nothing. Raises `AllocationError` (A23)."""
        manager = self.manager
        missing = False
        for resource in self.shuffled(container.limits):
            if not manager.knows(resource) or container.limits[resource] == 0:
                continue
            self._pre_start(pod, container.name, resource)
            with manager.journal.changed:
                recorded = manager.records.get(pod.uid, {}).get(container.name, {})
                missing = missing or (pod.active and resource not in recorded)
        if missing:
            self.allocate_container(pod, container, {})
        with manager.journal.changed:
            recorded = dict(manager.records.get(pod.uid, {}).get(container.name, {}))
        responses = [
            pb.ContainerAllocateResponse.FromString(recorded[resource].response) for resource in self.shuffled(recorded)
        ]
        return merge(responses) if responses else None

    def _pre_start(self, pod: PodState, container: str, resource: str) -> None:
        manager = self.manager
        with manager.journal.changed:
            endpoint = manager.endpoints.get(resource)
            if endpoint is None:
                raise AllocationError(f"endpoint not found in cache for a registered resource: {resource}")
            if endpoint.options is None or not endpoint.options.pre_start_required:
                return
            record = manager.records.get(pod.uid, {}).get(container, {}).get(resource)
            if record is None:
                raise AllocationError(
                    f"no devices found allocated in local cache for pod {pod.uid}, "
                    f"container {container}, resource {resource}"
                )
            ids = tuple(self.shuffled(record.all_ids))
        try:
            self._live(endpoint).pre_start(ids)
        except PluginError as error:
            self._die_with_process()
            raise AllocationError(f"device plugin PreStartContainer rpc failed with err: {error}") from None

    # -- topology hints ----------------------------------------------------------------------------------------

    def regenerate_hints(self, pod: PodState, container: Container) -> None:
        """Topology hints of one container, with a Topology Manager policy other than none: frees ended pods (A13) and
        panics over a held id that the current list of a NUMA-aware resource lacks (L18)."""
        manager = self.manager
        manager.free_ended_pods()
        with manager.journal.changed:
            for resource in container.limits:
                record = manager.records.get(pod.uid, {}).get(container.name, {}).get(resource)
                if record is None or not manager.has_numa(resource):
                    continue
                absent = sorted(record.all_ids - manager.devices[resource].keys())
                if absent:
                    panic = KubeletPanic(f"{resource}: nil device {absent[0]!r} when hints were generated (L18)")
                    manager.journal.fail(panic)
                    raise panic


def merge(responses: Iterable[pb.ContainerAllocateResponse]) -> RunOptions:
    """One container's options from its responses, first seen wins (A17)."""
    envs: dict[str, str] = {}
    mounts: dict[str, MountSpec] = {}
    devices: dict[str, DeviceNode] = {}
    annotations: dict[str, str] = {}
    cdi: dict[str, None] = {}
    for response in responses:
        for key, value in response.envs.items():
            envs.setdefault(key, value)
        for mount in response.mounts:
            mounts.setdefault(mount.container_path, MountSpec(mount.container_path, mount.host_path, mount.read_only))
        for node in response.devices:
            devices.setdefault(node.container_path, DeviceNode(node.container_path, node.host_path, node.permissions))
        for key, value in response.annotations.items():
            annotations.setdefault(key, value)
        for device in response.cdi_devices:
            cdi.setdefault(device.name)
    return RunOptions(envs, tuple(mounts.values()), tuple(devices.values()), annotations, tuple(cdi))
