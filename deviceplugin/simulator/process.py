"""One kubelet process, from its start to its exit (S1 to S7, A27, L11)."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from deviceplugin.simulator.admission import PodWorker
from deviceplugin.simulator.allocation import Allocator
from deviceplugin.simulator.chance import fork
from deviceplugin.simulator.clock import FAST_STATUS_SECONDS, START_RETRY_SECONDS, STATUS_JITTER, STATUS_SECONDS, Clock
from deviceplugin.simulator.devicemanager import DeviceManager
from deviceplugin.simulator.journal import Journal, KubeletPanic, KubeletStopped
from deviceplugin.simulator.nodestatus import NodeStatus
from deviceplugin.simulator.podresources import PodResources
from deviceplugin.simulator.pods import PodState, PodTable
from deviceplugin.simulator.registration import ConnectionTable, Registrar, RegistrationFaults
from deviceplugin.simulator.sockets import SocketServer, remove_sockets
from deviceplugin.stubs.deviceplugin_v1beta1_pb2_grpc import add_RegistrationServicer_to_server
from deviceplugin.stubs.podresources_v1_pb2_grpc import add_PodResourcesListerServicer_to_server

SOCKET_NAME = "kubelet.sock"


@dataclass(frozen=True, slots=True)
class Parts:
    """The classes that a process is made of. Tests plant a naive one to show that a conformance check catches it."""

    manager: type[DeviceManager] = DeviceManager
    allocator: type[Allocator] = Allocator
    worker: type[PodWorker] = PodWorker
    table: type[ConnectionTable] = ConnectionTable
    registrar: type[Registrar] = Registrar
    pod_resources: type[PodResources] = PodResources
    node_status: type[NodeStatus] = NodeStatus
    remove_sockets: Callable[[Path], None] = remove_sockets


@dataclass(frozen=True, slots=True)
class Settings:
    """What stays the same over all processes of a node. Paths are directories; see `Kubelet` for the rest."""

    device_plugins_dir: Path
    root_dir: Path
    automatic: bool
    abort_on_drop: bool
    topology_manager: bool
    parts: Parts


class KubeletProcess:
    """A running kubelet. Made: PodResources answers, with nothing known yet (P5). `start_devices` does the rest."""

    def __init__(
        self,
        *,
        settings: Settings,
        journal: Journal,
        clock: Clock,
        pods: PodTable,
        status: NodeStatus,
        rng: random.Random,
        faults: RegistrationFaults,
        next_number: Callable[[], int],
    ) -> None:
        parts = settings.parts
        self.settings = settings
        self.journal = journal
        self.clock = clock
        self.pods = pods
        self.status = status
        self.faults = faults
        self._rng = fork(rng)
        directory = settings.device_plugins_dir
        self.manager = parts.manager(
            directory,
            journal,
            clock,
            pods,
            fork(rng),
            abort_on_drop=settings.abort_on_drop,
        )
        self.allocator = parts.allocator(self.manager, fork(rng))
        self.worker = parts.worker(
            manager=self.manager,
            allocator=self.allocator,
            pods=pods,
            status=status,
            journal=journal,
            clock=clock,
            topology_manager=settings.topology_manager,
        )
        self.table = parts.table(directory, self.manager, journal, clock, next_number)
        self.pod_resources = parts.pod_resources(self.manager, journal, clock, self.worker.known_pods)
        self.listening = False
        self.registrar: Registrar | None = None
        self.registration_server: SocketServer | None = None
        self._to_readmit: list[PodState] = []
        self._stopping = False
        self._threads: list[threading.Thread] = []
        self.sync_loop = ThreadPoolExecutor(1, thread_name_prefix="kubelet-sync-loop")
        pod_resources_dir = settings.root_dir / "pod-resources"
        pod_resources_dir.mkdir(mode=0o750, parents=True, exist_ok=True)
        self.pod_resources_server = SocketServer(
            "kubelet-podresources",
            pod_resources_dir,
            lambda server: add_PodResourcesListerServicer_to_server(self.pod_resources, server),  # type: ignore[no-untyped-call]
            workers=8,
        )
        self.pod_resources_server.publish_by_rename(pod_resources_dir / SOCKET_NAME)

    def start_devices(self, server: SocketServer | None = None, registrar: Registrar | None = None) -> None:
        """The runtime is ready (S1): read the checkpoint, clean up, listen, in this order (S3); no pod is admitted yet.

        `server` and `registrar`: a listener that is taken over, so that the new kubelet.sock has the old inode number.
        """
        directory = self.settings.device_plugins_dir
        directory.mkdir(mode=0o750, parents=True, exist_ok=True)
        self.manager.load()
        self.settings.parts.remove_sockets(directory)
        if server is None or registrar is None:
            own = self.settings.parts.registrar(self.table, self.journal, self.clock, self.faults)
            server = SocketServer(
                "kubelet-registration",
                directory.parent,
                lambda target: add_RegistrationServicer_to_server(own, target),  # type: ignore[no-untyped-call]
            )
            registrar = own
        else:
            registrar.table = self.table
        self.registrar, self.registration_server = registrar, server
        self._to_readmit = list(self.pods.active())
        (directory / SOCKET_NAME).unlink(missing_ok=True)
        server.publish_by_link(directory / SOCKET_NAME)
        with self.journal.changed:
            self.listening = True
            self.journal.changed.notify_all()
        if self.settings.automatic:
            now = self.clock.now()
            self._start_thread("kubelet-status", self._push_statuses, now + FAST_STATUS_SECONDS)
            self._start_thread("kubelet-pod-worker", self._retry_starts, now + self._rng.uniform(*START_RETRY_SECONDS))

    def readmit_next(self) -> PodState | None:
        """Admit the oldest pod that waits for it (A27); None when none is left, and then all sources are ready."""
        with self.journal.changed:
            pod = next((p for p in self._to_readmit if p.active), None)
            self._to_readmit = self._to_readmit[self._to_readmit.index(pod) + 1 :] if pod is not None else []
        if pod is not None:
            self.worker.readmit(pod)
        with self.journal.changed:
            if not any(p.active for p in self._to_readmit):
                self.manager.sources_ready = True
                self.journal.changed.notify_all()
        return pod

    def wait_until(self, due: float) -> None:
        """Let the clock reach `due`, or the process stop."""
        with self.journal.changed:
            self.clock.wait_until(self.journal.changed, lambda: self._stopping, due)

    def stop(self, *, keep_listener: bool = False) -> None:
        """Exit: every connection is cut, the sockets stay behind, stale (S4). No pod is told anything.

        `keep_listener`: the registration listener is left for a later process; until then it answers Unavailable.
        """
        with self.journal.changed:
            self._stopping = True
            self.manager.stopped = True
            if self.registrar is not None:
                self.registrar.table = None
            self.journal.changed.notify_all()
        self.table.close()
        if self.registration_server is not None and not keep_listener:
            self.registration_server.stop()
        self.pod_resources_server.stop()
        for thread in self._threads:
            thread.join()
        self.sync_loop.shutdown(wait=True, cancel_futures=True)

    def _start_thread(self, name: str, target: Callable[[float], None], due: float) -> None:
        thread = threading.Thread(target=target, args=(due,), name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _push_statuses(self, due: float) -> None:
        while True:
            self.wait_until(due)
            with self.journal.changed:
                if self._stopping:
                    return
                self.status.tick(self.manager)
                due = self.clock.now() + STATUS_SECONDS * (1 + STATUS_JITTER * self._rng.random())

    def _retry_starts(self, due: float) -> None:
        while True:
            self.wait_until(due)
            if self._stopping:
                return
            try:
                self.worker.retry_starts()
            except (KubeletStopped, KubeletPanic):
                return
            due = self.clock.now() + self._rng.uniform(*START_RETRY_SECONDS)
