"""Health through the real daemon: recovery, bursts, a driver that hangs, is let go of, or is upgraded (issue 4)."""

import os
import time
from typing import Any

import pytest

from tests.serving.harness import MIG_NODE, TWO_T4, Node, deadline, gpu_uuid
from tests.serving.test_health_golden import Marker

GPU = "nvidia.com/gpu"
QUICK = "version: v1\nhealth: {quietTime: 1s, pollInterval: 1s}\n"
SLOW = "version: v1\nhealth: {quietTime: 1h, pollInterval: 1s}\n"


def _entry(document: dict[str, Any], uuid: str) -> dict[str, Any]:
    return next((one for one in document["health"]["units"] if one["uuid"] == uuid), {})


def test_a_gpu_leaves_service_says_why_and_comes_back(driver: str) -> None:
    with Node(config=QUICK, driver=driver).run() as node:
        node.wait_ready()
        Marker(node).heard()
        node.inject("xid 0 94")
        node.kubelet.wait_for(lambda: node.healthy() == {gpu_uuid(1)})
        node.wait_log(f"{gpu_uuid(0)}, Tesla T4) is unhealthy: Xid 94 (contained memory error); awaited: 1 s without")
        node.kubelet.wait_for(lambda: len(node.healthy()) == 2)
        node.wait_log(f"{gpu_uuid(0)}, Tesla T4) is healthy again")
        # One line for each change, and one list for each.
        assert sum("is unhealthy" in line for line in node.log_lines) == 1
        assert len(node.kubelet.resources[GPU].lists) == 3


def test_what_waits_for_a_reset_does_not_recover_by_time_and_status_says_so(driver: str) -> None:
    with Node(config=QUICK, driver=driver).run() as node:
        node.wait_ready()
        Marker(node).heard()
        node.inject("xid 0 79")
        node.wait_status(lambda document: (_entry(document, gpu_uuid(0)).get("quiet_for_s") or 0) > 2)
        assert node.healthy() == {gpu_uuid(1)}
        text = node.command("status", f"--status-socket={node.status_socket}").stdout
        assert f"UNHEALTHY {gpu_uuid(0)}: Xid 79 (GPU has fallen off the bus), since 20" in text
        assert "awaited: a reset of the GPU" in text
        node.inject("lost 0")
        node.wait_status(lambda document: len(_entry(document, gpu_uuid(0)).get("causes", [])) == 2)
        node.inject("ok 0")
        node.kubelet.wait_for(lambda: len(node.healthy()) == 2)


def test_remapping_that_awaits_a_reset_is_found_by_looking(driver: str) -> None:
    text = TWO_T4.replace("model=t4", "model=a100-40gb")
    with Node(text, QUICK, driver=driver).run() as node:
        node.wait_ready()
        node.inject("remapped 1 1 0")
        node.kubelet.wait_for(lambda: node.healthy() == {gpu_uuid(0)})
        assert "a row remapping awaits a reset" in _entry(node.status(), gpu_uuid(1))["reason"]
        node.inject("remapped 1 0 0")
        node.kubelet.wait_for(lambda: len(node.healthy()) == 2)


def test_an_edit_that_ignores_the_xid_brings_its_gpu_back_at_once(driver: str) -> None:
    with Node(config=SLOW, driver=driver).run() as node:
        node.wait_ready()
        Marker(node).heard()
        node.inject("xid 0 79", "xid 1 94")
        node.kubelet.wait_for(lambda: not node.healthy())
        node.write_config("version: v1\nhealth: {xids: {ignore: [79]}, quietTime: 1h}\n")
        node.kubelet.wait_for(lambda: node.healthy() == {gpu_uuid(0)})


def test_a_held_device_stays_listed_and_its_pod_is_told(driver: str) -> None:
    with Node(config=SLOW, driver=driver).run() as node:
        node.wait_ready()
        Marker(node).heard()
        pod = node.pod("p", {GPU: 1})
        (held,) = pod.ids(GPU)
        node.inject(f"xid {0 if held == gpu_uuid(0) else 1} 79")
        node.kubelet.wait_for(lambda: held not in node.healthy())
        assert held in node.listed()
        assert node.kubelet.pod_health(pod.uid)["main"][GPU][held] == "Unhealthy"
        assert node.pod("q", {GPU: 1}).phase == "Running"


def test_an_instance_of_a_mig_gpu_with_all_its_replicas(driver: str) -> None:
    config = SLOW + (
        "flags: {migStrategy: mixed}\n"
        "sharing: {timeSlicing: {resources: [{name: nvidia.com/mig-3g.20gb, replicas: 3}]}}\n"
    )
    names = ("nvidia.com/gpu", "nvidia.com/mig-3g.20gb", "nvidia.com/mig-1g.5gb")
    with Node(MIG_NODE, config, driver=driver).run(*names) as node:
        node.wait_ready()
        Marker(node).heard()
        node.inject("xid 1 48 gi=2 ci=0")
        node.kubelet.wait_for(lambda: not node.healthy(names[1]))
        assert len(node.listed(names[1])) == 3
        assert len(node.healthy(names[0])) == len(node.healthy(names[2])) == 1
        node.inject("xid 1 48")
        node.kubelet.wait_for(lambda: not node.healthy(names[2]))
        assert node.healthy(names[0]) == {gpu_uuid(0)}


def test_ten_thousand_events_cost_one_list(driver: str) -> None:
    """The stand-in's driver drops the oldest of what does not fit its queue, as the real one may."""
    with Node(config=SLOW, driver=driver).run() as node:
        node.wait_ready()
        Marker(node).heard()
        before = len(node.kubelet.resources[GPU].lists)
        node.inject(*["xid 0 94"] * 10_000)
        node.kubelet.wait_for(lambda: node.healthy() == {gpu_uuid(1)})
        # Once this one is known of, all before it are.
        node.inject("xid 1 79")
        node.kubelet.wait_for(lambda: not node.healthy())
        assert len(node.kubelet.resources[GPU].lists) == before + 2


@pytest.mark.parametrize("call", ["nvmlEventSetWait", "nvmlDeviceGetTotalEccErrors"])
def test_a_watch_that_hangs_fails_live_after_a_settable_time(call: str) -> None:
    """H9: and everything that is served goes on, and SIGTERM ends it in time."""
    config = "version: v1\nhealth: {pollInterval: 1s, liveAfter: 5s}\n"
    with Node(config=config, driver="nvml").run() as node:
        node.wait_ready()
        Marker(node).heard()
        node.control.append(f"block {call} 60")
        began = time.monotonic()
        document = node.wait_status(lambda document: not document["live"]["ok"], timeout=30)
        assert time.monotonic() - began >= 5
        assert "health is not watched (limit 5 s, health.liveAfter)" in document["live"]["reasons"][0]
        probe = node.command("status", "--live", f"--status-socket={node.status_socket}")
        assert (probe.returncode, "has not" in probe.stderr) == (1, True)
        with deadline(1.0):
            assert node.pod("p", {GPU: 1}).phase == "Running"
        with deadline(2.5):
            assert node.stop() == 0


def test_a_wait_that_fails_for_ever_costs_no_list_and_no_cpu() -> None:
    """Golden plain-wait-error-stays: NVIDIA's plugin sends 42,000 lists in 3 s."""
    with Node(config=SLOW, driver="nvml").run() as node:
        node.wait_ready()
        Marker(node).heard()
        node.inject("waiterr 15")
        node.wait_log("events of the driver can't be waited for")
        assert node.process is not None
        before = _cpu_seconds(node.process.pid)
        looks_until = time.monotonic() + 3
        node.wait_status(lambda _: time.monotonic() > looks_until)
        # What remains is mostly the status that this test keeps asking for.
        assert _cpu_seconds(node.process.pid) - before < 1.0
        assert len(node.kubelet.resources[GPU].lists) == 1
        assert "GPU is lost" in node.status()["health"]["events_problem"]
        node.inject("waitok")
        node.wait_log("events of the driver are heard again", timeout=40)


def _cpu_seconds(pid: int) -> float:
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# Release and upgrade (statement 7).


def test_released_the_driver_is_closed_and_taken_up_again_on_request(driver: str) -> None:
    with Node(config=QUICK, driver=driver).run() as node:
        node.wait_ready()
        Marker(node).heard()
        node.inject("xid 0 79")
        node.kubelet.wait_for(lambda: node.healthy() == {gpu_uuid(1)})
        sockets = node.sockets()
        done = _release(node)
        assert (done.returncode, "the driver is released" in done.stdout) == (0, True), done
        node.kubelet.wait_for(lambda: not node.healthy())
        document = node.status()
        assert document["health"]["released"]
        (resource,) = document["resources"]
        assert all("released to the operator" in reason for reason in resource["unhealthy"].values())
        # 79 waits for a reset, and this says that there was one.
        ended = _release(node, "--end", "--reset-done")
        assert (ended.returncode, "every GPU counts as reset" in ended.stdout) == (0, True), ended
        node.kubelet.wait_for(lambda: len(node.healthy()) == 2)
        assert node.sockets() == sockets
        assert len(node.kubelet.registrations) == 1
        again = _release(node, "--end")
        assert (again.returncode, "not released" in again.stderr) == (1, True), again


def test_a_release_ends_by_itself_and_is_no_reset(driver: str) -> None:
    with Node(config=QUICK, driver=driver).run() as node:
        node.wait_ready()
        Marker(node).heard()
        node.inject("xid 0 79")
        node.kubelet.wait_for(lambda: node.healthy() == {gpu_uuid(1)})
        assert _release(node, "--for", "1").returncode == 0
        node.wait_log("the driver is taken up again")
        node.kubelet.wait_for(lambda: node.healthy() == {gpu_uuid(1)})
        assert "a reset of the GPU" in _entry(node.status(), gpu_uuid(0))["awaited"]


def test_while_released_the_process_has_no_handle_and_sees_nothing() -> None:
    """Another driver behind it, and other GPUs: it finds out when it takes the driver up."""
    with Node(config=QUICK, driver="nvml").run() as node:
        node.wait_ready()
        assert _release(node).returncode == 0
        node.control.append("fail * 1", "init 9")
        node.control.clear()
        assert _release(node, "--end").returncode == 0
        node.kubelet.wait_for(lambda: len(node.healthy()) == 2)


def test_a_driver_that_hangs_is_let_go_of_when_it_comes_back() -> None:
    with Node(config=QUICK, driver="nvml").run() as node:
        node.wait_ready()
        node.control.append("block nvmlDeviceGetTotalEccErrors 3600")
        node.wait_status(lambda document: document["driver"]["unanswered_for_s"] > 0.5)
        refused = _release(node)
        assert (refused.returncode, "has not come back" in refused.stderr) == (1, True), refused
        node.control.clear()
        node.wait_log("the driver is released")
        node.kubelet.wait_for(lambda: not node.healthy())


def test_after_an_upgrade_of_the_driver_the_process_starts_itself_afresh() -> None:
    """Reports J2, design 8: the library can't be loaded again in place; the same process id, ids and sockets."""
    with Node(config=QUICK, driver="nvml").run() as node:
        node.wait_ready()
        assert node.process is not None
        ids, names = node.listed(), node.sockets().keys()
        assert _release(node).returncode == 0
        node.set_node(TWO_T4.replace("570.133.20", "580.65.06"))
        assert _release(node, "--end").returncode == 0
        node.wait_log("the driver was upgraded: this process starts itself afresh")
        document = node.wait_status(lambda document: document["driver"]["version"] == "580.65.06", timeout=30)
        assert document["plugin"]["pid"] == node.process.pid
        node.kubelet.wait_for(lambda: len(node.healthy()) == 2, timeout=20)
        assert node.listed() == ids
        assert node.sockets().keys() == names
        assert node.stop() == 0


def test_an_upgrade_that_no_new_process_could_use_either_is_waited_out() -> None:
    """E.g. the container still has the old libraries: all Unhealthy, not a restart after the other."""
    with Node(config=QUICK, driver="nvml").run() as node:
        node.wait_ready()
        node.control.append("fail nvmlDeviceGetHandleByIndex 999", "init 18")
        node.kubelet.wait_for(lambda: not node.healthy())
        node.wait_log("a new process can't open the driver either; trying again in 2 s")
        node.wait_log("a new process can't open the driver either; trying again in 4 s")
        assert "starts itself afresh" not in node.log
        assert len(node.listed()) == 2
        node.control.clear()
        node.kubelet.wait_for(lambda: len(node.healthy()) == 2, timeout=20)


def _release(node: Node, *words: str) -> Any:
    return node.command("release", f"--status-socket={node.status_socket}", *words)
