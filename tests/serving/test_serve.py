"""From a node to a running pod: registration, lists, Allocate, kubelet restarts, stopping (issue, items 5, 6 and 8)."""

import signal
import socket
import threading
from functools import partial
from pathlib import Path

import grpc
import pytest

from deviceplugin.simulator import Container, Pod
from deviceplugin.stubs import deviceplugin_v1beta1_pb2 as pb
from deviceplugin.stubs.deviceplugin_v1beta1_pb2_grpc import DevicePluginStub
from tests.serving.harness import MIG_NODE, TWO_T4, Node, deadline, envs, gpu_uuid, t4s

GPU = "nvidia.com/gpu"

SHARED = """\
version: v1
sharing:
  timeSlicing:
    resources:
    - name: nvidia.com/gpu
      replicas: 4
"""


def test_whole_gpus_with_no_config_at_all(driver: str) -> None:
    with Node(driver=driver).run() as node:
        assert node.listed() == (gpu_uuid(0), gpu_uuid(1))
        (first,) = node.kubelet.resources[GPU].lists
        assert {device[2] for device in first.devices} == {(0,)}
        node.kubelet.tick()
        assert node.kubelet.node_status() == {GPU: (2, 2)}
        pod = node.pod("p", {GPU: 1})
        assert pod.phase == "Running", pod.message
        (held,) = pod.ids(GPU)
        assert envs(pod) == {"NVIDIA_VISIBLE_DEVICES": held}


def test_discovers_first_and_registers_once(driver: str) -> None:
    """R6, R14, L13 and reports B1: no empty list, one registration, one list."""
    with Node(driver=driver).run() as node:
        node.wait_ready()
        history = node.kubelet.resources[GPU]
        assert [(r.endpoint, r.version, r.error) for r in history.registrations] == [
            ("nvidia-gpu.sock", "v1beta1", None)
        ]
        assert [len(sent.ids) for sent in history.lists] == [2]


def test_time_sliced_replicas(driver: str) -> None:
    with Node(config=SHARED, driver=driver).run() as node:
        assert node.listed() == tuple(f"{gpu_uuid(g)}::{n}" for g in (0, 1) for n in range(4))
        pod = node.pod("p", {GPU: 2})
        assert set(envs(pod)["NVIDIA_VISIBLE_DEVICES"].split(",")) == {gpu_uuid(0), gpu_uuid(1)}


def test_mig_mixed_gives_one_resource_a_profile(driver: str) -> None:
    names = ("nvidia.com/gpu", "nvidia.com/mig-3g.20gb", "nvidia.com/mig-1g.5gb")
    config = "version: v1\nflags: {migStrategy: mixed, plugin: {deviceIDStrategy: index}}\n"
    with Node(MIG_NODE, config, driver=driver).run(*names) as node:
        assert node.sockets().keys() == {"nvidia-gpu.sock", "nvidia-mig-3g.20gb.sock", "nvidia-mig-1g.5gb.sock"}
        pod = node.pod("p", {"nvidia.com/mig-1g.5gb": 1})
        assert envs(pod) == {"NVIDIA_VISIBLE_DEVICES": "1:1"}


def test_ten_thousand_ids_of_one_gpu_and_two_containers(driver: str) -> None:
    config = SHARED.replace("replicas: 4", "replicas: 20000")
    with Node(config=config, driver=driver).run() as node:
        target = f"unix:{node.kubelet.registration_socket.parent / 'nvidia-gpu.sock'}"
        with grpc.insecure_channel(target, options=[("grpc.max_receive_message_length", -1)]) as channel:
            plugin = DevicePluginStub(channel)  # type: ignore[no-untyped-call]
            many = pb.ContainerAllocateRequest(devices_ids=[f"{gpu_uuid(1)}::{n}" for n in range(10_000)])
            one = pb.ContainerAllocateRequest(devices_ids=[f"{gpu_uuid(0)}::7"])
            with deadline(1.0):
                answer = plugin.Allocate(pb.AllocateRequest(container_requests=[many, one]))
            assert [dict(c.envs) for c in answer.container_responses] == [
                {"NVIDIA_VISIBLE_DEVICES": gpu_uuid(1)},
                {"NVIDIA_VISIBLE_DEVICES": gpu_uuid(0)},
            ]


def test_unknown_id_is_refused_by_name(driver: str) -> None:
    with Node(driver=driver).run() as node:
        target = f"unix:{node.kubelet.registration_socket.parent / 'nvidia-gpu.sock'}"
        with grpc.insecure_channel(target) as channel:
            plugin = DevicePluginStub(channel)  # type: ignore[no-untyped-call]
            request = pb.AllocateRequest(container_requests=[pb.ContainerAllocateRequest(devices_ids=["GPU-x"])])
            with pytest.raises(grpc.RpcError, match="unknown device: GPU-x"):
                plugin.Allocate(request)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGQUIT])
def test_a_signal_ends_it_cleanly(number: signal.Signals) -> None:
    with Node().run() as node:
        with deadline(2.5):
            assert node.stop(number) == 0
        assert node.sockets() == {}
        assert not node.status_socket.exists()
        assert f"stopping on {number.name}" in node.log


def more_lists(node: Node, than: int, resource: str = GPU) -> bool:
    """Whether the kubelet has had more lists of the resource than that."""
    return len(node.kubelet.resources[resource].lists) > than


def test_kubelet_restart_same_ids_and_the_pod_goes_on(driver: str) -> None:
    """S2, S5, A27, A28: the sockets are deleted, the plugin is back, the same ids, nothing dies."""
    with Node(config=SHARED, driver=driver).run() as node:
        ids = node.listed()
        pod = node.pod("p", {GPU: 1})
        for round_number in range(1, 4):
            lists = len(node.kubelet.resources[GPU].lists)
            node.kubelet.restart(readmission_delay=2.0)
            node.kubelet.wait_for(partial(more_lists, node, lists))
            assert node.listed() == ids
            assert node.kubelet.pod(pod.uid).phase == "Running"
            accepted = [r for r in node.kubelet.resources[GPU].registrations if r.error is None]
            assert len(accepted) == 1 + round_number
        assert node.pod("q", {GPU: 1}).phase == "Running"


def test_kubelet_restart_that_reuses_the_inode(driver: str) -> None:
    with Node(driver=driver).run() as node:
        node.kubelet.restart(same_inode=True, readmission_delay=2.0)
        node.kubelet.wait_for(lambda: len(node.kubelet.resources[GPU].lists) == 2)
        assert node.healthy() == {gpu_uuid(0), gpu_uuid(1)}


def test_two_kubelet_restarts_in_a_row() -> None:
    with Node().run() as node:
        node.kubelet.restart()
        node.kubelet.restart()
        node.kubelet.wait_for(lambda: node.kubelet.local()[GPU].allocatable == 2)
        assert node.pod("p", {GPU: 2}).phase == "Running"


def test_directory_replaced_while_the_kubelet_is_down() -> None:
    with Node().run() as node:
        node.kubelet.stop()
        node.kubelet.replace_directory()
        node.kubelet.start()
        node.kubelet.wait_for(lambda: GPU in node.kubelet.local() and node.kubelet.local()[GPU].allocatable == 2)
        assert node.sockets().keys() == {"nvidia-gpu.sock"}


def test_no_kubelet_yet_is_waited_out_and_said() -> None:
    with Node() as node:
        node.start()
        document = node.wait_status(lambda d: any("kubelet" in reason for reason in d["ready"]["reasons"]))
        assert document["live"]["ok"]
        assert node.command("status", "--ready", f"--status-socket={node.status_socket}").returncode == 1
        assert node.command("status", "--live", f"--status-socket={node.status_socket}").returncode == 0
        node.kubelet.start()
        node.wait_listed(GPU)
        node.wait_ready()
        assert node.command("status", "--ready", f"--status-socket={node.status_socket}").returncode == 0


def test_refused_registration_is_retried() -> None:
    with Node() as node:
        node.kubelet.start()
        node.kubelet.refuse_registrations("not today", times=2)
        node.run()
        errors = [r.error for r in node.kubelet.resources[GPU].registrations]
        assert errors == ["not today", "not today", None]
        assert "not today" in node.log


def test_two_processes_of_ours_lose_nobodys_socket() -> None:
    with Node().run() as node:
        first = node.process
        inode = node.sockets()["nvidia-gpu.sock"]
        lists = len(node.kubelet.resources[GPU].lists)
        node.start()
        second = node.process
        assert first is not None
        assert second is not None
        node.kubelet.wait_for(lambda: len(node.kubelet.resources[GPU].lists) > lists)
        assert node.sockets()["nvidia-gpu.sock"] == inode
        assert len(node.sockets()) == 2
        second.send_signal(signal.SIGTERM)
        assert second.wait(10) == 0
        assert node.sockets() == {"nvidia-gpu.sock": inode}
        node.kubelet.wait_for(lambda: node.kubelet.local()[GPU].allocatable == 2)
        assert node.pod("p", {GPU: 1}).phase == "Running"
        first.send_signal(signal.SIGTERM)
        assert first.wait(10) == 0


def test_a_foreign_live_socket_on_our_name_is_left_alone() -> None:
    with Node() as node:
        node.kubelet.start()
        path = node.kubelet.registration_socket.parent / "nvidia-gpu.sock"
        with socket.socket(socket.AF_UNIX) as foreign:
            foreign.bind(str(path))
            foreign.listen()
            stop = threading.Event()
            answering = threading.Thread(target=_accept_all, args=(foreign, stop))
            answering.start()
            inode = path.lstat().st_ino
            node.run()
            assert path.lstat().st_ino == inode
            (resource,) = node.wait_ready()["resources"]
            assert resource["conflict"]
            assert node.pod("p", {GPU: 1}).phase == "Running"
            node.stop()
            assert path.lstat().st_ino == inode
            stop.set()
            answering.join(5)


def _accept_all(listener: socket.socket, stop: threading.Event) -> None:
    listener.settimeout(0.1)
    while not stop.is_set():
        try:
            client, _ = listener.accept()
        except TimeoutError:
            continue
        client.close()


def test_node_without_gpus_is_ready_with_nothing() -> None:
    """Reports O1: stay up, idle, ready, and register nothing."""
    with Node("driver 570.133.20 cuda=12080\n", driver="simulated") as node:
        node.kubelet.start()
        node.start()
        node.wait_ready()
        assert node.kubelet.registrations == ()


def test_status_says_who_holds_what(driver: str) -> None:
    with Node(config=SHARED, driver=driver).run() as node:
        node.wait_ready()
        (held,) = node.pod("p", {GPU: 1}).ids(GPU)
        (resource,) = node.status()["resources"]
        assert (resource["capacity"], resource["healthy"], resource["held"]) == (8, 8, [held])
        text = node.command("status", f"--status-socket={node.status_socket}").stdout
        assert "nvidia.com/gpu: time-slicing, 8 of 8 healthy, 1 held, registered" in text
        assert "Tesla T4" in text or "NVIDIA" in text


def test_init_containers_and_sidecars(driver: str) -> None:
    with Node(t4s(4), driver=driver).run() as node:
        pod = node.kubelet.admit(
            Pod(
                "p",
                containers=(
                    Container("init", {GPU: 2}, kind="init"),
                    Container("side", {GPU: 1}, kind="sidecar"),
                    Container("main", {GPU: 2}),
                ),
            )
        )
        assert pod.phase == "Running", pod.message


def test_pods_see_only_what_they_asked_for(driver: str) -> None:
    """Reports M1: never `all`, never without the variable."""
    with Node(t4s(8), driver=driver).run() as node:
        seen: list[str] = []
        for number in range(4):
            pod = node.pod(f"p{number}", {GPU: 2})
            seen += envs(pod)["NVIDIA_VISIBLE_DEVICES"].split(",")
        assert sorted(seen) == sorted(gpu_uuid(i) for i in range(8))


def test_flags_and_variables_reach_the_plan(driver: str, tmp_path: Path) -> None:
    with Node(TWO_T4, driver=driver, env={"DEVICE_ID_STRATEGY": "index"}).run() as node:
        assert envs(node.pod("p", {GPU: 2}))["NVIDIA_VISIBLE_DEVICES"] in ("0,1", "1,0")


@pytest.mark.parametrize(
    ("args", "status", "word"),
    [
        (["--no-such-flag"], 2, "no-such-flag"),
        (["--cdi-feature-flags=enable-coherent-annotations"], 1, "enable-coherent-annotations"),
        (["--device-discovery-strategy=tegra"], 1, "tegra"),
    ],
)
def test_what_is_not_offered_is_refused_by_name(args: list[str], status: int, word: str) -> None:
    with Node(args=args) as node:
        node.start()
        assert node.wait_exit() == status
        assert word in node.log.lower()
