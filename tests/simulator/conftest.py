"""One node per test, with paths short enough for unix sockets and a clock that only the test moves."""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from deviceplugin.simulator import AdmittedPod, Clock, Container, Kubelet, Pod
from deviceplugin.stubs import deviceplugin_v1beta1_pb2 as pb
from tests.simulator.naive_plugin import RESOURCE, NaivePlugin


class Node:
    """A kubelet that was started by hand-moved time, and the plugins planted on it; everything ends with the test."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.directory = root / "device-plugins"
        self.clock = Clock(scale=0)
        self._kubelets: list[Kubelet] = []
        self._plugins: list[NaivePlugin] = []

    def kubelet(self, *, start: bool = True, **settings: Any) -> Kubelet:
        """A kubelet without automatic ticks unless `settings` say otherwise."""
        settings.setdefault("automatic", False)
        settings.setdefault("clock", self.clock)
        kubelet = Kubelet(device_plugins_dir=self.directory, root_dir=self.root, **settings)
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

    def push(self, kubelet: Kubelet, plugin: NaivePlugin, devices: Any) -> None:
        """Push a list and wait until it is applied."""
        before = len(kubelet.resources[plugin.resource].lists)
        plugin.push(devices)
        kubelet.wait_for(lambda: len(kubelet.resources[plugin.resource].lists) > before)

    def close(self) -> None:
        """Plugins first, then kubelets; a panic that no test took fails the test."""
        for plugin in self._plugins:
            plugin.stop()
        for kubelet in self._kubelets:
            kubelet.close()


@pytest.fixture
def node() -> Iterator[Node]:
    """A fresh node."""
    root = Path(tempfile.mkdtemp(prefix="k"))
    made = Node(root)
    try:
        yield made
    finally:
        try:
            made.close()
        finally:
            shutil.rmtree(root, ignore_errors=True)


def pod(name: str = "p", count: int = 1, resource: str = RESOURCE, **more: Any) -> Pod:
    """A pod with one app container."""
    return Pod(name, containers=(Container("c", {resource: count}),), **more)


def holds(admitted: AdmittedPod, resource: str = RESOURCE) -> set[str]:
    """The ids a running pod got; fails the test when it does not run."""
    assert admitted.phase == "Running", admitted.message
    return set(admitted.ids(resource))


def in_thread(target: Callable[[], object]) -> threading.Thread:
    """A started thread."""
    thread = threading.Thread(target=target, name="test", daemon=True)
    thread.start()
    return thread


__all__ = ["Node", "holds", "in_thread", "pb", "pod"]
