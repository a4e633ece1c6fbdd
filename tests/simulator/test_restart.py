"""Kubelet restarts and the checkpoint: S1 to S7, A27 to A32, C1 to C5."""

from __future__ import annotations

import base64
import json
import socket
import stat
import threading
from typing import Any

import grpc
import pytest

from deviceplugin.simulator import Container, KubeletStopped, Pod, SimulatorError
from deviceplugin.stubs import deviceplugin_v1beta1_pb2 as pb
from tests.simulator.naive_plugin import RESOURCE, device
from tests.simulator.node import Node, holds, in_thread, pod, refusal


def test_clean_up_takes_sockets_and_links_to_them_only(node: Node) -> None:
    """S2, S3."""
    kubelet = node.kubelet()
    plugin = node.registered(kubelet, ["a"])
    (node.directory / "sub").mkdir()
    node.plugin(["a"], "e.com/sub", endpoint="sub/p.sock")
    (node.directory / "link.sock").symlink_to(node.directory / "sub" / "p.sock")
    (node.directory / "dangling").symlink_to(node.directory / "nothing")
    (node.directory / "file").write_text("x")
    kubelet.restart()
    assert {p.name for p in node.directory.iterdir()} == {
        "sub",
        "dangling",
        "file",
        "kubelet.sock",
        "kubelet_internal_checkpoint",
    }
    assert (node.directory / "sub" / "p.sock").is_socket()
    assert not plugin.socket.exists()


def test_a_stale_socket_remains_between_exit_and_start(node: Node) -> None:
    """S4, S1: refused until the runtime is ready; then a new socket."""
    kubelet = node.kubelet()
    plugin = node.registered(kubelet, ["a"])
    path = kubelet.registration_socket
    kubelet.stop()
    assert not kubelet.running
    for start in (False, True):
        if start:
            kubelet.start(runtime_ready=False)
        assert path.is_socket()
        assert plugin.socket.exists()
        with socket.socket(socket.AF_UNIX) as client, pytest.raises(ConnectionRefusedError):
            client.connect(str(path))
    assert refusal(plugin.register)[0] is grpc.StatusCode.UNAVAILABLE
    kubelet.runtime_ready()
    assert not plugin.socket.exists()
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
    with pytest.raises(SimulatorError):
        kubelet.runtime_ready()
    with pytest.raises(SimulatorError):
        kubelet.start()


def test_the_new_socket_may_have_the_old_inode_number(node: Node) -> None:
    """S5: comparing inode numbers is no proof; registration works all the same, twice."""
    kubelet = node.kubelet()
    inode = kubelet.registration_socket.stat().st_ino
    for _ in range(2):
        kubelet.restart(same_inode=True)
        assert kubelet.registration_socket.stat().st_ino == inode
        plugin = node.registered(kubelet, ["a"])
        plugin.stop()
    kubelet.stop()
    assert kubelet.registration_socket.is_socket()


def test_streams_end_with_the_process(node: Node) -> None:
    """S5 (iii): the plugin sees its stream cancelled."""
    kubelet = node.kubelet()
    plugin = node.registered(kubelet, ["a"])
    kubelet.stop()
    plugin.stream_ended.acquire(timeout=10)
    assert plugin.open_streams == 0


def test_resources_start_at_zero_with_a_running_grace(node: Node) -> None:
    """S7, L9: present with 0 devices; deleted when more than 5 minutes passed since the start."""
    kubelet = node.kubelet()
    node.registered(kubelet, ["a", "b"])
    kubelet.tick()
    kubelet.clock.advance(1000)
    kubelet.restart()
    kubelet.tick()
    assert kubelet.node_status()[RESOURCE] == (0, 0)
    kubelet.clock.advance(300)
    kubelet.tick()
    assert RESOURCE in kubelet.local()
    kubelet.clock.advance(1)
    kubelet.tick()
    assert RESOURCE not in kubelet.local()


def test_running_pods_pass_and_keep_their_devices(node: Node) -> None:
    """A27, A28, A16: no Allocate, no check; the cached response serves restarts."""
    kubelet = node.kubelet()
    plugin = node.registered(kubelet, ["a", "b"])
    admitted = kubelet.admit(pod())
    kubelet.restart()
    assert kubelet.pod(admitted.uid).phase == "Running"
    assert kubelet.local()[RESOURCE].allocated == holds(admitted)
    assert kubelet.restart_container(admitted.uid, "c").options == admitted.containers["c"].options
    plugin.stop()
    again = node.plugin(["a", "b"])
    node.register(kubelet, again)
    assert holds(kubelet.admit(pod("q"))) == {"a", "b"} - holds(admitted)
    assert plugin.seen.count("Allocate") + again.seen.count("Allocate") == 2


def test_predicates_do_not_reject_holders(node: Node) -> None:
    """A30: though the pushed status says 0."""
    kubelet = node.kubelet()
    node.registered(kubelet, ["a", "b"])
    admitted = kubelet.admit(pod(count=2))
    kubelet.restart()
    kubelet.tick()
    assert kubelet.node_status()[RESOURCE] == (0, 0)
    kubelet.restart()
    assert kubelet.pod(admitted.uid).phase == "Running"


def test_finished_init_containers_go_through_the_gate(node: Node) -> None:
    """A29, S6: a healthy pod with a finished init container fails when the plugin is not back in time."""
    kubelet = node.kubelet()
    node.registered(kubelet, ["a"])
    containers = (Container("i", {RESOURCE: 1}, "init"), Container("c", {RESOURCE: 1}))
    admitted = kubelet.admit(Pod("p", containers=containers))
    kubelet.restart()
    failed = kubelet.pod(admitted.uid)
    assert (failed.phase, failed.reason) == ("Failed", "UnexpectedAdmissionError")
    assert "no healthy devices present" in failed.message
    assert failed.containers["c"].status == "terminated"


@pytest.mark.parametrize(("health", "phase"), [("Healthy", "Running"), ("Unhealthy", "Failed")])
def test_a_plugin_that_is_back_in_time_saves_them(node: Node, health: str, phase: str) -> None:
    """S6, A29, X1: if its held ids are Healthy."""
    kubelet = node.kubelet()
    node.registered(kubelet, ["a", "b"]).stop()
    node.registered(kubelet, ["a"])
    containers = (Container("i", {RESOURCE: 1}, "init"), Container("c", {RESOURCE: 1}))
    admitted = kubelet.admit(Pod("p", containers=containers))
    kubelet.restart(readmit=False)
    node.registered(kubelet, [device("a", health), "b"], endpoint="again.sock")
    kubelet.readmit()
    after = kubelet.pod(admitted.uid)
    assert after.phase == phase
    if phase == "Failed":
        assert "previously allocated devices are no longer healthy" in after.message
    assert len(kubelet.resources[RESOURCE].calls("Allocate")) == 2


def test_readmission_can_be_delayed_by_the_clock(node: Node) -> None:
    """S6: the pods come some seconds after the socket."""
    kubelet = node.kubelet()
    node.registered(kubelet, ["a"])
    admitted = kubelet.admit(pod())
    kubelet.stop_container(admitted.uid, "c")
    kubelet.stop()
    thread = in_thread(lambda: kubelet.start(readmission_delay=5))
    kubelet.wait_for(lambda: kubelet.listening)
    again = node.plugin(["a"])
    node.register(kubelet, again)
    kubelet.clock.advance(5)
    thread.join(10)
    after = kubelet.pod(admitted.uid)
    assert (after.phase, after.containers["c"].status) == ("Running", "running")


def test_a_crashed_container_and_a_reboot_go_through_the_gate(node: Node) -> None:
    """A29, A32."""
    kubelet = node.kubelet()
    plugin = node.registered(kubelet, ["a", "b"])
    crashed, running = kubelet.admit(pod("p")), kubelet.admit(pod("q"))
    kubelet.stop_container(crashed.uid, "c")
    kubelet.restart()
    assert [kubelet.pod(p.uid).phase for p in (crashed, running)] == ["Failed", "Running"]
    plugin.stop()
    kubelet.restart(reboot=True)
    assert kubelet.pod(running.uid).phase == "Failed"


def test_pods_that_ended_meanwhile_are_skipped(node: Node) -> None:
    """A27, A13: and freed once all sources are ready."""
    kubelet = node.kubelet()
    node.registered(kubelet, ["a"])
    admitted = kubelet.admit(pod())
    kubelet.stop()
    kubelet.end(admitted.uid)
    kubelet.start()
    assert kubelet.pod(admitted.uid).phase == "Succeeded"
    assert kubelet.local()[RESOURCE].allocated == {"a"}
    node.register(kubelet, node.plugin(["a"], endpoint="again.sock"))
    assert holds(kubelet.admit(pod("q"))) == {"a"}


@pytest.mark.parametrize("damage", ["lost", "corrupt", "edited"])
def test_a_lost_checkpoint_double_books(node: Node, damage: str) -> None:
    """A31, C4: running containers pass unrecorded, so their ids are handed out again."""
    kubelet = node.kubelet()
    node.registered(kubelet, ["a"]).preferred_answer = None
    admitted = kubelet.admit(pod())
    kubelet.stop()
    if damage == "lost":
        kubelet.checkpoint_path.unlink()
    else:
        text = kubelet.checkpoint_path.read_text()
        kubelet.checkpoint_path.write_text("{" if damage == "corrupt" else text.replace('"a"', '"b"'))
    kubelet.start()
    assert kubelet.pod(admitted.uid).phase == "Running"
    assert kubelet.local() == {}
    node.register(kubelet, node.plugin(["a"], endpoint="again.sock"))
    assert holds(kubelet.admit(pod("q"))) == {"a"}


def test_pre_start_is_skipped_before_the_plugin_is_back(node: Node) -> None:
    """A24."""
    kubelet = node.kubelet()
    plugin = node.registered(kubelet, ["a"], pre_start=True)
    admitted = kubelet.admit(pod())
    kubelet.restart()
    before = plugin.seen.count("PreStartContainer")
    assert kubelet.restart_container(admitted.uid, "c").status == "running"
    assert plugin.seen.count("PreStartContainer") == before


def test_replaced_directory(node: Node) -> None:
    """S5: a running kubelet does not notice; the socket is back, elsewhere, at the next start."""
    kubelet = node.kubelet()
    node.registered(kubelet, ["a"])
    old = kubelet.replace_directory(keep_checkpoint=True)
    assert not kubelet.registration_socket.exists()
    assert (old / "kubelet.sock").is_socket()
    kubelet.restart()
    assert kubelet.registration_socket.is_socket()
    assert RESOURCE in kubelet.local()
    kubelet.replace_directory()
    kubelet.restart()
    assert kubelet.local() == {}


def test_the_checkpoint_file(node: Node) -> None:
    """C1, C3: shape, mode, both NUMA keys, the response as base64; an ended pod's entry stays until List and a list."""
    kubelet = node.kubelet()
    path = kubelet.checkpoint_path

    def data() -> Any:
        document = json.loads(path.read_text())
        assert set(document) == {"Data", "Checksum"}
        assert isinstance(document["Checksum"], int)
        return document["Data"]

    plugin = node.registered(kubelet, [device("a", numa=[0, 1]), device("b", "Unhealthy"), device("c", numa=[])])
    assert data() == {"PodDeviceEntries": None, "RegisteredDevices": {RESOURCE: data()["RegisteredDevices"][RESOURCE]}}
    assert sorted(data()["RegisteredDevices"][RESOURCE]) == ["a", "c"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    inode = path.stat().st_ino
    admitted = kubelet.admit(pod(count=2))
    assert path.stat().st_ino != inode
    [entry] = data()["PodDeviceEntries"]
    assert {k: entry[k] for k in ("PodUID", "ContainerName", "ResourceName")} == {
        "PodUID": admitted.uid,
        "ContainerName": "c",
        "ResourceName": RESOURCE,
    }
    assert entry["DeviceIDs"] == {"0": ["a"], "1": ["a"], "-1": ["c"]}
    response = pb.ContainerAllocateResponse.FromString(base64.b64decode(entry["AllocResp"]))
    assert set(response.envs["IDS"].split(",")) == {"a", "c"}
    kubelet.end(admitted.uid)
    assert data()["PodDeviceEntries"]
    with node.pod_resources() as stub:
        stub.List()
    assert data()["PodDeviceEntries"]
    node.push(kubelet, plugin, ["a"])
    assert data()["PodDeviceEntries"] is None


def test_the_checkpoint_lacks_an_allocate_in_flight(node: Node) -> None:
    """C5, C3: and is written once per container, after all its resources."""
    kubelet = node.kubelet()
    one = node.registered(kubelet, ["a"], "e.com/one")
    two = node.registered(kubelet, ["b"], "e.com/two")
    writes = kubelet.checkpoint_writes
    one.block()
    two.block()
    pending = kubelet.submit(Pod("p", containers=(Container("c", {"e.com/one": 1, "e.com/two": 1}),)))
    kubelet.wait_for(lambda: any(r.method == "Allocate" for r in kubelet.rpcs))
    assert json.loads(kubelet.checkpoint_path.read_text())["Data"]["PodDeviceEntries"] is None
    one.release()
    two.release()
    assert pending.result(10).phase == "Running"
    assert kubelet.checkpoint_writes == writes + 1


def test_close_ends_every_thread(node: Node) -> None:
    """Whatever is going on: a hung Allocate, a hung options call, a failed start, a delayed answer."""
    kubelet = node.kubelet(automatic=True)
    plugin = node.registered(kubelet, ["a"])
    plugin.block()
    pending = kubelet.submit(pod())
    assert plugin.allocating.acquire(timeout=10)
    stuck = node.plugin([], "e.com/stuck")
    stuck.block_options()
    thread = in_thread(lambda: refusal(stuck.register))
    kubelet.wait_for(lambda: kubelet.resources["e.com/stuck"].calls("GetDevicePluginOptions"))
    kubelet.close()
    thread.join(10)
    with pytest.raises(KubeletStopped):
        pending.result(10)
    assert [t.name for t in threading.enumerate() if t.name.startswith("kubelet-")] == []
