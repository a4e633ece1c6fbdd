"""What `plan` and `status` answer about a running plugin: what the config decides, what waits, what is missing."""

import json
from functools import partial

from deviceplugin.simulator import AdmittedPod
from tests.serving.harness import MIG_NODE, TWO_T4, Node, gpu_uuid, t4s

GPU, SHARED, MPS = "nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/gpu.mps"
ROOT = ("--mps-root=/run/nvidia/mps",)
PLAIN = "version: v1\n"


def of_gpu_0(mode: str, more: str = "") -> str:
    """GPU 0 shared by two under one name in any mode, the rest whole."""
    entry = f"name: {GPU}, devices: [0], rename: {SHARED}, replicas: 2{more}"
    return f"version: v1\nsharing: {{{mode}: {{resources: [{{{entry}}}]}}}}\n"


def holding(node: Node) -> tuple[AdmittedPod, str]:
    """A pod with a share, once the plugin knows it by name; and the share."""
    pod = node.pod("p", {SHARED: 1})
    (held,) = pod.ids(SHARED)
    node.hang_up()
    node.wait_status(lambda status: any(one["pods"] == {held: "default/p"} for one in status["resources"]))
    return pod, held


def healthy_are(node: Node, expected: frozenset[str]) -> bool:
    return node.healthy() == expected


def gpu_line(node: Node, index: int) -> str:
    shown = node.command("status", f"--status-socket={node.status_socket}").stdout
    (line,) = (line for line in shown.splitlines() if line.startswith(f"  {index:>2}  "))
    return line


def test_health_is_no_difference(driver: str) -> None:
    """The file in force is the file in force, whatever has happened to a GPU since."""
    with Node(TWO_T4, PLAIN, driver=driver).run() as node:
        node.wait_ready()
        for fault in ("xid 0 79", "lost 1"):
            node.inject(fault)
            expected = frozenset({gpu_uuid(1)}) if fault == "xid 0 79" else frozenset()
            node.kubelet.wait_for(partial(healthy_are, node, expected), 15)
            same = node.command("plan", *node.flags())
            assert (same.returncode, same.stderr) == (0, ""), same.stdout
            assert "nothing would change" in same.stdout
        document = json.loads(node.command("plan", "--output=json", *node.flags()).stdout)
        assert document["changes"] == []
        assert [line.partition(": ")[2][:7] for line in document["unhealthy"]] == ["GPU 0: ", "GPU 1: "]


def test_a_daemon_that_is_missing_is_no_difference_and_is_listed(driver: str) -> None:
    with Node(TWO_T4, of_gpu_0("mps"), driver=driver, args=ROOT).run(GPU) as node:
        node.wait_status(lambda status: "pipe missing" in json.dumps(status["resources"]))
        same = node.command("plan", *node.flags())
        assert same.returncode == 0, same.stdout
        assert f"  {SHARED}: GPU 0: pipe missing: " in same.stdout
        where = f"--status-socket={node.status_socket}"
        shown = node.command("status", where).stdout
        assert "ready, but: 1 resource NOT REGISTERED\n" in shown
        line = f"{SHARED}: mps, NOT REGISTERED, awaiting an MPS control daemon that answers (GPU 0: pipe missing)"
        assert f"  {line}; is the MPS supervisor running (docs/mps.md)?\n" in shown
        assert "waiting:" not in shown
        ready = node.command("status", where, "--ready")
        assert (ready.returncode, ready.stdout.splitlines()[0]) == (0, "ok")
        assert ready.stdout.splitlines()[1].startswith(line)
        (said,) = (line for line in node.log_lines if " waiting: " in line)
        assert len(said) < 280, said


def test_both_what_a_gpu_is_and_what_it_is_to_become(driver: str) -> None:
    with Node(t4s(2), of_gpu_0("timeSlicing"), driver=driver, args=ROOT).run(GPU, SHARED) as node:
        node.wait_ready()
        pod, held = holding(node)
        assert node.config_path is not None
        by_mps = node.root / "mps.yaml"
        by_mps.write_text(of_gpu_0("mps"))
        planned = node.command("plan", *node.flags(), str(by_mps))
        assert planned.returncode == 3
        assert f"  ~ {SHARED}: mode time-slicing -> mps\n" in planned.stdout
        assert f"waits until pods have ended:\n  GPU 0: {SHARED}: time-slicing -> mps; " in planned.stdout
        assert f"; default/p holds {held}\n" in planned.stdout
        node.write_config(of_gpu_0("mps"))
        node.wait_status(lambda status: status["waiting"])
        assert gpu_line(node, 0).endswith(f"  DRAINING {SHARED} (time-slicing, 1 held); then: {SHARED} x2")
        assert gpu_line(node, 1).endswith(f"  {GPU}")
        node.write_config(PLAIN)
        node.wait_status(lambda status: any(one["what"].endswith(f"-> {GPU}") for one in status["waiting"]))
        assert gpu_line(node, 0).endswith(f"  DRAINING {SHARED} (time-slicing, 1 held); then: {GPU}")
        assert node.command("plan", *node.flags()).returncode == 0
        node.kubelet.end(pod.uid)
        node.until(lambda: node.listed(GPU) == (gpu_uuid(0), gpu_uuid(1)))
        node.wait_status(lambda status: not status["waiting"])
        assert gpu_line(node, 0).endswith(f"  {GPU}")


def test_changed_limits_wait_in_plan_as_in_the_plugin(driver: str) -> None:
    """The held shares' own limits count, not those that the plan gives the same ids."""
    with (
        Node(TWO_T4, of_gpu_0("mps"), driver=driver, args=ROOT, mps=True) as node,
        node.mps_daemon(0, SHARED) as daemon,
    ):
        daemon.limit(50, 7680)
        node.run(GPU, SHARED)
        node.wait_ready()
        _, held = holding(node)
        other = node.root / "other.yaml"
        other.write_text(of_gpu_0("mps", ", memoryLimit: 1Gi").replace("sharing: {", "sharing: {transition: refuse, "))
        refused = node.command("plan", *node.flags(), str(other))
        assert refused.returncode == 4, refused.stdout
        assert "mps (7680M and 50 % of the threads for each process) -> mps (1024M" in refused.stdout
        assert f"; default/p holds {held}\n" in refused.stdout
        assert "send the plugin SIGHUP" in refused.stdout
        other.write_text(of_gpu_0("mps", ", memoryLimit: 1Gi"))
        assert node.command("plan", *node.flags(), str(other)).returncode == 3


def test_a_mig_instance_that_drains_is_seen_at_its_gpu(driver: str) -> None:
    mixed = "version: v1\nflags: {migStrategy: mixed}\n"
    with Node(MIG_NODE, mixed, driver=driver).run(GPU) as node:
        node.wait_ready()
        (name,) = (one["name"] for one in node.status()["resources"] if one["name"].startswith("nvidia.com/mig-1"))
        node.pod("p", {name: 1})
        node.write_config(mixed + "devices: {exclude: [1]}\n")
        node.wait_status(lambda status: status["waiting"])
        assert gpu_line(node, 1).endswith(f"  DRAINING {name} (exclusive, 1 held); then: offered as nothing")
        assert gpu_line(node, 0).endswith(f"  {GPU}")


def test_plan_when_nobody_knows_what_is_held(driver: str) -> None:
    """Then everything that is listed may be: what takes some of it away waits, or is refused."""
    with Node(t4s(2), of_gpu_0("timeSlicing"), driver=driver).run(GPU, SHARED) as node:
        node.wait_ready()
        node.kubelet.stop()
        for path in node.root.rglob("kubelet_internal_checkpoint"):
            path.unlink()
        node.hang_up()
        node.wait_status(lambda status: status["held_unknown_because"])
        other = node.root / "other.yaml"
        other.write_text(PLAIN)
        waits = node.command("plan", *node.flags(), str(other))
        assert waits.returncode == 3
        assert f"  GPU 0: {SHARED} -> {GPU}; for knowledge of what pods hold: " in waits.stdout
        other.write_text(PLAIN + "sharing: {transition: refuse}\n")
        assert node.command("plan", *node.flags(), str(other)).returncode == 4
