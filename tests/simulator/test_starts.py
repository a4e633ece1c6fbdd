"""Responses and container starts: A15 to A17, A20 to A26."""

from __future__ import annotations

import threading
from typing import Any

from deviceplugin.simulator import Clock, Container, MountSpec, Pod
from deviceplugin.stubs import deviceplugin_v1beta1_pb2 as pb
from tests.simulator.naive_plugin import RESOURCE
from tests.simulator.node import Node, holds, pod, rejected

ONE, TWO = "e.com/one", "e.com/two"


def test_response_shapes(node: Node) -> None:
    """A15: only the first response counts; none fails the pod and leaks its ids until some tracked pod ends."""
    kubelet = node.kubelet()
    first, second = pb.ContainerAllocateResponse(envs={"A": "1"}), pb.ContainerAllocateResponse(envs={"B": "2"})
    plugin = node.registered(kubelet, ["a", "b", "c"], responses=lambda ids: [first, second])
    admitted = kubelet.admit(pod())
    options = admitted.containers["c"].options
    assert options is not None
    assert options.envs == {"A": "1"}
    plugin.responses = lambda ids: []
    rejected(kubelet.admit(pod("none")), "no containers return in allocation response")
    assert len(kubelet.local()[RESOURCE].allocated) == 2
    plugin.responses = lambda ids: [first]
    rejected(kubelet.admit(pod("q", 2)), "requested number of devices unavailable")
    kubelet.end(admitted.uid)
    assert len(holds(kubelet.admit(pod("r", 3)))) == 3


def test_an_rpc_error_restores_the_table(node: Node) -> None:
    """A15, A20: the message is the error's; the ids are free at once."""
    kubelet = node.kubelet()
    plugin = node.registered(kubelet, ["a"], allocate_error="draining")
    rejected(kubelet.admit(pod()), "rpc error: code = InvalidArgument desc = draining, which")
    assert kubelet.local()[RESOURCE].allocated == frozenset()
    plugin.allocate_error = ""
    holds(kubelet.admit(pod("q")))


def test_partial_failure(node: Node) -> None:
    """A26: what earlier containers of a rejected pod were given stays recorded until the next admission."""
    kubelet = node.kubelet()
    plugin = node.registered(kubelet, ["a", "b", "c"])
    containers = (Container("c", {RESOURCE: 1}), Container("d", {RESOURCE: 5}))
    failed = kubelet.admit(Pod("p", containers=containers))
    rejected(failed, "requested number of devices unavailable")
    assert plugin.seen.count("Allocate") == 1
    assert kubelet.held()[RESOURCE][failed.uid] == failed.ids(RESOURCE)
    assert len(holds(kubelet.admit(pod("q", 3)))) == 3


def test_merge_first_seen_wins(node: Node) -> None:
    """A17: by key and container path, in an order that changes from start to start; CDI names once."""
    kubelet = node.kubelet()

    def responses(tag: str) -> Any:
        return lambda ids: [
            pb.ContainerAllocateResponse(
                envs={"BOTH": tag, tag: "1"},
                mounts=[pb.Mount(container_path="/m", host_path=f"/{tag}", read_only=True)],
                devices=[pb.DeviceSpec(container_path="/dev/x", host_path=f"/dev/{tag}", permissions="rw")],
                annotations={"k": tag},
                cdi_devices=[pb.CDIDevice(name="v/c=both"), pb.CDIDevice(name=f"v/c={tag}")],
            )
        ]

    node.registered(kubelet, ["a"], ONE, responses=responses("one"))
    node.registered(kubelet, ["b"], TWO, responses=responses("two"))
    admitted = kubelet.admit(Pod("p", containers=(Container("c", {ONE: 1, TWO: 1}),)))
    winners = set()
    for _ in range(12):
        options = kubelet.restart_container(admitted.uid, "c").options
        assert options is not None
        winner = options.envs["BOTH"]
        winners.add(winner)
        assert options.envs == {"BOTH": winner, "one": "1", "two": "1"}
        assert options.mounts == (MountSpec("/m", f"/{winner}", True),)
        assert [d.host_path for d in options.devices] == [f"/dev/{winner}"]
        assert options.annotations == {"k": winner}
        assert sorted(options.cdi_devices) == ["v/c=both", "v/c=one", "v/c=two"]
    assert winners == {"one", "two"}


def test_restarts_use_the_cache(node: Node) -> None:
    """A16, A25: no Allocate, and no plugin, for a restart."""
    kubelet = node.kubelet()
    plugin = node.registered(kubelet, ["a"])
    admitted = kubelet.admit(pod())
    kubelet.restart_container(admitted.uid, "c")
    assert plugin.seen.count("Allocate") == 1
    plugin.stop()
    kubelet.wait_for(lambda: kubelet.local()[RESOURCE].stopped)
    view = kubelet.restart_container(admitted.uid, "c")
    assert view.options is not None
    assert (view.status, view.starts, view.options.envs) == ("running", 3, {"IDS": "a"})


def test_pre_start(node: Node) -> None:
    """A22, A23, A24: on every start; failures are retried, a plugin that is down blocks them."""
    kubelet = node.kubelet()
    plugin = node.registered(kubelet, ["a"], pre_start=True)
    admitted = kubelet.admit(pod())
    assert plugin.seen[-2:] == ["Allocate", "PreStartContainer"]
    plugin.pre_start_error = "busy"
    view = kubelet.restart_container(admitted.uid, "c")
    assert (view.status, view.reason) == ("waiting", "CreateContainerConfigError")
    assert "busy" in view.message
    assert kubelet.pod(admitted.uid).phase == "Running"
    assert [e.reason for e in kubelet.events] == ["Failed"]
    plugin.pre_start_error = ""
    kubelet.retry_starts()
    assert kubelet.pod(admitted.uid).containers["c"].status == "running"
    plugin.stop()
    kubelet.wait_for(lambda: kubelet.local()[RESOURCE].stopped)
    assert "has been stopped" in kubelet.restart_container(admitted.uid, "c").message


def test_pre_start_deadline(node: Node) -> None:
    """A22: 30 s."""
    kubelet = node.kubelet(clock=Clock(scale=100))
    plugin = node.registered(kubelet, ["a"], pre_start=True)
    hold = threading.Event()
    plugin.pre_start_hook = hold.wait
    before = kubelet.clock.now()
    admitted = kubelet.admit(pod())
    hold.set()
    assert kubelet.clock.now() - before >= 30
    assert "DeadlineExceeded" in admitted.containers["c"].message


def test_failed_starts_are_retried_by_the_clock(node: Node) -> None:
    """A23: after 10 to 15 s."""
    kubelet = node.kubelet(automatic=True)
    plugin = node.registered(kubelet, ["a"], pre_start=True, pre_start_error="busy")
    admitted = kubelet.admit(pod())
    plugin.pre_start_error = ""
    kubelet.clock.advance(15)
    kubelet.wait_for(lambda: kubelet.pod(admitted.uid).containers["c"].status == "running")


def test_late_allocate(node: Node) -> None:
    """A5, A22: a container that was admitted without its device gets it at a restart, once the resource is known."""
    kubelet = node.kubelet()
    admitted = kubelet.admit(pod())
    plugin = node.registered(kubelet, ["a"])
    view = kubelet.restart_container(admitted.uid, "c")
    assert view.options is not None
    assert view.device_ids == {RESOURCE: {"a"}}
    assert plugin.seen.count("Allocate") == 1


def test_late_allocate_is_out_of_reach_with_pre_start(node: Node) -> None:
    """A24."""
    kubelet = node.kubelet()
    admitted = kubelet.admit(pod())
    node.registered(kubelet, ["a"], pre_start=True)
    view = kubelet.restart_container(admitted.uid, "c")
    assert view.message.startswith("no devices found allocated in local cache")
