"""MPS shares on a node: never Healthy without a control daemon that answers with the right limits."""

import re

import pytest

from tests.serving.harness import DRIVERS, TWO_T4, Node, envs, gpu_uuid

GPU, MPS = "nvidia.com/gpu", "nvidia.com/gpu.mps"
ARGS = ("--mps-root=/run/nvidia/mps",)
ALL = "version: v1\nsharing: {mps: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}\n"
ONE = "version: v1\nsharing: {mps: {resources: [{name: nvidia.com/gpu, devices: [0], replicas: 4}]}}\n"

pytestmark = pytest.mark.parametrize("driver", DRIVERS)


def shares(*gpus: int) -> frozenset[str]:
    return frozenset(f"{gpu_uuid(gpu)}::{n}" for gpu in gpus for n in range(4))


def test_a_dead_daemon_takes_its_own_shares_and_they_come_back(driver: str) -> None:
    with (
        Node(TWO_T4, ALL, driver=driver, args=ARGS, mps=True) as node,
        node.mps_daemon(0) as first,
        node.mps_daemon(1) as second,
    ):
        first.limit(25, 3840)
        second.limit(25, 3840)
        node.run(GPU)
        node.kubelet.wait_for(lambda: node.healthy() == shares(0, 1), 15)
        pod = node.pod("inference", {GPU: 1})
        assert envs(pod)["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=3840M"
        first.kill()
        node.kubelet.wait_for(lambda: node.healthy() == shares(1), 15)
        reason = next(iter(node.status()["resources"][0]["unhealthy"].values()))
        assert reason.startswith("daemon not running")
        first.start()
        first.wait_answers()
        node.wait_status(lambda status: "wrong limits" in str(status["resources"][0]["unhealthy"]))
        first.limit(25, 3840)
        node.kubelet.wait_for(lambda: node.healthy() == shares(0, 1), 15)


def test_a_daemon_that_hangs_is_no_better(driver: str) -> None:
    with Node(TWO_T4, ONE, driver=driver, args=ARGS, mps=True) as node, node.mps_daemon(0, MPS) as daemon:
        daemon.limit(25, 3840)
        node.run(GPU, MPS)
        node.kubelet.wait_for(lambda: node.healthy(MPS) == shares(0), 15)
        node.mps_faults.set("hang")
        node.kubelet.wait_for(lambda: not node.healthy(MPS), 15)
        assert node.healthy(GPU) == {gpu_uuid(1)}
        node.mps_faults.clear("hang")
        node.kubelet.wait_for(lambda: node.healthy(MPS) == shares(0), 15)


def test_a_resource_without_a_daemon_is_not_registered_and_the_rest_is_served(driver: str) -> None:
    with Node(TWO_T4, ONE, driver=driver, args=ARGS) as node:
        node.run(GPU)
        node.wait_ready()
        (waiting,) = node.status()["waiting"]
        assert waiting["what"] == f"{MPS}: not registered with the kubelet"
        assert re.search(r"GPU 0: .*pipe missing", waiting["waits_for"])
        assert not node.kubelet.resources[MPS].lists


def test_mps_without_a_root_is_refused_by_name(driver: str) -> None:
    with Node(TWO_T4, ALL, driver=driver) as node:
        node.start()
        assert node.wait_exit() == 1
        assert "found no MPS root" in node.log
        assert "--mps-root" in node.log


def test_shares_of_another_mode_wait_while_the_supervisor_has_the_gpu(driver: str) -> None:
    text = "version: v1\nsharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}\n"
    with Node(TWO_T4, text, driver=driver) as node:
        record = node.mps_root / ".supervisor" / "compute-mode" / gpu_uuid(0)
        record.parent.mkdir(parents=True)
        record.write_text("0\n")
        node.run(GPU)
        assert node.kubelet.resources[GPU].lists[0].healthy == shares(1)
        record.unlink()
        node.kubelet.wait_for(lambda: node.healthy() == shares(0, 1), 15)
