"""A kubelet, our links on it, and ways to wait for what they do."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import grpc

from deviceplugin.kubelet.ledger import Ledger
from deviceplugin.kubelet.link import KubeletLink, LinkEvent
from deviceplugin.kubelet.unix import target
from deviceplugin.model.offer import Offer
from deviceplugin.model.plan import Device, Health
from deviceplugin.simulator import AdmittedPod, Clock, Container, Kubelet, Pod
from deviceplugin.stubs import deviceplugin_v1beta1_pb2 as pb
from deviceplugin.stubs.deviceplugin_v1beta1_pb2_grpc import DevicePluginStub

GPU = "nvidia.com/gpu"


def eventually(predicate: Callable[[], object], timeout_s: float = 10.0) -> None:
    """Wait until `predicate` is true; fails the test when that takes longer than `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while not predicate():
        assert time.monotonic() < deadline, "not in time"
        threading.Event().wait(0.003)


class SteppedClock:
    """Real monotonic time plus what `advance` added."""

    def __init__(self) -> None:
        self._added_s = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self._added_s

    def advance(self, seconds: float) -> None:
        """Move the clock forward."""
        self._added_s += seconds


class Plugin:
    """A KubeletLink with its ledger, and everything it reported."""

    def __init__(self, directory: Path) -> None:
        self.clock = SteppedClock()
        self.ledger = Ledger(self.clock)
        self.events: list[LinkEvent] = []
        self.deaths: list[BaseException] = []
        self.link = KubeletLink(
            kubelet_socket=directory / "kubelet.sock",
            ledger=self.ledger,
            monotonic=self.clock,
            notify=self.events.append,
            on_death=self.deaths.append,
        )
        self.link.start()

    def count(self, kind: type[LinkEvent]) -> int:
        """How many events of `kind` there were."""
        return sum(isinstance(event, kind) for event in self.events)

    def well(self, *names: str) -> bool:
        """Whether every resource in `names` is registered with its stream open."""
        states = self.link.states()
        return all(states[name].registered and states[name].stream_open for name in names)

    def socket(self, name: str = GPU) -> Path:
        """Our socket of the resource."""
        return Path(self.link.states()[name].endpoint)

    def close(self) -> None:
        """Stop; the link's thread must not have died before."""
        self.link.stop(2.0)
        assert self.deaths == []


class Node:
    """A node directory; kubelets and plugins made here end with the test."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.directory = root / "device-plugins"
        self.directory.mkdir()
        self.kubelet = Kubelet(device_plugins_dir=self.directory, root_dir=root, clock=Clock(scale=0), automatic=False)
        self._plugins: list[Plugin] = []

    def plugin(self, *offers: Offer) -> Plugin:
        """A started plugin with `offers` open."""
        plugin = Plugin(self.directory)
        self._plugins.append(plugin)
        for offer in offers:
            plugin.link.open(offer)
        return plugin

    def registered(self, *offers: Offer) -> Plugin:
        """A plugin all of whose `offers` are registered, their lists applied; starts the kubelet if need be."""
        if not self.kubelet.running:
            self.kubelet.start()
        plugin = self.plugin(*offers)
        names = [offer.name for offer in offers]
        eventually(lambda: plugin.well(*names))
        self.kubelet.wait_for(lambda: all(self.kubelet.resources[name].lists for name in names))
        return plugin

    def sockets(self) -> set[str]:
        """The names of sockets in the kubelet's directory, its own apart."""
        return {path.name for path in self.directory.iterdir() if path.is_socket()} - {"kubelet.sock"}

    def close(self) -> None:
        """Plugins first; a panic of the kubelet fails the test."""
        for plugin in self._plugins:
            plugin.close()
        self.kubelet.close()


class Client:
    """Calls a plugin's socket as the kubelet does."""

    def __init__(self, path: Path) -> None:
        self.channel = grpc.insecure_channel(target(path), options=[("grpc.use_local_subchannel_pool", 1)])
        self.stub = DevicePluginStub(self.channel)  # type: ignore[no-untyped-call]

    def allocate(self, *containers: list[str]) -> pb.AllocateResponse:
        """Allocate, one list of ids for each container."""
        requests = [pb.ContainerAllocateRequest(devices_ids=ids) for ids in containers]
        answer: pb.AllocateResponse = self.stub.Allocate(pb.AllocateRequest(container_requests=requests), timeout=10)
        return answer

    def preferred(self, available: list[str], must: list[str], size: int) -> list[str]:
        """GetPreferredAllocation for one container."""
        request = pb.ContainerPreferredAllocationRequest(
            available_deviceIDs=available, must_include_deviceIDs=must, allocation_size=size
        )
        answer = self.stub.GetPreferredAllocation(
            pb.PreferredAllocationRequest(container_requests=[request]), timeout=10
        )
        return list(answer.container_responses[0].deviceIDs)


class Watching:
    """A ListAndWatch stream that is read in a thread of its own."""

    def __init__(self, client: Client) -> None:
        self.lists: list[pb.ListAndWatchResponse] = []
        self.code: grpc.StatusCode | None = None
        self.ended = threading.Event()
        self.call = client.stub.ListAndWatch(pb.Empty())
        threading.Thread(target=self._read, name="watching", daemon=True).start()

    def _read(self) -> None:
        with contextlib.suppress(grpc.RpcError):
            for message in self.call:
                self.lists.append(message)
        self.code = self.call.code()
        self.ended.set()

    def health(self, index: int = -1) -> dict[str, str]:
        """Id -> health of one of the lists."""
        return {device.ID: device.health for device in self.lists[index].devices}


def pod(name: str = "p", count: int = 1, resource: str = GPU) -> Pod:
    """A pod with one container that asks for `count`."""
    return Pod(name, containers=(Container("c", {resource: count}),))


def runs(admitted: AdmittedPod) -> frozenset[str]:
    """The ids of a running pod; fails the test when it does not run."""
    assert admitted.phase == "Running", admitted.message
    return frozenset(i for view in admitted.containers.values() for ids in view.device_ids.values() for i in ids)


def unhealthy(offer: Offer, *ids: str, reason: str = "Xid 79") -> Offer:
    """`offer` with some devices Unhealthy."""
    return replace(
        offer,
        devices=tuple(
            Device(d.id, d.unit_uuid, Health.UNHEALTHY, reason, d.numa_node) if d.id in ids else d
            for d in offer.devices
        ),
    )
