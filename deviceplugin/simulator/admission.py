"""Pod admission and container starts (A1 to A5, A12, A20 to A30)."""

from __future__ import annotations

import threading

from deviceplugin.simulator.allocation import AllocationError, Allocator
from deviceplugin.simulator.clock import Clock
from deviceplugin.simulator.devicemanager import DeviceManager
from deviceplugin.simulator.journal import Journal, KubeletStopped
from deviceplugin.simulator.nodestatus import NodeStatus
from deviceplugin.simulator.pods import Container, ContainerState, PodState, PodTable

REJECTED = "UnexpectedAdmissionError"
START_FAILED = "CreateContainerConfigError"


class PodWorker:
    """Admits pods one after the other and starts their containers. One per kubelet process.

    `topology_manager`: a Topology Manager policy other than none is on, so hints are generated (L18).
    """

    def __init__(
        self,
        *,
        manager: DeviceManager,
        allocator: Allocator,
        pods: PodTable,
        status: NodeStatus,
        journal: Journal,
        clock: Clock,
        topology_manager: bool,
    ) -> None:
        self.manager = manager
        self.allocator = allocator
        self.pods = pods
        self.status = status
        self.journal = journal
        self.clock = clock
        self.topology_manager = topology_manager
        self.known: list[str] = []
        self.one_at_a_time: threading.Lock = threading.Lock()

    def known_pods(self) -> tuple[PodState, ...]:
        """The pods that this process has begun to admit (P5, P6)."""
        return tuple(self.pods.get(uid) for uid in self.known)

    # -- admission ---------------------------------------------------------------------------------------------

    def admit(self, pod: PodState) -> bool:
        """Admit one pod, serially (A3); a failure is for good (A20). Whether it was admitted.

        Raises `KubeletStopped` when the process ends meanwhile: the pod stays bound, and is admitted again (A27).
        """
        with self.one_at_a_time:
            with self.journal.changed:
                if self.manager.stopped:
                    raise KubeletStopped("the kubelet is not running")
                self.known.append(pod.uid)
                self.manager.pending_pod = pod.uid
                self.journal.changed.notify_all()
            try:
                self.allocate_pod(pod)
            except AllocationError as error:
                text = f"Pod was rejected: Allocate failed due to {error}, which is unexpected"
                self.reject(pod, REJECTED, text)
                return False
            finally:
                with self.journal.changed:
                    self.manager.pending_pod = None
                    for name, held in self.manager.holdings(pod.uid).items():
                        pod.containers[name].device_ids = held
            return self.predicates(pod)

    def allocate_pod(self, pod: PodState) -> None:
        """Every container in order, with reuse of the ids of plain init containers (A2, A12). `AllocationError`."""
        reusable: dict[str, set[str]] = {}
        for container in pod.spec.in_admission_order():
            if self.topology_manager:
                self.allocator.regenerate_hints(pod, container)
            self.allocator.allocate_container(pod, container, reusable)
            for resource, ids in self.manager.holdings(pod.uid).get(container.name, {}).items():
                if container.kind == "init":
                    reusable.setdefault(resource, set()).update(ids)
                else:
                    reusable.get(resource, set()).difference_update(ids)

    def predicates(self, pod: PodState) -> bool:
        """The handler after the devices (A1): `OutOf<resource>` unless the node has enough (A5, A20, A30)."""
        with self.journal.changed:
            for resource in sorted({name for container in pod.spec.containers for name in container.limits}):
                if resource not in self.status.pushed:
                    continue  # A5: removed from the request
                held = len(self.manager.allocated.get(resource, ()))
                capacity = max(self.status.pushed[resource][1], held)  # A30
                others = [other for other in self.known_pods() if other.active and other.uid != pod.uid]
                used = sum(other.spec.effective_request(resource) for other in others)
                wanted = pod.spec.effective_request(resource)
                if wanted and used + wanted > capacity:
                    text = (
                        f"Pod was rejected: Node didn't have enough resource: {resource}, "
                        f"requested: {wanted}, used: {used}, capacity: {capacity}"
                    )
                    self.reject(pod, f"OutOf{resource}", text)
                    return False
            return True

    def reject(self, pod: PodState, reason: str, message: str) -> None:
        """The pod fails for good, with a Warning event (A20); what it was given stays recorded until A13 (A26)."""
        with self.journal.changed:
            pod.end("Failed", reason, message)
            self.journal.event(pod.uid, reason, message)
            self.journal.changed.notify_all()

    def readmit(self, pod: PodState) -> None:
        """Admission again after a kubelet start (A27); what runs goes on, what does not is started by the worker."""
        if self.admit(pod):
            self.start_pod(pod)

    # -- starts ------------------------------------------------------------------------------------------------

    def start_pod(self, pod: PodState) -> None:
        """Start what is not started: init containers run to their end, in order, then the rest; stops at a failure."""
        for container in pod.spec.in_admission_order():
            state = pod.containers[container.name]
            if not pod.active:
                return
            if state.status == "running" or (container.kind == "init" and state.starts and not state.reason):
                continue
            if not self.start_container(pod, state) and container.kind != "app":
                return
        with self.journal.changed:
            if pod.active:
                pod.phase = "Running"
                self.journal.changed.notify_all()

    def start_container(self, pod: PodState, state: ContainerState) -> bool:
        """One start (A22): on failure the container waits and is tried again later (A23). Whether it started."""
        container: Container = state.spec
        try:
            options = self.allocator.run_options(pod, container)
        except AllocationError as error:
            with self.journal.changed:
                state.status, state.reason, state.message = "waiting", START_FAILED, str(error)
                self.journal.event(pod.uid, "Failed", str(error))
            return False
        with self.journal.changed:
            if not pod.active:
                return False
            state.status = "terminated" if container.kind == "init" else "running"
            state.reason = state.message = ""
            state.options = options
            state.starts += 1
            state.device_ids = self.manager.holdings(pod.uid).get(container.name, state.device_ids)
            self.journal.changed.notify_all()
        return True

    def retry_starts(self) -> int:
        """Try again every start that failed (A23). How many pods were tried."""
        with self.journal.changed:
            waiting = [
                pod
                for pod in self.known_pods()
                if pod.active and any(c.reason == START_FAILED for c in pod.containers.values())
            ]
        for pod in waiting:
            self.start_pod(pod)
        return len(waiting)

    def resize(self, pod: PodState) -> str | None:
        """An in-place CPU or memory resize runs the gate again: why it is refused, or None (A6, L15, L18)."""
        with self.one_at_a_time:
            for container in pod.spec.in_admission_order():
                if self.topology_manager:
                    self.allocator.regenerate_hints(pod, container)
                for resource, wanted in container.limits.items():
                    if self.manager.knows(resource):
                        try:
                            with self.journal.changed:
                                self.allocator.gate(pod.uid, container.name, resource, wanted)
                        except AllocationError as error:
                            return str(error)
        return None
