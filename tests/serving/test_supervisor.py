"""The MPS supervisor with the plugin, both as processes, on either driver (issue: MPS that is looked after)."""

import os
import signal
import time
from collections.abc import Iterable
from functools import partial

import pytest

from deviceplugin.simulator.podresources import PodResources
from deviceplugin.simulator.pods import PodState
from tests.serving.harness import DRIVERS, TWO_T4, Node, envs, gpu_uuid
from tests.serving.supervisor import Supervisor
from tests.serving.test_bad_moments import kubelet_with

GPU, MPS = "nvidia.com/gpu", "nvidia.com/gpu.mps"
DEFAULT, EXCLUSIVE_PROCESS = 0, 3
ARGS = ("--mps-root=/run/nvidia/mps",)

pytestmark = pytest.mark.parametrize("driver", DRIVERS)


def config(replicas: int = 4, *, kind: str = "mps", more: str = "", devices: str = "all") -> str:
    entry = f"{{name: nvidia.com/gpu, replicas: {replicas}, devices: {devices}{more}}}"
    return f"version: v1\nsharing: {{{kind}: {{resources: [{entry}]}}}}\n"


def shares(*gpus: int, count: int = 4) -> frozenset[str]:
    return frozenset(f"{gpu_uuid(gpu)}::{n}" for gpu in gpus for n in range(count))


def wait_healthy(node: Node, ids: frozenset[str], resource: str = GPU) -> None:
    node.kubelet.wait_for(lambda: node.kubelet.resources[resource].lists and node.healthy(resource) == ids, 30)


def moved(supervisor: Supervisor, before: tuple[int, int]) -> bool:
    return supervisor.daemon(0) != before


def node_of(driver: str, text: str, **more: object) -> Node:
    return Node(TWO_T4, text, driver=driver, args=ARGS, mps=True, **more)  # type: ignore[arg-type]


def test_daemons_are_started_limited_watched_and_restarted(driver: str) -> None:
    with node_of(driver, config()) as node, Supervisor(node) as supervisor:
        node.run(GPU)
        wait_healthy(node, shares(0, 1))
        first, second = supervisor.wait_serving(0), supervisor.wait_serving(1)
        assert supervisor.ask("get_default_active_thread_percentage") == "25.0"
        assert supervisor.ask("get_default_device_pinned_mem_limit 0") == "3G"
        assert [supervisor.compute_mode(gpu) for gpu in (0, 1)] == [EXCLUSIVE_PROCESS] * 2
        assert envs(node.pod("inference", {GPU: 1}))["CUDA_MPS_PIPE_DIRECTORY"] == "/mps/nvidia.com/gpu/pipe"
        with supervisor.client() as client:
            assert client.wait_server()[1:] == (25, 3840)
        os.kill(first[0], signal.SIGKILL)
        wait_healthy(node, shares(1))
        wait_healthy(node, shares(0, 1))
        assert supervisor.wait_serving(0, other_than=first) != first
        assert supervisor.daemon(1) == second
        assert supervisor.stop() == 0
        assert [supervisor.compute_mode(gpu) for gpu in (0, 1)] == [DEFAULT] * 2
        wait_healthy(node, frozenset())


def test_a_daemon_that_hangs_or_forgets_is_replaced(driver: str) -> None:
    with node_of(driver, config()) as node, Supervisor(node) as supervisor:
        node.run(GPU)
        wait_healthy(node, shares(0, 1))
        for fault in ("hang", "forget"):
            before, other = supervisor.wait_serving(0), supervisor.wait_serving(1)
            node.mps_faults.set(fault, gpu_uuid(0))
            wait_healthy(node, shares(1))
            supervisor.wait(partial(moved, supervisor, before))
            node.mps_faults.clear(fault, gpu_uuid(0))
            supervisor.wait_serving(0, other_than=before)
            wait_healthy(node, shares(0, 1))
            assert supervisor.daemon(1) == other


def test_an_edit_touches_only_the_daemons_that_it_changes(driver: str) -> None:
    two = config(devices="[0]").replace(
        "]}}", ", {name: nvidia.com/gpu, devices: [1], replicas: 4, rename: nvidia.com/b}]}}"
    )
    with node_of(driver, two) as node, Supervisor(node) as supervisor:
        node.run(MPS, "nvidia.com/b")
        wait_healthy(node, shares(0), MPS)
        wait_healthy(node, shares(1), "nvidia.com/b")
        first, second = supervisor.wait_serving(0, MPS), supervisor.wait_serving(1, "nvidia.com/b")
        node.write_config(two + "# nothing\n")
        node.write_config(two.replace("replicas: 4, devices: [0]", "replicas: 2, devices: [0]"))
        supervisor.wait_serving(0, MPS, other_than=first)
        wait_healthy(node, shares(0, count=2), MPS)
        assert supervisor.ask("get_default_active_thread_percentage", 0, MPS) == "50.0"
        assert supervisor.daemon(1, "nvidia.com/b") == second


def test_changed_limits_wait_for_the_shares_held_and_for_clients(driver: str) -> None:
    with node_of(driver, config()) as node, Supervisor(node) as supervisor:
        node.run(GPU)
        wait_healthy(node, shares(0, 1))
        before = supervisor.wait_serving(0), supervisor.wait_serving(1)
        pod = node.pod("inference", {GPU: 1})
        ((held,),) = node.kubelet.held()[GPU].values()
        gpu = 0 if held in shares(0) else 1
        with supervisor.client(gpu) as client:
            client.wait_server()
            node.write_config(config(2))
            supervisor.wait_serving(1 - gpu, other_than=before[1 - gpu])
            supervisor.wait_log("waits (3840M and 25 % of the threads for each process -> 7680M")
            assert supervisor.daemon(gpu) == before[gpu]
            node.kubelet.end(pod.uid)
            supervisor.wait_log("1 client still connected", 40)
            assert supervisor.daemon(gpu) == before[gpu]
        supervisor.wait_serving(gpu, other_than=before[gpu])
        wait_healthy(node, shares(0, 1, count=2))


def test_from_mps_to_time_slicing_the_compute_mode_is_put_back_first(driver: str) -> None:
    with node_of(driver, config()) as node, Supervisor(node) as supervisor:
        node.run(GPU)
        wait_healthy(node, shares(0, 1))
        node.write_config(config(3, kind="timeSlicing"))
        wait_healthy(node, shares(0, 1, count=3))
        assert [supervisor.compute_mode(gpu) for gpu in (0, 1)] == [DEFAULT] * 2
        assert supervisor.daemon(0) == supervisor.daemon(1) == (0, 0)


def test_after_a_sigkill_the_next_supervisor_takes_over_or_puts_back(driver: str) -> None:
    with node_of(driver, config()) as node, Supervisor(node) as supervisor:
        first = supervisor.wait_serving(0)
        supervisor.stop(signal.SIGKILL)
        supervisor.start()
        supervisor.wait_log("of an earlier supervisor runs on")
        assert supervisor.wait_serving(0) == first
        supervisor.stop(signal.SIGKILL)
        os.kill(first[0], signal.SIGKILL)
        assert supervisor.compute_mode(0) == EXCLUSIVE_PROCESS
        node.write_config(config(3, kind="timeSlicing"))
        supervisor.start()
        supervisor.wait(lambda: supervisor.compute_mode(0) == supervisor.compute_mode(1) == DEFAULT)
        supervisor.wait(lambda: supervisor.daemon(1) == (0, 0))


def test_one_group_out_of_service_leaves_the_other(driver: str) -> None:
    with node_of(driver, config()) as node:
        node.mps_faults.set("refuse", gpu_uuid(0))
        with Supervisor(node) as supervisor:
            node.run(GPU)
            wait_healthy(node, shares(1))
            supervisor.wait_log("GPU 0 (nvidia.com/gpu): the control daemon ended with status 1: Failed to initialize")
            node.mps_faults.clear("refuse", gpu_uuid(0))
            wait_healthy(node, shares(0, 1))


def test_a_foreign_daemon_is_left_alone(driver: str) -> None:
    with node_of(driver, config()) as node, node.mps_daemon(0) as foreign, Supervisor(node) as supervisor:
        supervisor.wait_serving(1)
        supervisor.wait_log("foreign daemon: a control daemon that this supervisor did not start")
        assert foreign.process is not None
        assert foreign.process.poll() is None
        assert supervisor.compute_mode(0) == DEFAULT
        foreign.ask("quit")
        supervisor.wait_serving(0)


def test_old_drivers_serve_one_user_at_a_time(driver: str) -> None:
    with node_of(driver, config(), env={"MPS_STANDIN_OLD": "1"}) as node, Supervisor(node) as supervisor:
        supervisor.wait_serving(0)
        assert "knows no -multiuser-server" in supervisor.log


def test_without_the_program_the_reason_is_said(driver: str) -> None:
    with Node(TWO_T4, config(), driver=driver, args=ARGS) as node, Supervisor(node) as supervisor:
        node.root.chmod(0o755)
        supervisor.wait_log("nvidia-cuda-mps-control is not on PATH")
        assert supervisor.process is not None
        assert supervisor.process.poll() is None
        supervisor.stop()
        assert supervisor.compute_mode(0) == DEFAULT


def test_a_parent_that_others_cannot_enter_is_named(driver: str) -> None:
    with node_of(driver, config()) as node:
        node.mps_root.chmod(0o700)
        with Supervisor(node) as supervisor:
            supervisor.wait_log("can't be entered by others")
            assert supervisor.compute_mode(0) == DEFAULT


def test_a_restarted_supervisor_serves_the_shares_that_pods_still_hold(driver: str) -> None:
    """A container that restarts (an update, a probe) ends its daemons, but not the pods: they hold their shares on."""
    with node_of(driver, config()) as node, Supervisor(node) as supervisor:
        node.run(GPU)
        wait_healthy(node, shares(0, 1))
        node.pod("first", {GPU: 1})
        assert supervisor.stop() == 0
        wait_healthy(node, frozenset())
        supervisor.start()
        wait_healthy(node, shares(0, 1))


def test_a_kubelet_that_lost_its_checkpoint_ends_no_daemon_under_a_pod(driver: str) -> None:
    """A31: the kubelet forgets who holds what, and the pods run on; a change goes on waiting for them."""
    lists: list[PodResources] = []

    class Counting(PodResources):
        def listed(self) -> Iterable[PodState]:
            lists.append(self)
            return super().listed()

    with node_of(driver, config(), kubelet=kubelet_with(Counting)) as node, Supervisor(node) as supervisor:
        node.run(GPU)
        wait_healthy(node, shares(0, 1))
        daemons = [supervisor.wait_serving(gpu) for gpu in (0, 1)]
        (held,) = node.pod("inference", {GPU: 1}).ids(GPU)
        gpu = 0 if held in shares(0) else 1
        node.write_config(config(2))
        supervisor.wait_serving(1 - gpu, other_than=daemons[1 - gpu])
        supervisor.wait_log("waits (")
        node.kubelet.stop()
        node.kubelet.checkpoint_path.unlink()
        node.kubelet.start()
        read_before = len(lists)

        def read_often_enough() -> bool:
            assert supervisor.process is not None
            supervisor.process.send_signal(signal.SIGHUP)  # reads what is held as well, at most twice a second
            return len(lists) > read_before + 15

        supervisor.wait(read_often_enough)
        assert supervisor.daemon(gpu) == daemons[gpu]


def test_a_driver_that_is_down_is_said_once_and_ends_no_daemon(driver: str) -> None:
    with node_of(driver, config()) as node, Supervisor(node) as supervisor:
        first = supervisor.wait_serving(0)
        text = node.node_file.read_text()
        if driver == "nvml":
            node.control.append("fail * 1", "init 9")
        else:
            node.node_file.write_text("driver: {error: 9}")
        supervisor.wait_log("the driver does not answer")
        two_more_looks = time.monotonic() + 5
        supervisor.wait(lambda: time.monotonic() > two_more_looks)
        node.control.clear()
        node.node_file.write_text(text)
        supervisor.wait_log("the driver answers again")
        assert supervisor.log.count("the driver does not answer") == 1
        assert supervisor.daemon(0) == first


def test_sighups_in_a_storm_keep_no_sigterm_from_being_heard(driver: str) -> None:
    with node_of(driver, config()) as node, Supervisor(node) as supervisor:
        supervisor.wait_serving(0)
        assert supervisor.process is not None
        for _ in range(500):
            supervisor.process.send_signal(signal.SIGHUP)
        assert supervisor.stop() == 0


def test_a_record_that_cannot_be_read_is_said_once_and_kept(driver: str) -> None:
    """It alone could tell what the compute mode was: nothing is done to the GPU until somebody has looked."""
    with node_of(driver, config()) as node:
        record = node.mps_root / ".supervisor" / "compute-mode" / gpu_uuid(0)
        record.parent.mkdir(parents=True)
        record.write_text("{")
        with Supervisor(node) as supervisor:
            supervisor.wait_serving(1)
            supervisor.wait_log("so it is unknown what the compute mode of")
            node.write_config(config(kind="timeSlicing"))
            supervisor.wait(lambda: supervisor.daemon(1) == (0, 0))
            some_orders = time.monotonic() + 2.5
            supervisor.wait(lambda: time.monotonic() > some_orders)
            assert supervisor.log.count("so it is unknown") == 1
            assert record.read_text() == "{"
            assert supervisor.daemon(0) == (0, 0)
            record.unlink()
            node.write_config(config())
            supervisor.wait_serving(0)


def test_wrong_limits_are_put_right_even_after_a_question_that_was_missed(driver: str) -> None:
    with node_of(driver, config()) as node, Supervisor(node) as supervisor:
        before = supervisor.wait_serving(0)
        node.mps_faults.set("fail", gpu_uuid(0))
        supervisor.wait_log("failed with exit status 1")
        node.mps_faults.set("forget", gpu_uuid(0))
        node.mps_faults.clear("fail", gpu_uuid(0))
        supervisor.wait(partial(moved, supervisor, before))
        node.mps_faults.clear("forget", gpu_uuid(0))
        supervisor.wait_serving(0, other_than=before)


def test_a_gpu_that_comes_later_gets_its_daemon(driver: str) -> None:
    """NVML shows it only to who opens it afresh, so nothing here may keep it open."""
    with node_of(driver, config()) as node, Supervisor(node) as supervisor:
        before = supervisor.wait_serving(0), supervisor.wait_serving(1)
        assert supervisor.process is not None
        third = TWO_T4.splitlines()[-1].replace("gpu 1 ", "gpu 2 ").replace("minor=1", "minor=2")
        third = third.replace(gpu_uuid(1), gpu_uuid(2)).replace("bus=00000000:11", "bus=00000000:12")
        node.set_node(f"{TWO_T4}{third}\n")
        supervisor.process.send_signal(signal.SIGHUP)
        supervisor.wait_serving(2)
        assert (supervisor.daemon(0), supervisor.daemon(1)) == before
