"""A config that needs more than the container has: that is left out, with the value to set; the rest is served."""

import json

from tests.serving.harness import MIG_NODE, TWO_T4, Node, gpu_uuid

MAY_NOT_LIST = "fail nvmlDeviceGetMigDeviceHandleByIndex 4"
MPS = """\
version: v1
flags: {mpsRoot: /run/nvidia/mps}
sharing: {mps: {resources: [{name: gpu, devices: [1], replicas: 2}]}}
"""


def test_mig_without_the_right_to_list_it_names_the_value() -> None:
    """NVIDIA's runtime lets a container list MIG instances only with SYS_ADMIN (reports G3)."""
    node = Node(MIG_NODE, "version: v1\nflags: {migStrategy: mixed}\n", driver="nvml", faults=[MAY_NOT_LIST])
    with node.run():
        assert node.listed() == (gpu_uuid(0),), "the GPU beside it is served"
        said = json.dumps(node.status())
        assert "privileges.mig" in said
        assert "nvidia.com/mig-" not in said


def test_mps_without_its_root_names_the_value() -> None:
    with Node(TWO_T4, MPS).run() as node:
        assert node.listed() == (gpu_uuid(0),)
        node.wait_status(lambda document: "mps.enabled" in json.dumps(document))
