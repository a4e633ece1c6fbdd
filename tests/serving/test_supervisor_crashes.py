"""What is left of daemons, servers and supervisors that were killed or hang: real processes, on either driver."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from deviceplugin.model.ids import unit_of
from deviceplugin.mps.proc import started_at
from tests.mps_standin import ControlDaemon
from tests.serving.harness import DRIVERS, Node, gpu_uuid
from tests.serving.supervisor import Supervisor
from tests.serving.test_supervisor import (
    DEFAULT,
    EXCLUSIVE_PROCESS,
    GPU,
    MPS,
    config,
    node_of,
    shares,
    wait_healthy,
)

pytestmark = pytest.mark.parametrize("driver", DRIVERS)


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """The process does nothing inside the block, but lives."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def pipes(daemon: ControlDaemon) -> set[str]:
    return {path.name for path in daemon.pipes.iterdir()}


def record_of(node: Node, gpu: int = 0) -> Path:
    return node.mps_root / ".supervisor" / "compute-mode" / gpu_uuid(gpu)


# A daemon that this supervisor did not start.


def test_a_foreign_daemon_that_hangs_is_not_taken_for_a_dead_one(driver: str) -> None:
    with node_of(driver, config()) as node, node.mps_daemon(0) as foreign:
        assert foreign.process is not None
        before = pipes(foreign)
        with stopped(foreign.process.pid), Supervisor(node) as supervisor:
            supervisor.wait_serving(1)
            supervisor.wait_log(f"did not start (pid {foreign.process.pid}) lives but does not serve (no answer to")
            assert f"End it with `kill {foreign.process.pid}`" in supervisor.log
            assert pipes(foreign) == before
            assert supervisor.compute_mode(0) == DEFAULT
            assert supervisor.stop() == 0
        assert foreign.ask("get_server_list") == (0, "")


def test_a_foreign_daemon_without_its_pid_file_is_seen_by_its_socket(driver: str) -> None:
    with node_of(driver, config()) as node, node.mps_daemon(0) as foreign, Supervisor(node) as supervisor:
        (foreign.pipes / "nvidia-cuda-mps-control.pid").unlink(missing_ok=True)
        supervisor.wait_log("did not start (pid unknown) answers at")
        assert foreign.ask("get_server_list") == (0, "")


def test_what_a_dead_daemon_left_is_cleared_even_if_its_pid_is_in_use_again(driver: str) -> None:
    with node_of(driver, config()) as node, node.mps_daemon(0) as dead, Supervisor(node) as supervisor:
        other, _ = supervisor.wait_serving(1)
        dead.kill()
        (dead.pipes / "nvidia-cuda-mps-control.pid").write_text(f"{other}\n")
        supervisor.wait_serving(0)


# A supervisor that is killed in the middle of a start.

CRASHES = {
    "before the daemon's start": ("subprocess.Popen", "-f", 0, False),
    "before the daemon's pid is noted": ("os.rename", ".supervisor/compute-mode", 1, True),
    "before the limits are noted": ("os.rename", ".supervisor/compute-mode", 2, True),
}


@pytest.mark.parametrize("crash", CRASHES)
def test_the_next_supervisor_goes_on_where_one_was_killed(driver: str, crash: str) -> None:
    event, part, skip, has_daemon = CRASHES[crash]
    program = ("tests.serving.planted", event, part, str(skip))
    with node_of(driver, config(devices="[0]")) as node, Supervisor(node, program=program) as supervisor:
        assert supervisor.process is not None
        assert supervisor.process.wait(20) == -signal.SIGKILL
        assert record_of(node).exists()
        if has_daemon:
            supervisor.wait(lambda: supervisor.daemon(0, MPS) != (0, 0))
        left = supervisor.daemon(0, MPS)
        assert (left != (0, 0)) == has_daemon
        supervisor.start()
        now = supervisor.wait_serving(0, MPS)
        assert not has_daemon or now == left
        assert "foreign" not in supervisor.log
        assert supervisor.ask("get_default_active_thread_percentage", 0, MPS) == "25.0"
        assert supervisor.stop() == 0
        assert supervisor.compute_mode(0) == DEFAULT


# Servers that a killed daemon leaves behind.


def test_a_server_with_the_old_limits_is_ended_before_the_new_ones_hold(driver: str) -> None:
    with node_of(driver, config()) as node, Supervisor(node) as supervisor:
        daemon = supervisor.wait_serving(0)
        with supervisor.client() as client:
            server, _, _ = client.wait_server()
        os.kill(daemon[0], signal.SIGKILL)
        daemon = supervisor.wait_serving(0, other_than=daemon)
        assert started_at(server), "limits have not changed: it runs on for the clients that it has"
        node.write_config(config(2))
        supervisor.wait_serving(0, other_than=daemon)
        assert not started_at(server)
        assert f"the servers {server} of {gpu_uuid(0)}, with other limits, are ended" in supervisor.log


def test_a_server_with_other_limits_is_left_to_pods_and_keeps_the_shares_unhealthy(driver: str) -> None:
    with node_of(driver, config(devices="[0]")) as node, Supervisor(node) as supervisor:
        node.run(MPS)
        wait_healthy(node, shares(0), MPS)
        supervisor.wait_serving(0, MPS)
        node.pod("inference", {MPS: 1})
        # Somebody has lowered the daemon's limits by hand, and a client has come meanwhile.
        supervisor.ask("set_default_active_thread_percentage 10", 0, MPS)
        with supervisor.client(0, MPS) as client:
            server, percentage, _ = client.wait_server()
            assert percentage == 10
            supervisor.wait_log(f"1 server of an earlier control daemon ({server}) may still serve clients with other")
            assert started_at(server)
            assert supervisor.daemon(0, MPS) == (0, 0)
            wait_healthy(node, frozenset(), MPS)
            os.kill(server, signal.SIGKILL)
        supervisor.wait_serving(0, MPS)
        wait_healthy(node, shares(0), MPS)


def test_leaving_mps_ends_what_a_hung_daemon_left(driver: str) -> None:
    with node_of(driver, config()) as node, Supervisor(node) as supervisor:
        supervisor.wait_serving(0)
        with supervisor.client() as client:
            server, _, _ = client.wait_server()
        node.mps_faults.set("hang", gpu_uuid(0))
        node.write_config(config(kind="timeSlicing"))
        supervisor.wait(lambda: supervisor.compute_mode(0) == DEFAULT, 40)
        assert not started_at(server)
        assert not record_of(node).exists()


def test_a_client_is_not_ended_because_its_daemon_misses_a_question(driver: str) -> None:
    with node_of(driver, config()) as node, Supervisor(node) as supervisor:
        supervisor.wait_serving(0)
        with supervisor.client() as client:
            server, _, _ = client.wait_server()
            node.mps_faults.set("fail", gpu_uuid(0))
            node.write_config(config(2))
            supervisor.wait_log("it is not known whether clients are connected")
            node.mps_faults.clear("fail", gpu_uuid(0))
            supervisor.wait_log("1 client still connected")
            assert started_at(server)
            assert supervisor.compute_mode(0) == EXCLUSIVE_PROCESS


# A supervisor that is taken away while pods hold shares.


def taken_away(node: Node, supervisor: Supervisor) -> None:
    """Its pods hold a share, it ends, MPS is taken out of the config, the pods end."""
    node.run(GPU)
    wait_healthy(node, shares(0, 1))
    pods = [node.pod(f"inference-{n}", {GPU: 1}) for n in range(2)]
    assert len({unit_of(one) for ids in node.kubelet.held()[GPU].values() for one in ids}) == 2
    assert supervisor.stop() == 0
    assert [supervisor.compute_mode(gpu) for gpu in (0, 1)] == [DEFAULT] * 2
    node.write_config(config(3, kind="timeSlicing"))
    for pod in pods:
        node.kubelet.end(pod.uid)
    node.wait_status(lambda status: "MPS still has this GPU" in str(status["resources"][0]["unhealthy"]), 40)
    assert record_of(node, 0).exists()
    assert record_of(node, 1).exists()


def test_the_next_supervisor_gives_up_what_one_that_was_taken_away_still_had(driver: str) -> None:
    with node_of(driver, config()) as node, Supervisor(node) as supervisor:
        taken_away(node, supervisor)
        supervisor.start()
        wait_healthy(node, shares(0, 1, count=3))
        assert [supervisor.compute_mode(gpu) for gpu in (0, 1)] == [DEFAULT] * 2


def test_without_another_supervisor_the_records_are_removed_by_hand(driver: str) -> None:
    with node_of(driver, config()) as node, Supervisor(node) as supervisor:
        taken_away(node, supervisor)
        record_of(node, 0).unlink()
        wait_healthy(node, shares(0, count=3))
        record_of(node, 1).unlink()
        wait_healthy(node, shares(0, 1, count=3))


def test_a_stop_before_driver_and_kubelet_have_answered_ends_what_an_earlier_supervisor_left(driver: str) -> None:
    with node_of(driver, config()) as node, Supervisor(node) as supervisor:
        daemon, _ = supervisor.wait_serving(0)
        supervisor.wait_serving(1)
        supervisor.stop(signal.SIGKILL)
        if driver == "nvml":
            node.control.append("block nvmlDeviceGetCount 30")
        else:
            node.node_file.write_text("driver: {error: 9}")
        supervisor.start()
        supervisor.wait_started()
        assert supervisor.stop() == 0
        assert not started_at(daemon)
        assert [supervisor.compute_mode(gpu) for gpu in (0, 1)] == [DEFAULT] * 2
