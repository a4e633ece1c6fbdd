"""The PodResources service, v1 (P1 to P6). Not served: v1alpha1, CPUs, memory and dynamic resources."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import grpc

from deviceplugin.simulator.checkpoint import NO_NUMA
from deviceplugin.simulator.clock import RATE_BURST, RATE_PER_SECOND, Clock
from deviceplugin.simulator.devicemanager import DeviceManager
from deviceplugin.simulator.journal import Journal
from deviceplugin.simulator.pods import PodState
from deviceplugin.stubs import podresources_v1_pb2 as pr
from deviceplugin.stubs.podresources_v1_pb2_grpc import PodResourcesListerServicer


class TokenBucket:
    """100 calls per kubelet second, burst 10, shared by all clients and methods (P1)."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._tokens = float(RATE_BURST)
        self._last = clock.now()

    def take(self) -> bool:
        """Whether a call may pass now."""
        now = self._clock.now()
        self._tokens = min(float(RATE_BURST), self._tokens + (now - self._last) * RATE_PER_SECOND)
        self._last = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


class PodResources(PodResourcesListerServicer):
    """Reads the manager's tables. `known` gives the pods that this kubelet process has seen, oldest first (P5)."""

    def __init__(
        self, manager: DeviceManager, journal: Journal, clock: Clock, known: Callable[[], tuple[PodState, ...]]
    ) -> None:
        self.manager = manager
        self.journal = journal
        self.known = known
        self._bucket = TokenBucket(clock)

    def List(self, request: pr.ListPodResourcesRequest, context: grpc.ServicerContext) -> pr.ListPodResourcesResponse:
        """Active pods with what they hold; prunes and rebuilds the table (P2, A13, A14)."""
        self._limit(context)
        with self.journal.changed:
            self.manager.free_ended_pods()
            return pr.ListPodResourcesResponse(pod_resources=[self.describe(pod) for pod in self.listed()])

    def GetAllocatableResources(
        self, request: pr.AllocatableResourcesRequest, context: grpc.ServicerContext
    ) -> pr.AllocatableResourcesResponse:
        """The healthy ids known now, allocated or not, one entry per NUMA node (P4, L19)."""
        self._limit(context)
        with self.journal.changed:
            return pr.AllocatableResourcesResponse(devices=self.allocatable())

    def Get(self, request: pr.GetPodResourcesRequest, context: grpc.ServicerContext) -> pr.GetPodResourcesResponse:
        """One active pod by namespace and name, else an error (P4). Does not prune (A14)."""
        self._limit(context)
        with self.journal.changed:
            for pod in self.listed():
                if (pod.spec.namespace, pod.spec.name) == (request.pod_namespace, request.pod_name):
                    return pr.GetPodResourcesResponse(pod_resources=self.describe(pod))
        text = f"pod {request.pod_name} in namespace {request.pod_namespace} not found"
        context.abort(grpc.StatusCode.UNKNOWN, text)
        raise AssertionError("abort returns never")

    def listed(self) -> Iterable[PodState]:
        """The pods that List shows: active ones that this process knows (P2, P5)."""
        return [pod for pod in self.known() if pod.active]

    def describe(self, pod: PodState) -> pr.PodResources:
        """Sidecars and app containers of a pod; plain init containers are not listed, though they hold (P2, A12)."""
        records = self.manager.records.get(pod.uid, {})
        containers = [
            pr.ContainerResources(
                name=container.name,
                devices=[
                    self.entry(resource, device_id, node)
                    for resource, record in records.get(container.name, {}).items()
                    for node, ids in record.ids.items()
                    for device_id in ids
                ],
            )
            for container in pod.spec.containers
            if container.kind != "init"
        ]
        return pr.PodResources(name=pod.spec.name, namespace=pod.spec.namespace, containers=containers)

    def allocatable(self) -> list[pr.ContainerDevices]:
        """The entries of GetAllocatableResources: topology without nodes makes a device vanish (L19)."""
        entries = []
        for resource, healthy in self.manager.healthy.items():
            for device_id in healthy:
                device = self.manager.devices[resource][device_id]
                if not device.HasField("topology"):
                    entries.append(self.entry(resource, device_id, NO_NUMA))
                for node in device.topology.nodes:
                    entries.append(self.entry(resource, device_id, node.ID))
        return entries

    @staticmethod
    def entry(resource: str, device_id: str, node: int) -> pr.ContainerDevices:
        """One entry per id and NUMA node (P3)."""
        topology = None if node == NO_NUMA else pr.TopologyInfo(nodes=[pr.NUMANode(ID=node)])
        return pr.ContainerDevices(resource_name=resource, device_ids=[device_id], topology=topology)

    def _limit(self, context: grpc.ServicerContext) -> None:
        with self.journal.changed:
            passes = self._bucket.take()
        if not passes:
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit")
