"""One node per test: a kubelet on a clock that only the test moves, the plugins planted on it, and small helpers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self, cast

import grpc
import pytest

from deviceplugin.simulator import AdmittedPod, Clock, Container, Kubelet, Pod
from deviceplugin.stubs import podresources_v1_pb2 as pr
from deviceplugin.stubs.podresources_v1_pb2_grpc import PodResourcesListerStub
from tests.simulator.naive_plugin import RESOURCE, NaivePlugin


class PodResourcesClient:
    """A client of the PodResources socket that raises grpc.RpcError."""

    def __init__(self, path: Path) -> None:
        self._channel = grpc.insecure_channel(f"unix:{path}", options=[("grpc.use_local_subchannel_pool", 1)])
        self._stub = PodResourcesListerStub(self._channel)  # type: ignore[no-untyped-call]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()

    def List(self) -> pr.ListPodResourcesResponse:
        """List."""
        return cast(pr.ListPodResourcesResponse, self._stub.List(pr.ListPodResourcesRequest()))

    def GetAllocatableResources(self) -> pr.AllocatableResourcesResponse:
        """GetAllocatableResources."""
        answer = self._stub.GetAllocatableResources(pr.AllocatableResourcesRequest())
        return cast(pr.AllocatableResourcesResponse, answer)

    def Get(self, name: str, namespace: str = "default") -> pr.GetPodResourcesResponse:
        """Get."""
        request = pr.GetPodResourcesRequest(pod_name=name, pod_namespace=namespace)
        return cast(pr.GetPodResourcesResponse, self._stub.Get(request))


class Node:
    """A kubelet that was started by hand-moved time, and the plugins planted on it; everything ends with the test."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.directory = root / "device-plugins"
        self.clock = Clock(scale=0)
        self._kubelets: list[Kubelet] = []
        self._plugins: list[NaivePlugin] = []

    def kubelet(self, *, start: bool = True, kind: type[Kubelet] = Kubelet, **settings: Any) -> Kubelet:
        """A kubelet without automatic ticks unless `settings` say otherwise."""
        settings.setdefault("automatic", False)
        settings.setdefault("clock", self.clock)
        kubelet = kind(device_plugins_dir=self.directory, root_dir=self.root, **settings)
        self._kubelets.append(kubelet)
        if start:
            kubelet.start()
        return kubelet

    def plugin(self, devices: Any = (), resource: str = RESOURCE, *, endpoint: str = "") -> NaivePlugin:
        """A plugin that serves but has not registered."""
        plugin = NaivePlugin(self.directory, devices, resource)
        plugin.endpoint = endpoint or plugin.endpoint
        self._plugins.append(plugin)
        return plugin.serve()

    def registered(
        self, kubelet: Kubelet, devices: Any = ("a", "b"), resource: str = RESOURCE, **switches: Any
    ) -> NaivePlugin:
        """A plugin whose first list has arrived; `switches` are attributes to set before it registers."""
        endpoint = switches.pop("endpoint", "")
        plugin = self.plugin(devices, resource, endpoint=endpoint)
        for name, value in switches.items():
            setattr(plugin, name, value)
        self.register(kubelet, plugin)
        return plugin

    def register(self, kubelet: Kubelet, plugin: NaivePlugin) -> None:
        """Register and wait for one more list."""
        before = len(kubelet.resources[plugin.resource].lists)
        plugin.register()
        kubelet.wait_for(lambda: len(kubelet.resources[plugin.resource].lists) > before)

    def push(self, kubelet: Kubelet, plugin: NaivePlugin, devices: Any, timeout: float = 10.0) -> None:
        """Push a list and wait until it is applied, at most `timeout` real seconds."""
        before = len(kubelet.resources[plugin.resource].lists)
        plugin.push(devices)
        kubelet.wait_for(lambda: len(kubelet.resources[plugin.resource].lists) > before, timeout)

    def pod_resources(self) -> PodResourcesClient:
        """A client of its PodResources socket, for a `with` block."""
        return PodResourcesClient(self.root / "pod-resources" / "kubelet.sock")

    def close(self) -> None:
        """Plugins first, then kubelets; a panic that no test took fails the test."""
        for plugin in self._plugins:
            plugin.stop()
        for kubelet in self._kubelets:
            kubelet.close()


def pod(name: str = "p", count: int = 1, resource: str = RESOURCE, **more: Any) -> Pod:
    """A pod with one app container."""
    return Pod(name, containers=(Container("c", {resource: count}),), **more)


def holds(admitted: AdmittedPod, resource: str = RESOURCE) -> set[str]:
    """The ids a running pod got; fails the test when it does not run."""
    assert admitted.phase == "Running", admitted.message
    return set(admitted.ids(resource))


def rejected(admitted: AdmittedPod, text: str) -> None:
    """A20: the pod failed for good with this error."""
    assert admitted.phase == "Failed"
    assert admitted.reason == "UnexpectedAdmissionError"
    assert admitted.message.startswith(f"Pod was rejected: Allocate failed due to {text}"), admitted.message
    assert admitted.message.endswith(", which is unexpected")


def in_thread(target: Callable[[], object]) -> threading.Thread:
    """A started thread."""
    thread = threading.Thread(target=target, name="test", daemon=True)
    thread.start()
    return thread


def refusal(call: Callable[[], object]) -> tuple[grpc.StatusCode, str]:
    """The code and details that an RPC is refused with; fails the test when it is not."""
    with pytest.raises(grpc.RpcError) as caught:
        call()
    error = cast(grpc.Call, caught.value)
    return error.code(), error.details() or ""


def only_the_naive_one_fails(check: Callable[..., None], nodes: Callable[[], Node], **naive: Any) -> None:
    """Run `check` on the stand-in, then on one with the `naive` settings in place: there it has to fail."""
    check(nodes())
    with pytest.raises((AssertionError, TimeoutError, pytest.fail.Exception)):
        check(nodes(), **naive)


def streams_settled() -> None:
    """Wait until every stream that ended has been dealt with, whatever that was."""
    for thread in threading.enumerate():
        if thread.name.startswith("kubelet-lists-"):
            thread.join(10)


SOON = 1.0
"""Real seconds in which the stand-in has long done what a naive fake never does."""
