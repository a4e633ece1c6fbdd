"""How a control daemon is started, limited, asked, followed in our log and ended: what it was told, and by whom."""

import signal
import time
from pathlib import Path

import pytest

from deviceplugin.mps.logs import LARGEST_BYTES
from deviceplugin.mps.proc import started_at
from tests.serving.harness import DRIVERS, gpu_uuid
from tests.serving.supervisor import Supervisor
from tests.serving.test_supervisor import DEFAULT, GPU, config, node_of, shares, wait_healthy
from tests.serving.test_supervisor_news import kept

pytestmark = pytest.mark.parametrize("driver", DRIVERS)

SET = ["set_default_device_pinned_mem_limit 0 3840M", "set_default_active_thread_percentage 25"]
GET = ["get_default_active_thread_percentage", "get_default_device_pinned_mem_limit 0"]


def environ(pid: int) -> dict[str, str]:
    words = Path(f"/proc/{pid}/environ").read_text().split("\0")
    return dict(word.split("=", 1) for word in words if word)


def test_in_the_foreground_as_our_child_for_one_gpu_by_uuid(driver: str) -> None:
    with node_of(driver, config()) as node, Supervisor(node) as supervisor:
        for gpu in (0, 1):
            pid, _ = supervisor.wait_serving(gpu)
            words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
            assert (words[0], words[-3:-1]) == ("nvidia-cuda-mps-control", ["-f", "-multiuser-server"])
            assert supervisor.process is not None
            assert f"PPid:\t{supervisor.process.pid}\n" in Path(f"/proc/{pid}/status").read_text()
            found = environ(pid)
            directory = node.mps_root / GPU / gpu_uuid(gpu)
            assert found["CUDA_VISIBLE_DEVICES"] == gpu_uuid(gpu)
            assert found["CUDA_MPS_PIPE_DIRECTORY"] == str(directory / "pipe")
            assert found["CUDA_MPS_LOG_DIRECTORY"] == str(directory / "log")


def test_limits_are_set_read_back_and_no_server_has_others_before_it_serves(driver: str) -> None:
    with node_of(driver, config()) as node, Supervisor(node) as supervisor:
        supervisor.wait_serving(0)
        asked = supervisor.asked()
        first = asked.index(SET[0])
        assert asked[first : first + 4] == SET + GET
        assert asked[:first] == ["get_server_list", *GET]
        node.write_config(config(kind="timeSlicing"))
        supervisor.wait(lambda: supervisor.asked()[-1] == "quit -t 0")


def test_limits_that_do_not_take_keep_the_daemon_out_of_service(driver: str) -> None:
    with node_of(driver, config()) as node:
        node.mps_faults.set("forget", gpu_uuid(0))
        with Supervisor(node) as supervisor:
            node.run(GPU)
            supervisor.wait_log("its default active thread percentage is 100.0, not 25, although it was set")
            wait_healthy(node, shares(1))
            node.mps_faults.clear("forget", gpu_uuid(0))
            wait_healthy(node, shares(0, 1))


def test_where_a_container_may_have_several_shares_the_daemon_has_no_ceiling(driver: str) -> None:
    text = config().replace("{mps: {", "{mps: {failRequestsGreaterThanOne: false, ")
    with node_of(driver, text) as node, Supervisor(node) as supervisor:
        node.run(GPU)
        wait_healthy(node, shares(0, 1))
        pid, _ = supervisor.wait_serving(0)
        assert not {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"} & environ(pid).keys()
        assert [supervisor.ask(question) for question in GET] == ["100.0", "0M"]
        assert "advisory" in kept(node.wait_status(lambda status: kept(status).get("serves")))["limits"]


def test_a_compute_mode_that_cannot_be_set_keeps_its_gpu_out_of_service(driver: str) -> None:
    with node_of(driver, config()) as node:
        blocked = node.node_file.with_name(f"{node.node_file.name}.compute-modes") / gpu_uuid(0)
        if driver == "nvml":
            node.control.append("fail nvmlDeviceSetComputeMode 4 0")
        else:
            blocked.with_suffix(".new").mkdir(parents=True)
        with Supervisor(node) as supervisor:
            node.run(GPU)
            wait_healthy(node, shares(1))
            supervisor.wait_log("SYS_ADMIN to set compute modes" if driver == "nvml" else "can't be written")
            assert not (node.mps_root / ".supervisor" / "compute-mode" / gpu_uuid(0)).exists()
            node.control.clear()
            if driver == "simulated":
                blocked.with_suffix(".new").rmdir()
            wait_healthy(node, shares(0, 1))


def test_starts_that_fail_back_off(driver: str) -> None:
    with node_of(driver, config()) as node:
        node.mps_faults.set("refuse", gpu_uuid(0))
        with Supervisor(node) as supervisor:
            node.run(GPU)
            node.wait_status(lambda status: kept(status).get("restarts", 0) >= 1)
            some_time = time.monotonic() + 8
            supervisor.wait(lambda: time.monotonic() > some_time)
            # After 1, 2, 4 and 8 s, not at each look.
            assert 2 <= kept(node.status())["restarts"] <= 4


def test_a_daemon_that_hangs_is_ended_and_its_clients_keep_their_server(driver: str) -> None:
    with node_of(driver, config()) as node, Supervisor(node) as supervisor:
        before, other = supervisor.wait_serving(0), supervisor.wait_serving(1)
        with supervisor.client() as client:
            server, _, _ = client.wait_server()
            node.mps_faults.set("hang", gpu_uuid(0))
            supervisor.wait(lambda: not started_at(before[0]))
            node.mps_faults.clear("hang", gpu_uuid(0))
            supervisor.wait_serving(0, other_than=before)
            assert started_at(server)
            assert supervisor.daemon(1) == other


def test_a_chatty_daemon_fills_neither_the_node_nor_our_log(driver: str) -> None:
    with node_of(driver, config()) as node, Supervisor(node) as supervisor:
        supervisor.wait_serving(0)
        log = supervisor.pipes(0).parent / "log" / "control.log"
        supervisor.wait_log(f"GPU 0 ({GPU}): control.log: [")
        node.mps_faults.set("chatty", gpu_uuid(0))
        for _ in range(2 * LARGEST_BYTES // (64 << 10)):
            supervisor.ask("get_server_list")
        node.mps_faults.clear("chatty", gpu_uuid(0))
        supervisor.wait_log("grows by more than is logged here")
        supervisor.wait(lambda: log.stat().st_size <= LARGEST_BYTES)
        assert len(supervisor.log) < LARGEST_BYTES


def test_an_update_of_the_plugin_touches_no_daemon_and_no_client(driver: str) -> None:
    with node_of(driver, config()) as node, Supervisor(node) as supervisor:
        node.run(GPU)
        wait_healthy(node, shares(0, 1))
        before = supervisor.wait_serving(0), supervisor.wait_serving(1)
        with supervisor.client() as client:
            server, _, _ = client.wait_server()
            assert node.stop(signal.SIGTERM) == 0
            node.start()
            node.wait_ready()
            wait_healthy(node, shares(0, 1))
            assert (supervisor.daemon(0), supervisor.daemon(1)) == before
            assert started_at(server)
        assert supervisor.compute_mode(0) != DEFAULT
