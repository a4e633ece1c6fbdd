"""The stand-in is as unkind as the real program; numbers as in its header."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mps_standin import Client, ControlDaemon, Faults, ask, install
from tests.mps_standin.program import NOT_FOUND, RUNNING


@pytest.fixture(scope="module")
def binary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(tmp_path_factory.mktemp("bin"))


@pytest.fixture
def daemon(binary: Path, tmp_path: Path) -> Iterator[ControlDaemon]:
    with ControlDaemon(binary, tmp_path) as one:
        yield one


def server_of(daemon: ControlDaemon) -> str:
    return daemon.ask("get_server_list")[1]


def alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists() and "Z" not in Path(f"/proc/{pid}/stat").read_text().split()[2]


def test_2_it_says_who_it_is(daemon: ControlDaemon) -> None:
    assert daemon.process is not None
    assert int((daemon.pipes / "nvidia-cuda-mps-control.pid").read_text()) == daemon.process.pid
    assert {"control", "control_privileged", "control_lock"} <= {path.name for path in daemon.pipes.iterdir()}


def test_1_in_the_background_too(binary: Path, tmp_path: Path) -> None:
    one = ControlDaemon(binary, tmp_path)
    assert one.start_in_background() == 0
    assert one.ask("get_default_active_thread_percentage") == (0, "100.0")
    assert one.ask("quit") == (0, "")
    assert one.ask("get_server_list") == (1, NOT_FOUND)


def test_3_a_second_one_is_refused_and_a_dead_one_replaced(binary: Path, tmp_path: Path) -> None:
    with ControlDaemon(binary, tmp_path) as first:
        second = ControlDaemon(binary, tmp_path)
        second.start()
        assert second.wait_exit() == (1, RUNNING)
        first.kill()
        assert (first.pipes / "control").exists()
        assert first.ask("get_server_list") == (1, NOT_FOUND)
        with ControlDaemon(binary, tmp_path) as third:
            assert third.ask("get_server_list") == (0, "")


def test_4_without_a_daemon(binary: Path, tmp_path: Path) -> None:
    assert ask(binary, tmp_path, "get_server_list") == (1, NOT_FOUND)


def test_5_a_long_path(binary: Path, tmp_path: Path) -> None:
    daemon = ControlDaemon(binary, tmp_path / ("x" * 100))
    daemon.start()
    assert daemon.wait_exit() == (1, NOT_FOUND)


def test_6_one_server_for_one_user_at_a_time(daemon: ControlDaemon) -> None:
    alice, second = Client(daemon.pipes, 1000), Client(daemon.pipes, 1000)
    pid, _, _ = alice.wait_server()
    assert second.wait_server()[0] == pid
    assert "NEW CLIENT 4242 from user 1000: Server already exists" in daemon.log
    bob = Client(daemon.pipes, 2000, pid=4343)
    assert bob.waits()
    assert daemon.log.endswith("NEW CLIENT 4343 from user 2000: Server is not ready, push client to pending list\n")
    assert daemon.ask(f"get_client_list {pid}") == (0, "4242\n4242")
    alice.leave()
    assert bob.waits()
    second.leave()
    assert bob.wait_server()[0] != pid
    assert f"Server {pid} exited with status 0" in daemon.log
    assert daemon.log.endswith(f"NEW SERVER {server_of(daemon)}: Ready\n")
    bob.leave()


def test_6_a_server_outlives_its_clients(daemon: ControlDaemon) -> None:
    with Client(daemon.pipes) as client:
        pid, _, _ = client.wait_server()
    assert server_of(daemon) == str(pid)
    assert daemon.ask(f"get_client_list {pid}") == (0, "")


def test_7_one_server_for_all_users(binary: Path, tmp_path: Path) -> None:
    if os.getuid() != 0:
        daemon = ControlDaemon(binary, tmp_path, "-multiuser-server")
        daemon.start()
        assert daemon.wait_exit() == (1, "-multiuser-server needs the superuser")
        return
    with (
        ControlDaemon(binary, tmp_path, "-multiuser-server") as daemon,
        Client(daemon.pipes, 1000) as alice,
        Client(daemon.pipes, 2000) as bob,
    ):
        assert alice.wait_server()[0] == bob.wait_server()[0]


def test_7_not_in_old_ones(binary: Path, tmp_path: Path) -> None:
    daemon = ControlDaemon(binary, tmp_path, "-multiuser-server", env={"MPS_STANDIN_OLD": "1"})
    daemon.start()
    status, said = daemon.wait_exit()
    assert status == 1
    assert said.startswith("usage:")


def test_8_defaults_reach_the_next_server_only(daemon: ControlDaemon) -> None:
    with Client(daemon.pipes) as first:
        assert first.wait_server()[1:] == (100, 0)
        assert daemon.ask("set_default_active_thread_percentage 25") == (0, "25.0")
        assert daemon.ask("set_default_device_pinned_mem_limit 0 3840M") == (0, "")
        with Client(daemon.pipes) as second:
            assert second.wait_server()[1:] == (100, 0)
    assert daemon.ask(f"shutdown_server {server_of(daemon)}") == (0, "")
    with Client(daemon.pipes) as third:
        assert third.wait_server()[1:] == (25, 3840)


def test_9_memory_is_read_back_rounded(daemon: ControlDaemon) -> None:
    daemon.ask("set_default_device_pinned_mem_limit 0 3840M")
    daemon.ask("set_default_device_pinned_mem_limit 7 900M")
    assert daemon.ask("get_default_device_pinned_mem_limit 0") == (0, "3G")
    assert daemon.ask("get_default_device_pinned_mem_limit 7") == (0, "900M")


def test_9_first_limits_stand_in_the_environment(binary: Path, tmp_path: Path) -> None:
    env = {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "25", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=3840M"}
    with ControlDaemon(binary, tmp_path, env=env) as daemon, Client(daemon.pipes) as client:
        assert client.wait_server()[1:] == (25, 3840)


def test_14_processes_are_known_by_their_names(daemon: ControlDaemon) -> None:
    with Client(daemon.pipes) as client:
        pid, _, _ = client.wait_server()
        assert daemon.process is not None
        for one, name in ((daemon.process.pid, "nvidia-cuda-mps-control"), (pid, "nvidia-cuda-mps-server")):
            assert Path(f"/proc/{one}/cmdline").read_text().partition("\0")[0] == name
        assert f"CUDA_MPS_PIPE_DIRECTORY={daemon.pipes}\0" in Path(f"/proc/{pid}/environ").read_text()


def test_10_a_client_can_only_take_less(daemon: ControlDaemon) -> None:
    daemon.ask("set_default_active_thread_percentage 50")
    daemon.ask("set_default_device_pinned_mem_limit 0 2048M")
    with (
        Client(daemon.pipes, percentage=10, memory_mib=100) as modest,
        Client(daemon.pipes, percentage=90, memory_mib=9999) as greedy,
    ):
        assert modest.wait_server()[1:] == (10, 100)
        assert greedy.wait_server()[1:] == (50, 2048)


def test_11_quit_waits_for_clients(daemon: ControlDaemon) -> None:
    client = Client(daemon.pipes)
    pid, _, _ = client.wait_server()
    with pytest.raises(Exception, match="timed out"):
        ask(daemon.bin, daemon.pipes, "quit", timeout_s=0.5)
    with Client(daemon.pipes) as late:
        assert late.waits()
    assert alive(pid)
    client.leave()
    assert daemon.wait_exit()[0] == 0
    assert not alive(pid)


def test_11_quit_with_a_time_limit_does_not(daemon: ControlDaemon) -> None:
    with Client(daemon.pipes) as client:
        pid, _, _ = client.wait_server()
        assert daemon.ask("quit -t 0") == (0, "")
        assert daemon.wait_exit()[0] == 0
        assert not alive(pid)


def test_11_a_server_is_ended_by_force(daemon: ControlDaemon) -> None:
    with Client(daemon.pipes) as client:
        pid, _, _ = client.wait_server()
        assert daemon.ask(f"shutdown_server {pid} -f") == (0, "")
        assert not alive(pid)


def test_12_a_server_outlives_a_killed_daemon(binary: Path, tmp_path: Path) -> None:
    with ControlDaemon(binary, tmp_path) as daemon, Client(daemon.pipes) as client:
        pid, _, _ = client.wait_server()
        daemon.kill()
        assert alive(pid)
        with ControlDaemon(binary, tmp_path) as other:
            assert other.ask("get_server_list") == (0, "")
        os.kill(pid, 9)


def test_faults(binary: Path, tmp_path: Path) -> None:
    faults = Faults(tmp_path / "faults")
    faults.set("refuse", "elsewhere")
    with ControlDaemon(binary, tmp_path, faults=faults) as daemon:
        daemon.ask("set_default_active_thread_percentage 25")
        faults.set("deny")
        assert daemon.ask("set_default_active_thread_percentage 50") == (0, "50.0")
        assert daemon.ask("get_default_active_thread_percentage") == (0, "25.0")
        faults.set("forget")
        assert daemon.ask("get_default_active_thread_percentage") == (0, "100.0")
        faults.set("fail")
        assert daemon.ask("get_server_list")[0] == 1
        faults.set("hang")
        with pytest.raises(Exception, match="timed out"):
            ask(daemon.bin, daemon.pipes, "get_server_list", timeout_s=0.5)
        faults.clear("hang")
        faults.clear("fail")
        assert daemon.ask("get_server_list")[0] == 0
    faults.set("refuse")
    again = ControlDaemon(binary, tmp_path, faults=faults)
    again.start()
    assert again.wait_exit()[0] == 1
