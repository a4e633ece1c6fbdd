"""The node: what tests and the demo drive. See the package's docstring for an example."""

from __future__ import annotations

import itertools
import os
import shutil
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Self

from deviceplugin.simulator import checkpoint
from deviceplugin.simulator.chance import fork, seeded
from deviceplugin.simulator.clock import Clock
from deviceplugin.simulator.devicemanager import LocalResource
from deviceplugin.simulator.history import Readings
from deviceplugin.simulator.journal import (
    Journal,
    KubeletPanic,
    KubeletStopped,
    SimulatorError,
)
from deviceplugin.simulator.nodestatus import Amounts
from deviceplugin.simulator.pods import AdmittedPod, ContainerView, Pod, PodState, PodTable
from deviceplugin.simulator.process import SOCKET_NAME, KubeletProcess, Parts, Settings
from deviceplugin.simulator.registration import RegistrationFaults
from deviceplugin.simulator.sockets import check_length


class Kubelet(Readings):
    """A node with a kubelet that keeps the contract, not yet started.

    device_plugins_dir: where plugins and `kubelet.sock` live (R1); root_dir: its `pod-resources/kubelet.sock` is served
    (P1). Both are made when missing. clock: scales every constant. seed: decides every order that the kubelet leaves to
    chance (F6). automatic: push node statuses (L11) and retry failed starts (A23) by the clock; else only `tick` and
    `retry_starts` do. abort_on_drop: a list that drops a held id ends the test (F18); False only records it in
    `faults`, and L17 and L18 still panic.
    topology_manager: a policy other than none (L18). parts: for tests of the stand-in itself.

    After a panic (L17, L18, F18) every method but `close` raises it; `close` and leaving the `with` block raise it too,
    unless `take_panic` took it. Methods may be called from any thread.
    """

    def __init__(
        self,
        *,
        device_plugins_dir: Path,
        root_dir: Path,
        clock: Clock | None = None,
        seed: int = 1,
        automatic: bool = True,
        abort_on_drop: bool = True,
        topology_manager: bool = False,
        parts: Parts | None = None,
    ) -> None:
        check_length(device_plugins_dir / SOCKET_NAME)
        check_length(root_dir / "pod-resources" / SOCKET_NAME)
        parts = parts or Parts()
        self.clock = clock or Clock()
        self._settings = Settings(device_plugins_dir, root_dir, automatic, abort_on_drop, topology_manager, parts)
        self._rng = seeded(seed)
        super().__init__(Journal(self.clock))
        self._pods = PodTable(fork(self._rng))
        self._status = parts.node_status(self._journal, self.clock, fork(self._rng))
        self._faults = RegistrationFaults()
        self._connections = itertools.count(1)
        self._moves = itertools.count(1)
        self._process: KubeletProcess | None = None
        self._retired: KubeletProcess | None = None  # its listener lives on (same_inode)

    # -- the process -------------------------------------------------------------------------------------------

    def start(self, *, runtime_ready: bool = True, readmit: bool = True, readmission_delay: float = 0.0) -> None:
        """Start the process: PodResources first (P5), then, if `runtime_ready`, the device manager (S1 to S3), then, if
        `readmit`, the pods bound to the node, oldest first (A27), `readmission_delay` kubelet seconds after (S6).

        With the default delay of 0 no plugin can be back in time, the worst case that A29 and A32 describe.
        """
        self._journal.check()
        if self._process is not None:
            raise SimulatorError("the kubelet is running")
        self._process = KubeletProcess(
            settings=self._settings,
            journal=self._journal,
            clock=self.clock,
            pods=self._pods,
            status=self._status,
            rng=self._rng,
            faults=self._faults,
            next_number=lambda: next(self._connections),
        )
        if runtime_ready:
            self.runtime_ready(readmit=readmit, readmission_delay=readmission_delay)

    def runtime_ready(self, *, readmit: bool = True, readmission_delay: float = 0.0) -> None:
        """The container runtime reports ready (S1): see `start`."""
        process = self._running()
        if process.listening:
            raise SimulatorError("the device manager is running")
        due = self.clock.now() + readmission_delay
        retired, self._retired = self._retired, None
        if retired is not None:
            process.start_devices(retired.registration_server, retired.registrar)
        else:
            process.start_devices()
        if readmit:
            process.wait_until(due)
            self.readmit()
        elif not self._pods.active():
            self.readmit()

    def readmit_next(self) -> AdmittedPod | None:
        """Admit the next pod that was bound before the start (A27, P5). None when none is left: sources are ready."""
        pod = self._running().readmit_next()
        return None if pod is None else self.pod(pod.uid)

    def readmit(self) -> None:
        """Admit all pods that were bound before the start; afterwards all sources are ready (A13, A28)."""
        while self.readmit_next() is not None:
            pass

    def stop(self) -> None:
        """The process exits without a word; `kubelet.sock` stays behind and refuses connections (S4)."""
        process, self._process = self._process, None
        if process is not None:
            process.stop()

    def restart(
        self, *, same_inode: bool = False, readmit: bool = True, readmission_delay: float = 0.0, reboot: bool = False
    ) -> None:
        """Stop and start. `same_inode`: the new `kubelet.sock` has the old one's inode number, as some
        filesystems do. `reboot`: no container runs any more (A29, A32). The rest as in `start`."""
        process = self._running()
        self._process = None
        process.stop(keep_listener=same_inode)
        if same_inode and process.registrar is not None:
            self._retired = process
        if reboot:
            with self._journal.changed:
                for pod in self._pods.active():
                    for container in pod.containers.values():
                        container.status, container.starts = "waiting", 0
        self.start(readmit=readmit, readmission_delay=readmission_delay)

    def close(self) -> None:
        """Stop, end every thread, and raise the panic if there was one that nobody took."""
        self.stop()
        retired, self._retired = self._retired, None
        if retired is not None and retired.registration_server is not None:
            retired.registration_server.stop()
        self._journal.check()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
            return
        panic, self._journal.panic = self._journal.panic, None
        self.close()
        self._journal.panic = panic

    def take_panic(self) -> KubeletPanic | None:
        """The panic, if there was one; it is no longer raised afterwards."""
        with self._journal.changed:
            panic, self._journal.panic = self._journal.panic, None
            return panic

    # -- pods --------------------------------------------------------------------------------------------------

    def admit(self, pod: Pod) -> AdmittedPod:
        """Bind `pod` to the node, admit it, start its containers; returns how it stands after that.

        Rejection is not an error: see `phase`, `reason` and `message` (A20). Blocks as long as the plugin does (A21).
        Raises `KubeletStopped` when the process is not there or ends meanwhile: the pod stays bound (A27).
        """
        process = self._running()
        if not process.listening:
            raise KubeletStopped("no pod is admitted before the runtime is ready (S1)")
        with self._journal.changed:
            state = self._pods.bind(pod)
        if process.worker.admit(state):
            process.worker.start_pod(state)
        self._journal.check()
        return self.pod(state.uid)

    def submit(self, pod: Pod) -> Future[AdmittedPod]:
        """`admit` on the kubelet's one sync loop, in the order of submission (A3)."""
        return self._running().sync_loop.submit(self.admit, pod)

    def fits(self, pod: Pod) -> bool:
        """Whether the scheduler, which sees the pushed node status only, would bind `pod` here (L8, L11)."""
        with self._journal.changed:
            for resource in {name for container in pod.containers for name in container.limits}:
                used = sum(other.spec.effective_request(resource) for other in self._pods.active())
                allocatable = self._status.pushed.get(resource, (0, 0))[1]
                if pod.effective_request(resource) > max(0, allocatable - used):
                    return False
            return True

    def pod(self, uid: str) -> AdmittedPod:
        """The pod now. Raises `SimulatorError` for an unknown uid."""
        with self._journal.changed:
            return self._pods.get(uid).view()

    def pods(self) -> tuple[AdmittedPod, ...]:
        """Every pod ever bound to the node, oldest first, ended ones included."""
        with self._journal.changed:
            return tuple(state.view() for state in self._pods.all())

    def end(self, uid: str) -> None:
        """The pod has fully terminated, maybe while the kubelet is down. Its ids are freed lazily, untold (A13)."""
        self._journal.check()
        with self._journal.changed:
            self._pods.get(uid).end("Succeeded")
            self._journal.changed.notify_all()

    def terminate(self, uid: str) -> None:
        """The pod begins to terminate: it still runs and still holds, until `end` (A13)."""
        with self._journal.changed:
            self._pods.get(uid).terminating = True

    def stop_container(self, uid: str, container: str) -> None:
        """A container exits and is not restarted yet: it does not run at a kubelet start (A29)."""
        with self._journal.changed:
            self._container(uid, container)
            self._pods.get(uid).containers[container].status = "terminated"

    def restart_container(self, uid: str, container: str) -> ContainerView:
        """A container of a live pod is started again (A22 to A25): a failure shows as `CreateContainerConfigError` in
        the returned view and is retried (A23). Allocate is not called again where a response is cached (A16)."""
        process = self._running()
        pod = self._container(uid, container)
        if not pod.active:
            raise SimulatorError(f"pod {uid} has ended")
        with self._journal.changed:
            pod.containers[container].status = "terminated"
        process.worker.start_container(pod, pod.containers[container])
        self._journal.check()
        return self.pod(uid).containers[container]

    def retry_starts(self) -> int:
        """Try every failed container start again now (A23). Returns how many pods were tried."""
        return self._running().worker.retry_starts()

    def resize(self, uid: str) -> str | None:
        """An in-place CPU or memory resize of the pod: why it is refused, or None (A6)."""
        return self._running().worker.resize(self._pods.get(uid))

    def pod_health(self, uid: str) -> dict[str, dict[str, dict[str, str]]]:
        """container -> resource -> id -> `Healthy` or `Unhealthy`, as the pod's status shows it (H1, H2)."""
        return self._running().manager.pod_health(uid)

    # -- reading -----------------------------------------------------------------------------------------------

    def tick(self) -> bool:
        """Run one node-status update now (L11); deletes expired resources (L9). Whether a PATCH was sent."""
        process = self._running()
        return self._status.tick(process.manager)

    def node_status(self) -> dict[str, Amounts]:
        """resource -> (capacity, allocatable) as last pushed; what the scheduler sees."""
        self._journal.check()
        with self._journal.changed:
            return dict(self._status.pushed)

    def local(self) -> dict[str, LocalResource]:
        """What the device manager knows at this moment (L12), by resource."""
        return self._running().manager.local()

    def held(self) -> dict[str, dict[str, frozenset[str]]]:
        """resource -> pod uid -> ids recorded for it, ended pods included until they are freed (A12, A13)."""
        held: dict[str, dict[str, frozenset[str]]] = {}
        with self._journal.changed:
            for uid, containers in self._running().manager.records.items():
                for resources in containers.values():
                    for resource, record in resources.items():
                        by_pod = held.setdefault(resource, {})
                        by_pod[uid] = by_pod.get(uid, frozenset()) | record.all_ids
        return held

    @property
    def running(self) -> bool:
        """Whether a process is there."""
        return self._process is not None

    @property
    def listening(self) -> bool:
        """Whether the clean-up is done and `kubelet.sock` answers: what a plugin binds from now on stays (S2, S3)."""
        return self._process is not None and self._process.listening

    @property
    def registration_socket(self) -> Path:
        """The path of `kubelet.sock`."""
        return self._settings.device_plugins_dir / SOCKET_NAME

    @property
    def pod_resources_socket(self) -> Path:
        """The path of the PodResources socket."""
        return self._settings.root_dir / "pod-resources" / SOCKET_NAME

    @property
    def checkpoint_path(self) -> Path:
        """The path of the checkpoint; removing it while the process is down is A31."""
        return self._settings.device_plugins_dir / checkpoint.FILE_NAME

    # -- bad nodes ---------------------------------------------------------------------------------------------

    def refuse_registrations(self, text: str, times: int = 1) -> None:
        """Refuse the next `times` Registers with `text` (code Unknown), without dialling."""
        with self._journal.changed:
            self._faults.refuse_text, self._faults.refuse_times = text, times

    def delay_registrations(self, seconds: float, times: int = 1) -> None:
        """Answer the next `times` accepted Registers only `seconds` kubelet seconds after they came (R6)."""
        with self._journal.changed:
            self._faults.late_seconds, self._faults.late_times = seconds, times

    def replace_directory(self, *, keep_checkpoint: bool = False) -> Path:
        """Put a new, empty device-plugins directory in the place of the old one, whose new path is returned (S5).

        A running kubelet does not notice: its socket went with the old directory. It comes back at the next start.
        """
        directory = self._settings.device_plugins_dir
        old = directory.with_name(f"{directory.name}.old{next(self._moves)}")
        os.rename(directory, old)
        directory.mkdir(mode=0o750)
        if keep_checkpoint and (old / checkpoint.FILE_NAME).exists():
            shutil.copy2(old / checkpoint.FILE_NAME, self.checkpoint_path)
        return old

    # -- private -----------------------------------------------------------------------------------------------

    def _running(self) -> KubeletProcess:
        self._journal.check()
        if self._process is None:
            raise KubeletStopped("the kubelet is not running")
        return self._process

    def _container(self, uid: str, container: str) -> PodState:
        pod = self._pods.get(uid)
        if container not in pod.containers:
            raise SimulatorError(f"pod {uid} has no container {container}")
        return pod
