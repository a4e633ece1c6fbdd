"""A config that needs more than the container has: that is left out, with the value to set; the rest is served."""

import json
from pathlib import Path

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


def test_cdi_without_a_place_for_its_specifications_names_the_value(tmp_path: Path) -> None:
    """As on the container's own root, which is read-only: nothing may be made there."""
    (tmp_path / "file").touch()
    flags = ["--device-list-strategy=cdi-cri", f"--cdi-root={tmp_path}/file/cdi"]
    with Node(TWO_T4, args=flags) as node:
        node.kubelet.start()
        node.start()
        node.wait_status(lambda document: "cdi.enabled" in json.dumps(document))
        assert not node.status()["ready"]["ok"]
