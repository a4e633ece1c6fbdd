"""A driver that is missing, fails, hangs or loses a GPU (design 4 and 8; reports G1, H5, H8, J1, J2)."""

import re
import signal

import pytest

from tests.serving.harness import Node, deadline, envs, gpu_uuid, t4s

GPU = "nvidia.com/gpu"

WAIT = "version: v1\nflags: {failOnInitError: false}\n"
SHARED = """\
version: v1
sharing:
  timeSlicing:
    resources:
    - name: nvidia.com/gpu
      replicas: 2
"""

ONE_MIG_TWO_WHOLE = """\
driver 570.133.20 cuda=12080
gpu 0 model=t4 uuid=GPU-00000000-0000-4000-8000-000000000000 minor=1 bus=00000000:10:00.0 numa=0
gpu 1 model=t4 uuid=GPU-00000001-0000-4000-8000-000000000000 minor=0 bus=00000000:11:00.0 numa=0
"""


def test_no_library_ends_the_start_by_default() -> None:
    """Golden 007, reports J1: what was tried and what to do."""
    with Node(driver="nvml", env={"LD_LIBRARY_PATH": "/nonexistent"}) as node:
        node.kubelet.start()
        node.start()
        assert node.wait_exit() == 1
        assert "libnvidia-ml.so.1" in node.log
        assert "failOnInitError" in node.log


def test_no_library_and_an_nvidia_device_is_waited_out() -> None:
    with Node(config=WAIT, driver="nvml", env={"LD_LIBRARY_PATH": "/nonexistent"}) as node:
        node.kubelet.start()
        node.start()
        document = node.wait_status(lambda d: d["driver"]["problem"])
        assert document["live"]["ok"]
        assert not document["ready"]["ok"]
        assert any("waiting for the driver" in reason for reason in document["ready"]["reasons"])
        assert node.kubelet.registrations == ()


def test_no_library_and_no_nvidia_device_is_a_node_without_gpus() -> None:
    text = "driver 570.133.20 cuda=12080\n"
    with Node(text, WAIT, driver="nvml", env={"LD_LIBRARY_PATH": "/nonexistent"}) as node:
        node.kubelet.start()
        node.start()
        document = node.wait_ready()
        assert document["driver"]["node_without_gpus"]
        assert node.kubelet.registrations == ()


def test_a_driver_that_comes_later_is_found(driver: str) -> None:
    """Reports J2: within one retry, no restart."""
    with Node(t4s(4).replace("driver", "init return=9\ndriver", 1), WAIT, driver=driver) as node:
        node.kubelet.start()
        node.start()
        node.wait_status(lambda d: d["driver"]["problem"])
        node.set_node(t4s(4))
        node.wait_listed(GPU)
        assert len(node.listed()) == 4
        node.wait_ready()


def test_a_lost_gpu_at_start_leaves_the_others_served(driver: str) -> None:
    """Golden 013, where NVIDIA's plugin ends."""
    with Node(t4s(3), driver=driver, faults=["lost 1"]).run() as node:
        node.wait_ready()
        assert node.listed() == (gpu_uuid(0), gpu_uuid(2))
        (left,) = node.status()["plan"]["left_out"]
        assert "GPU is lost" in left["reason"]


def test_a_gpu_lost_later_is_unhealthy_with_all_its_replicas_and_comes_back() -> None:
    with Node(t4s(3), SHARED + "health: {quietTime: 1s, pollInterval: 1s}\n", driver="nvml").run() as node:
        node.wait_ready()
        node.control.append("lost 1")
        _look(node)
        node.kubelet.wait_for(lambda: len(node.healthy()) == 4)
        assert len(node.listed()) == 6
        assert not any(gpu_uuid(1) in healthy for healthy in node.healthy())
        (resource,) = node.status()["resources"]
        assert all("GPU is lost" in reason for reason in resource["unhealthy"].values())
        assert node.pod("p", {GPU: 2}).phase == "Running"
        node.control.append("ok 1")
        _look(node)
        node.kubelet.wait_for(lambda: len(node.healthy()) == 6)


def test_a_gpu_that_fails_a_call_is_unhealthy_alone() -> None:
    with Node(t4s(3), driver="nvml", faults=["fail nvmlDeviceGetMemoryInfo 999 2"]).run() as node:
        node.wait_ready()
        assert len(node.listed()) == 3
        assert node.healthy() == {gpu_uuid(0), gpu_uuid(1)}


def test_the_whole_driver_lost_later_is_all_unhealthy_and_recovers() -> None:
    """Reports H5: never `health checks off`; the ids stay."""
    with Node(t4s(2), driver="nvml").run() as node:
        node.wait_ready()
        node.control.append("init 9", "fail * 9")
        _look(node)
        node.kubelet.wait_for(lambda: not node.healthy())
        assert node.listed() == (gpu_uuid(0), gpu_uuid(1))
        assert not node.status()["ready"]["ok"]
        node.control.clear()
        node.kubelet.wait_for(lambda: len(node.healthy()) == 2)
        node.wait_ready()


def test_index_is_not_minor_and_not_mixed_up(driver: str) -> None:
    with Node(ONE_MIG_TWO_WHOLE, driver=driver, env={"DEVICE_ID_STRATEGY": "index"}).run() as node:
        pod = node.pod("p", {GPU: 1})
        (held,) = pod.ids(GPU)
        index = {gpu_uuid(0): "0", gpu_uuid(1): "1"}[held]
        assert envs(pod) == {"NVIDIA_VISIBLE_DEVICES": index}
        minors = {gpu["uuid"]: gpu["minor"] for gpu in node.status()["gpus"]}
        assert minors == {gpu_uuid(0): 1, gpu_uuid(1): 0}


def test_a_call_that_hangs_at_the_start_is_waited_for_and_can_be_ended() -> None:
    with Node(t4s(2), driver="nvml", faults=["block nvmlDeviceGetMemoryInfo 60 1"]) as node:
        node.kubelet.start()
        node.start()
        document = node.wait_status(lambda d: d["driver"]["unanswered_for_s"] > 0.2)
        assert document["live"]["ok"]
        assert "waiting for the driver's first answer" in document["ready"]["reasons"]
        with deadline(2.5):
            assert node.stop() == 0


def test_a_call_that_hangs_later_stops_nothing_that_is_served() -> None:
    """Allocate answers all the while, readiness fails, SIGTERM ends it in 2 s."""
    with Node(t4s(2), SHARED, driver="nvml").run() as node:
        node.wait_ready()
        node.control.append("block nvmlDeviceGetMemoryInfo 60 1")
        _look(node)
        node.wait_status(lambda d: d["driver"]["unanswered_for_s"] > 0.2)
        with deadline(1.0):
            assert node.pod("p", {GPU: 1}).phase == "Running"
        node.write_config(SHARED.replace("replicas: 2", "replicas: 3"))
        node.wait_list(lambda ids: len(ids) == 6)
        document = node.wait_status(lambda d: not d["ready"]["ok"], timeout=30)
        assert re.search(r"the driver has not answered for \d+ s", " ".join(document["ready"]["reasons"]))
        assert document["live"]["ok"]
        with deadline(2.5):
            assert node.stop() == 0


@pytest.mark.parametrize("gone", [0, 1])
def test_a_gpu_that_goes_and_comes(gone: int, driver: str) -> None:
    """Reports H8: the count follows the hardware both ways, though the indices shift."""
    with Node(t4s(2), driver=driver).run() as node:
        node.wait_ready()
        left = [line for line in t4s(2).splitlines(keepends=True) if not line.startswith(f"gpu {gone} ")]
        node.set_node("".join(left).replace("gpu 1 ", "gpu 0 "))
        _look(node)
        node.wait_list(lambda ids: ids == (gpu_uuid(1 - gone),))
        node.set_node(t4s(2))
        _look(node)
        node.wait_list(lambda ids: len(ids) == 2)
        assert len(node.healthy()) == 2


def test_a_held_gpu_that_goes_stays_listed_unhealthy(driver: str) -> None:
    """L16 to L18: a held id is never dropped."""
    with Node(t4s(2), driver=driver).run() as node:
        node.wait_ready()
        pod = node.pod("p", {GPU: 1})
        (held,) = pod.ids(GPU)
        other = gpu_uuid(0) if held == gpu_uuid(1) else gpu_uuid(1)
        node.set_node(
            "".join(line for line in t4s(2).splitlines(keepends=True) if held not in line).replace("gpu 1 ", "gpu 0 ")
        )
        _look(node)
        node.kubelet.wait_for(lambda: node.healthy() == {other})
        assert held in node.listed()
        node.kubelet.end(pod.uid)
        node.wait_list(lambda ids: ids == (other,))


def test_a_changed_mig_layout_is_followed(driver: str) -> None:
    """Reports G1."""
    base = (
        "driver 570.133.20 cuda=12080\n"
        f"gpu 0 model=a100-40gb uuid={gpu_uuid(0)} minor=0 bus=00000000:10:00.0 numa=0 mig=1\n"
    )
    mig = (
        "mig gpu=0 slot={s} gi={gi} ci=0 giprofile={g} ciprofile={c} start={at} size={n} "
        "uuid=MIG-0000000{u}-0001-4000-8000-000000000000\n"
    )
    half = mig.format(s=0, gi=1, g=2, c=2, at=0, n=4, u=1)
    small = mig.format(s=0, gi=7, g=0, c=0, at=0, n=1, u=2) + mig.format(s=1, gi=8, g=0, c=0, at=1, n=1, u=3)
    with Node(base + half, "version: v1\nflags: {migStrategy: mixed}\n", driver=driver).run(
        "nvidia.com/mig-3g.20gb"
    ) as node:
        node.wait_ready()
        node.set_node(base + small)
        _look(node)
        node.wait_listed("nvidia.com/mig-1g.5gb")
        assert len(node.listed("nvidia.com/mig-1g.5gb")) == 2
        node.wait_list(lambda ids: ids == (), "nvidia.com/mig-3g.20gb")


def _look(node: Node) -> None:
    """Have the plugin look at the driver now; else it does every 10 s."""
    assert node.process is not None
    node.process.send_signal(signal.SIGHUP)


def test_a_gpu_lost_while_the_config_does_not_fit_the_node_is_unhealthy() -> None:
    """The last good plan stays in service then, but no plan outlives the health of its devices."""
    shared_under_the_plain_name = SHARED.replace("replicas: 2", "replicas: 2\n      devices: [0]\n      rename: gpu")
    config = shared_under_the_plain_name + "health: {quietTime: 1s, pollInterval: 1s}\n"
    with Node(t4s(1), config, driver="nvml").run() as node:
        node.wait_ready()
        shares = node.listed()
        node.set_node(t4s(2))  # one more GPU, whole: under the same name it can't be
        _look(node)
        node.wait_status(lambda document: document["config"]["plan_problems"])
        assert node.healthy() == set(shares)
        node.control.append("lost 0")
        _look(node)
        node.kubelet.wait_for(lambda: not node.healthy())
        assert node.listed() == shares
        node.control.append("ok 0")
        _look(node)
        node.kubelet.wait_for(lambda: node.healthy() == set(shares))
