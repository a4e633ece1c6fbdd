"""CDI names that pods get resolve, whatever happens to the node, the config and the files."""

import json
import signal
from typing import Any

import pytest

from deviceplugin.simulator import RunOptions
from tests.goldens.cdi import unresolved
from tests.serving.harness import DRIVERS, MIG_NODE, TWO_T4, Node, envs, gpu_uuid, t4s
from tests.serving.test_answers import options

pytestmark = pytest.mark.parametrize("driver", DRIVERS)

GPU = "nvidia.com/gpu"
VENDOR = "k8s.device-plugin.nvidia.com"
FILE = f"{VENDOR}-gpu.json"
CDI = "flags:\n  plugin:\n    deviceListStrategy: [cdi-cri]\nversion: v1\n"
ANNOTATED = CDI.replace("cdi-cri", "cdi-annotations")
ENVVAR = CDI.replace("cdi-cri", "envvar")


def look_again(node: Node) -> None:
    assert node.process is not None
    node.process.send_signal(signal.SIGHUP)


def names(answer: RunOptions) -> list[str]:
    """The CDI names that a container got, by field and by annotation."""
    annotated = [name for key, text in answer.annotations.items() if VENDOR in text for name in text.split(",")]
    return [*answer.cdi_devices, *annotated]


def wait_specs(node: Node, wanted: Any) -> None:
    """Wait until the specifications satisfy the predicate; between writes they are always whole."""
    node.kubelet.wait_for(lambda: wanted(node.cdi_specs()), 15)


@pytest.mark.parametrize("config", [CDI, ANNOTATED])
def test_a_pod_gets_a_name_that_resolves(driver: str, config: str) -> None:
    with Node(TWO_T4, config, driver=driver).run() as node:
        answer = options(node, "p")
        assert dict(answer.envs) == {}
        given = names(answer)
        assert len(given) == 1
        assert unresolved(node.cdi_specs(), given) == []
        assert node.stop() == 0
        assert unresolved(node.cdi_specs(), given) == [], "the pod runs on"


def test_a_new_mig_instance_is_specified_before_it_is_listed(driver: str) -> None:
    config = CDI.replace("flags:\n", "flags:\n  migStrategy: mixed\n")
    resource = "nvidia.com/mig-1g.5gb"
    more = MIG_NODE + MIG_NODE.splitlines()[-1].replace("slot=1 gi=7", "slot=2 gi=8").replace("-0007-", "-0008-")
    with Node(MIG_NODE, config, driver=driver).run(resource) as node:
        seen: list[list[str]] = []

        def listed() -> bool:
            ids = node.healthy(resource)
            seen.append(unresolved(node.cdi_specs(), [f"{VENDOR}/gpu={one}" for one in ids]))
            return len(ids) == 2

        node.set_node(more + "\n")
        look_again(node)
        node.kubelet.wait_for(listed, 15)
        assert not any(seen)


def test_a_gpu_whose_device_file_goes_is_unhealthy_alone_with_the_path_until_it_is_back(driver: str) -> None:
    with Node(TWO_T4, CDI, driver=driver).run() as node:
        node.set_node(TWO_T4, {"no_dev": ["nvidia1"]})
        look_again(node)
        node.kubelet.wait_for(lambda: node.healthy() == {gpu_uuid(0)}, 15)
        (shown,) = node.status()["resources"]
        assert shown["unhealthy"] == {gpu_uuid(1): "/dev/nvidia1 does not exist"}
        assert unresolved(node.cdi_specs(), [f"{VENDOR}/gpu={gpu_uuid(0)}"]) == []
        node.set_node(TWO_T4, {})
        look_again(node)
        node.kubelet.wait_for(lambda: len(node.healthy()) == 2, 15)
        assert unresolved(node.cdi_specs(), [f"{VENDOR}/gpu={gpu_uuid(index)}" for index in (0, 1)]) == []


def host_paths(node: Node, given: list[str]) -> set[str]:
    """Where the specifications say on the host that the device files of these names lie."""
    devices = {
        f"{spec['kind']}={one['name']}": one["containerEdits"]
        for spec in node.cdi_specs().values()
        for one in spec["devices"]
    }
    return {file["hostPath"] for name in given for file in devices[name]["deviceNodes"]}


@pytest.mark.parametrize(
    ("sandbox", "flags", "expected"),
    [
        ({"driver_root": True}, "nvidiaDriverRoot: /drv", "/drv/dev/nvidia0"),
        ({"driver_root": True}, "nvidiaDriverRoot: /drv, nvidiaDevRoot: /", "/dev/nvidia0"),
        ({"driver_root": True, "driver_root_dev": False}, "nvidiaDriverRoot: /drv", "/dev/nvidia0"),
        ({"driver_root": True, "driver_root_dev": False}, "nvidiaDriverRoot: /", "/dev/nvidia0"),
        ({}, "nvidiaDriverRoot: /drv, nvidiaDevRoot: /", "/dev/nvidia0"),
    ],
)
def test_names_lead_to_where_the_host_has_the_files(
    driver: str, sandbox: dict[str, Any], flags: str, expected: str
) -> None:
    config = f"version: v1\nflags: {{{flags}, plugin: {{deviceListStrategy: cdi-cri}}}}\n"
    with Node(t4s(1), config, driver=driver, sandbox=sandbox).run() as node:
        assert host_paths(node, names(options(node, "p"))) == {expected}


def test_where_the_hosts_files_cannot_be_seen_no_device_is_healthy_and_the_reason_says_what_to_set(driver: str) -> None:
    unseen = "version: v1\nflags: {nvidiaDriverRoot: /drv, plugin: {deviceListStrategy: cdi-cri}}\n"
    with Node(TWO_T4, unseen, driver=driver).run() as node:
        assert node.healthy() == set()
        (shown,) = node.status()["resources"]
        assert len(shown["unhealthy"]) == 2
        assert all("set nvidiaDevRoot to /" in why for why in shown["unhealthy"].values())
        node.write_config(unseen.replace("/drv,", "/drv, nvidiaDevRoot: /,"))
        node.kubelet.wait_for(lambda: len(node.healthy()) == 2, 15)
        assert host_paths(node, names(options(node, "p"))) <= {"/dev/nvidia0", "/dev/nvidia1"}


def test_files_that_somebody_removes_come_back(driver: str) -> None:
    with Node(TWO_T4, CDI, driver=driver).run() as node:
        before = (node.cdi_root / FILE).read_text()
        (node.cdi_root / FILE).unlink()
        wait_specs(node, lambda specs: FILE in specs)
        assert (node.cdi_root / FILE).read_text() == before


def test_a_directory_that_cannot_be_written_is_a_reason_and_no_end(driver: str) -> None:
    node = Node(TWO_T4, CDI, driver=driver, args=["--fail-on-init-error=false"])
    node.cdi_root.write_text("in the way")
    with node.run():
        node.kubelet.wait_for(lambda: not node.healthy(), 15)
        document = node.status()
        assert not document["ready"]["ok"]
        assert str(node.cdi_root) in document["cdi_problem"]
        assert all("CDI name would not resolve" in why for why in document["resources"][0]["unhealthy"].values())
        node.cdi_root.unlink()
        node.kubelet.wait_for(lambda: len(node.healthy()) == 2, 15)
        assert unresolved(node.cdi_specs(), names(options(node, "p"))) == []
        node.wait_ready()


def test_another_strategy_keeps_the_files_until_no_pod_can_need_them(driver: str) -> None:
    with Node(TWO_T4, CDI, driver=driver, speed=20).run() as node:
        old = node.pod("old", {GPU: 1})
        (container,) = old.containers.values()
        assert container.options is not None
        node.write_config(ENVVAR)
        node.wait_status(lambda document: "envvar" in (document["config"]["in_force"] or ""))
        new = node.pod("new", {GPU: 1})
        assert dict(envs(new)) != {}
        assert unresolved(node.cdi_specs(), names(container.options)) == []
        assert node.stop() == 0
        assert unresolved(node.cdi_specs(), names(container.options)) == []
        node.kubelet.end(new.uid)
        node.kubelet.end(old.uid)
        node.start()  # reads what is held before it sends the list that has the checkpoint written anew (A13, C3)
        node.wait_ready()
        node.until(lambda: not node.cdi_specs())


def test_another_driver_is_specified_without_a_restart(driver: str) -> None:
    """NVIDIA's plugin writes at its start only, and containers then get mounts of libraries that are gone."""
    with Node(TWO_T4, CDI, driver=driver, sandbox={"driver_root": True}).run() as node:
        node.wait_ready()
        assert libraries(node) == {"570.133.20"}
        release = ("release", f"--status-socket={node.status_socket}")
        assert node.command(*release).returncode == 0
        node.set_node(TWO_T4.replace("570.133.20", "575.51.03"))
        assert node.command(*release, "--end").returncode == 0
        node.kubelet.wait_for(lambda: libraries(node) == {"575.51.03"}, 20)
        node.kubelet.wait_for(lambda: len(node.healthy()) == 2, 15)
        assert unresolved(node.cdi_specs(), names(options(node, "p"))) == []


def libraries(node: Node) -> set[str]:
    """The versions of the driver's libraries that containers get."""
    mounts = node.cdi_specs()[FILE]["containerEdits"]["mounts"]
    return {one["hostPath"].partition(".so.")[2] for one in mounts if ".so." in one["hostPath"]}


def test_the_flags_for_hooks_reach_the_specifications(driver: str) -> None:
    args = ["--nvidia-cdi-hook-path=/opt/nvidia-cdi-hook", "--cdi-disable-hooks=enable-cuda-compat,update-ldcache"]
    args += ["--cdi-feature-flags=disable-nvsandbox-utils", "--device-list-strategy=cdi-cri"]
    with Node(TWO_T4, driver=driver, args=args, sandbox={"driver_root": True}).run() as node:
        hooks = node.cdi_specs()[FILE]["containerEdits"]["hooks"]
        assert {hook["path"] for hook in hooks} == {"/opt/nvidia-cdi-hook"}
        assert [hook["args"][1] for hook in hooks] == [
            *("create-symlinks", "disable-device-node-modification", "update-application-profile")
        ]


def test_files_of_an_earlier_run_go_when_nobody_holds_anything(driver: str) -> None:
    node = Node(TWO_T4, ENVVAR, driver=driver)
    node.cdi_root.mkdir()
    (node.cdi_root / FILE).write_text(json.dumps({"devices": []}))
    (node.cdi_root / "nvidia.json").write_text("{}")
    with node.run():
        wait_specs(node, lambda specs: FILE not in specs)
        assert list(node.cdi_specs()) == ["nvidia.json"]
