"""What an operator sees of the MPS supervisor in the plugin's status and in the logs."""

import os
import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.project import ROOT
from tests.serving.harness import DRIVERS, Node, gpu_uuid, t4s
from tests.serving.supervisor import Supervisor
from tests.serving.test_supervisor import ARGS, GPU, MPS, config, node_of, shares, wait_healthy

pytestmark = pytest.mark.parametrize("driver", DRIVERS)


def kept(status: dict[str, Any], gpu: int = 0) -> dict[str, Any]:
    """What the supervisor says of a GPU; empty without a word."""
    return next((one["supervisor"] or {} for one in status["mps"] if one["gpu_uuid"] == gpu_uuid(gpu)), {})


def test_status_shows_what_runs_since_when_with_which_limits_and_restarts(driver: str) -> None:
    with node_of(driver, config()) as node, Supervisor(node) as supervisor:
        node.run(GPU)
        wait_healthy(node, shares(0, 1))
        first, _ = supervisor.wait_serving(0)
        said = kept(node.wait_status(lambda status: kept(status).get("serves")))
        assert (said["daemon"], said["pid"], said["restarts"], said["problem"]) == (f"GPU 0 ({GPU})", first, 0, "")
        assert said["limits"] == "3840M and 25 % of the threads for each process"
        assert said["since"].startswith("20")
        os.kill(first, signal.SIGKILL)
        said = kept(node.wait_status(lambda status: kept(status).get("restarts") and kept(status)["serves"]))
        assert said["pid"] == supervisor.wait_serving(0)[0]
        shown = node.command("status", f"--status-socket={node.status_socket}").stdout
        assert (
            f"  GPU 0 ({GPU}): serves, pid {said['pid']} since {said['since']}, {said['limits']}, 1 restart\n" in shown
        )
        assert "note: a control daemon serves one user id at a time unless it runs with -multiuser-server" in shown
        assert supervisor.stop() == 0
        node.wait_status(lambda status: not kept(status))
        shown = node.command("status", f"--status-socket={node.status_socket}").stdout
        assert re.search(rf"  GPU 0 \({GPU}\): no MPS supervisor says anything of it; daemon not running: ", shown)


def test_the_reason_of_unhealthy_shares_is_the_supervisors_too(driver: str) -> None:
    with node_of(driver, config()) as node:
        node.mps_faults.set("refuse", gpu_uuid(0))
        with Supervisor(node):
            node.run(GPU)
            wait_healthy(node, shares(1))
            reason = "the MPS supervisor says: the control daemon ended with status 1: Failed to initialize"
            node.wait_status(lambda status: reason in str(status["resources"][0]["unhealthy"]))
            said = kept(node.status())
            assert (said["pid"], said["serves"], said["limits"]) == (0, False, "")


def test_a_change_that_waits_says_for_whom(driver: str) -> None:
    with node_of(driver, config()) as node, Supervisor(node) as supervisor:
        node.run(GPU)
        wait_healthy(node, shares(0, 1))
        with supervisor.client(0) as client:
            client.wait_server()
            node.write_config(config(2))
            node.wait_status(lambda status: "1 client still connected" in kept(status).get("problem", ""))
            node.write_config(config(kind="timeSlicing"))
            node.wait_status(lambda status: "-> no MPS): 1 client still connected" in kept(status).get("problem", ""))
        wait_healthy(node, shares(0, 1))
        node.wait_status(lambda status: not status["mps"])


def waits(node: Node) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = kept(node.status()).get("waiting", [])
    return found


def test_a_client_of_another_user_that_waits_is_shown_until_it_waits_no_longer(driver: str) -> None:
    args = ("--mps-multiuser=false",)
    with node_of(driver, config(devices="[0]")) as node, Supervisor(node, *args) as supervisor:
        node.run(MPS)
        supervisor.wait_serving(0, MPS)
        with supervisor.client(0, MPS, uid=1000, pid=os.getpid()) as first:
            first.wait_server()
            with supervisor.client(0, MPS, uid=2000, pid=os.getpid()) as second:
                said = kept(node.wait_status(lambda status: kept(status).get("waiting")))
                (one,) = said["waiting"]
                assert (one["pid"], one["uid"]) == (os.getpid(), 2000)
                assert "runAsUser" in said["advice"]
                shown = node.command("status", f"--status-socket={node.status_socket}").stdout
                assert f"WAITS for a server: process {os.getpid()} of user 2000, since {one['since']}\n" in shown
                assert "serves one user id at a time" in shown
                # The next supervisor finds the wait in the log that there is, and says it too.
                supervisor.stop(signal.SIGKILL)
                supervisor.start()
                supervisor.wait(lambda: supervisor.log.count("of user 2000 waits for an MPS server since") == 2)
                first.leave()
                second.wait_server()
                supervisor.wait_log("of user 2000 waits no longer")
                node.wait_status(lambda status: kept(status).get("serves") and not kept(status)["waiting"])
        assert supervisor.log.count("of user 2000 waits for an MPS server since") == 2


def test_with_a_server_for_all_users_nobody_waits(driver: str) -> None:
    with node_of(driver, config()) as node, Supervisor(node) as supervisor:
        supervisor.wait_serving(0)
        with supervisor.client(uid=1000) as first, supervisor.client(uid=2000) as second:
            assert first.wait_server()[0] == second.wait_server()[0]
            supervisor.wait_log("NEW CLIENT 4242 from user 2000: Server already exists")
            assert "waits for an MPS server" not in supervisor.log


def test_while_a_change_waits_for_clients_the_daemon_is_not_pestered(driver: str) -> None:
    with node_of(driver, config(devices="[0]")) as node, Supervisor(node) as supervisor:
        first = supervisor.wait_serving(0, MPS)
        with supervisor.client(0, MPS) as client:
            client.wait_server()
            node.write_config(config(2, devices="[0]"))
            supervisor.wait_log("1 client still connected")
            before = len(supervisor.asked(0, MPS))
            some_time = time.monotonic() + 6
            supervisor.wait(lambda: time.monotonic() > some_time)
            # Clients every 3 s by two questions, the limits every 5 s by three: not everything 4 times a second.
            assert 2 <= len(supervisor.asked(0, MPS)) - before <= 12
        supervisor.wait_serving(0, MPS, other_than=first)


def test_the_supervisor_of_eight_gpus_is_small(driver: str) -> None:
    """About 50 MiB; what the chart requests has to do for its daemons too."""
    *_, daemon_set = yaml.safe_load_all((ROOT / "deploy/static/nvidia-device-plugin-mps.yml").read_text())
    (container,) = daemon_set["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["requests"]["memory"] == "64Mi"
    with Node(t4s(8), config(), driver=driver, args=ARGS, mps=True) as node, Supervisor(node) as supervisor:
        for gpu in range(8):
            supervisor.wait_serving(gpu)
        assert supervisor.process is not None
        status = Path(f"/proc/{supervisor.process.pid}/status").read_text()
        rss_kib = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:"))
        assert 20 < rss_kib / 1024 < 56
