"""Pods, their containers, and what the API server and the container runtime know of them.

This outlives the kubelet's process: a restarted kubelet finds its pods here (A27) and the running containers too (A28).
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from deviceplugin.simulator.journal import SimulatorError

ContainerKind = Literal["init", "sidecar", "app"]
Phase = Literal["Pending", "Running", "Succeeded", "Failed"]
ContainerStatus = Literal["waiting", "running", "terminated"]


@dataclass(frozen=True, slots=True)
class Container:
    """A container of a pod: `limits` maps extended resource names to counts; `kind` is app, init or sidecar."""

    name: str
    limits: Mapping[str, int] = field(default_factory=dict)
    kind: ContainerKind = "app"


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod as its owner writes it. `numa_hint`: the NUMA nodes that the Topology Manager chose (A7), or None."""

    name: str
    namespace: str = "default"
    containers: tuple[Container, ...] = ()
    numa_hint: frozenset[int] | None = None

    def in_admission_order(self) -> tuple[Container, ...]:
        """Init containers and sidecars in spec order, then app containers (A2)."""
        first = tuple(c for c in self.containers if c.kind != "app")
        return first + tuple(c for c in self.containers if c.kind == "app")

    def effective_request(self, resource: str) -> int:
        """How many of `resource` the scheduler and the predicates count for this pod."""
        sidecars = peak = 0
        for container in self.containers:
            count = container.limits.get(resource, 0)
            if container.kind == "sidecar":
                sidecars += count
            elif container.kind == "init":
                peak = max(peak, sidecars + count)
        apps = sum(c.limits.get(resource, 0) for c in self.containers if c.kind == "app")
        return max(peak, sidecars + apps)


@dataclass(frozen=True, slots=True)
class MountSpec:
    """A mount that a plugin asked for."""

    container_path: str
    host_path: str
    read_only: bool


@dataclass(frozen=True, slots=True)
class DeviceNode:
    """A device file that a plugin asked for."""

    container_path: str
    host_path: str
    permissions: str


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What a container receives after the merge over its resources (A17)."""

    envs: Mapping[str, str] = field(default_factory=dict)
    mounts: tuple[MountSpec, ...] = ()
    devices: tuple[DeviceNode, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)
    cdi_devices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ContainerView:
    """A container now: `device_ids` by resource as recorded for it, `options` of its last start.

    `reason` and `message` say why it waits (`CreateContainerConfigError`, A23), else they are empty. `starts` counts
    how often it was started.
    """

    name: str
    kind: ContainerKind
    status: ContainerStatus
    device_ids: Mapping[str, frozenset[str]]
    options: RunOptions | None
    reason: str
    message: str
    starts: int


@dataclass(frozen=True, slots=True)
class AdmittedPod:
    """A pod now, as the API server shows it: `phase`, `reason` and `message` as in A20, containers by name."""

    uid: str
    name: str
    namespace: str
    phase: Phase
    reason: str
    message: str
    containers: Mapping[str, ContainerView]

    def ids(self, resource: str) -> frozenset[str]:
        """The ids of `resource` over all containers."""
        return frozenset().union(*(c.device_ids.get(resource, frozenset()) for c in self.containers.values()))


@dataclass(slots=True)
class ContainerState:
    """A container in the runtime."""

    spec: Container
    status: ContainerStatus = "waiting"
    device_ids: dict[str, frozenset[str]] = field(default_factory=dict)
    options: RunOptions | None = None
    reason: str = ""
    message: str = ""
    starts: int = 0

    def view(self) -> ContainerView:
        """A frozen copy."""
        return ContainerView(
            self.spec.name,
            self.spec.kind,
            self.status,
            dict(self.device_ids),
            self.options,
            self.reason,
            self.message,
            self.starts,
        )


@dataclass(slots=True)
class PodState:
    """A pod in the API server."""

    uid: str
    spec: Pod
    phase: Phase = "Pending"
    reason: str = ""
    message: str = ""
    terminating: bool = False
    containers: dict[str, ContainerState] = field(default_factory=dict)

    @property
    def active(self) -> bool:
        """Neither terminal nor fully terminated; a terminating pod is still active here, since it still holds (A13)."""
        return self.phase in ("Pending", "Running")

    def end(self, phase: Phase, reason: str = "", message: str = "") -> None:
        """Make the pod terminal; its containers are gone."""
        self.phase, self.reason, self.message = phase, reason, message
        for container in self.containers.values():
            container.status, container.reason, container.message = "terminated", "", ""

    def view(self) -> AdmittedPod:
        """A frozen copy."""
        return AdmittedPod(
            self.uid,
            self.spec.name,
            self.spec.namespace,
            self.phase,
            self.reason,
            self.message,
            {name: container.view() for name, container in self.containers.items()},
        )


class PodTable:
    """All pods that were ever bound to the node, oldest first (A27). Callers hold the journal's condition."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._pods: dict[str, PodState] = {}

    def bind(self, pod: Pod) -> PodState:
        """Bind a new pod. Raises `SimulatorError` when its containers' names or counts make no sense."""
        names = [container.name for container in pod.containers]
        if len(set(names)) != len(names):
            raise SimulatorError(f"pod {pod.name}: two containers share a name")
        if any(count < 0 for container in pod.containers for count in container.limits.values()):
            raise SimulatorError(f"pod {pod.name}: a negative limit")
        uid = str(uuid.UUID(int=self._rng.getrandbits(128), version=4))
        state = PodState(uid, pod, containers={c.name: ContainerState(c) for c in pod.containers})
        self._pods[uid] = state
        return state

    def get(self, uid: str) -> PodState:
        """The pod with this uid. Raises `SimulatorError` when there is none."""
        try:
            return self._pods[uid]
        except KeyError:
            raise SimulatorError(f"no pod {uid}") from None

    def is_active(self, uid: str) -> bool:
        """Whether the pod exists and is neither terminal nor terminated."""
        state = self._pods.get(uid)
        return state is not None and state.active

    def all(self) -> tuple[PodState, ...]:
        """Every pod, oldest first."""
        return tuple(self._pods.values())

    def active(self) -> tuple[PodState, ...]:
        """Every pod that is not terminal, oldest first."""
        return tuple(state for state in self._pods.values() if state.active)

    def running_containers(self) -> frozenset[tuple[str, str]]:
        """(pod uid, container) of every container that runs; taken once, at kubelet start (A28)."""
        return frozenset(
            (state.uid, name)
            for state in self._pods.values()
            for name, container in state.containers.items()
            if container.status == "running"
        )
