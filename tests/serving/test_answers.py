"""What containers get besides variables, and that it follows the node."""

import signal

import pytest

from deviceplugin.simulator import RunOptions
from tests.serving.harness import DRIVERS, MIG_NODE, TWO_T4, Node

pytestmark = pytest.mark.parametrize("driver", DRIVERS)
GPU = "nvidia.com/gpu"
CHANNEL = "/dev/nvidia-caps-imex-channels/channel0"


def options(node: Node, name: str, resource: str = GPU) -> RunOptions:
    """What the only container of a pod with one device got."""
    pod = node.pod(name, {resource: 1})
    (container,) = pod.containers.values()
    assert container.options is not None, pod.message
    return container.options


def files(answer: RunOptions) -> set[str]:
    """The host paths of its device files."""
    return {file.host_path for file in answer.devices}


def test_a_device_file_that_appears_is_passed_on(driver: str) -> None:
    args = ["--pass-device-specs", "--imex-channel-ids=0"]
    with Node(TWO_T4, driver=driver, args=args, sandbox={"no_dev": ["nvidia-modeset"]}).run() as node:
        assert {"/dev/nvidia-modeset", CHANNEL}.isdisjoint(files(options(node, "before")))
        assert node.status()["plan"]["warnings"]
        lists = len(node.kubelet.resources[GPU].lists)
        node.set_node(TWO_T4, {"imex": [0]})
        assert node.process is not None
        node.process.send_signal(signal.SIGHUP)
        node.wait_status(lambda document: not document["plan"]["warnings"])
        assert {"/dev/nvidia-modeset", CHANNEL} <= files(options(node, "after"))
        assert len(node.kubelet.resources[GPU].lists) == lists, "the list did not change, so none is sent"


def test_a_mig_instance_whose_capability_goes_is_unhealthy_until_it_is_back(driver: str) -> None:
    args = ["--pass-device-specs", "--mig-strategy=mixed"]
    resource = "nvidia.com/mig-1g.5gb"
    with Node(MIG_NODE, driver=driver, args=args).run(resource) as node:
        (instance,) = node.healthy(resource)
        cap = next(path for path in files(options(node, "p", resource)) if "nvidia-cap" in path)
        node.set_node(MIG_NODE, {"no_dev": [cap.removeprefix("/dev/")]})
        assert node.process is not None
        node.process.send_signal(signal.SIGHUP)
        node.kubelet.wait_for(lambda: not node.healthy(resource), 15)
        (shown,) = [one for one in node.status()["resources"] if one["name"] == resource]
        assert shown["unhealthy"] == {instance: f"{cap} does not exist"}
        node.set_node(MIG_NODE, {})
        node.process.send_signal(signal.SIGHUP)
        node.kubelet.wait_for(lambda: node.healthy(resource) == {instance}, 15)
