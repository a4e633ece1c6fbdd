"""Which devices pods get, from the links that the driver reports to the ids that the kubelet gives (reports K1, D2)."""

from tests.serving.harness import Node, envs, gpu_uuid

GPU = "nvidia.com/gpu"

PAIRS = [{0, 1}, {2, 3}, {4, 5}, {6, 7}]


def bridged(count: int = 8) -> str:
    """GPUs in NVLink pairs, the halves of a pair on different NUMA nodes (kdp#1193)."""
    lines = ["driver 570.133.20 cuda=12080"]
    lines += [
        f"gpu {i} model=rtx3090 uuid={gpu_uuid(i)} minor={i} bus=00000000:{0x10 + i:02x}:00.0 numa={i ^ 1}"
        for i in range(count)
    ]
    return "\n".join([*lines, *(f"nvlink {i} {i + 1} 4" for i in range(0, count, 2))]) + "\n"


def gpus(node: Node, pod: str, resource: str, count: int) -> list[int]:
    """The indices of the GPUs behind what a pod gets that asks for so many, one for each device."""
    admitted = node.pod(pod, {resource: count})
    assert admitted.phase == "Running", admitted.message
    index = {gpu_uuid(i): i for i in range(8)}
    return sorted(index[device_id.partition("::")[0]] for device_id in admitted.ids(resource))


def test_single_pods_use_pairs_up_and_pods_with_two_get_whole_ones(driver: str) -> None:
    with Node(bridged(), driver=driver).run() as node:
        singles = {gpus(node, f"one-{n}", GPU, 1)[0] for n in range(4)}
        assert [pair <= singles for pair in PAIRS].count(True) == 2
        for n in range(2):
            assert set(gpus(node, f"two-{n}", GPU, 2)) in PAIRS


POLICIES = """\
version: v1
sharing:
  timeSlicing:
    resources:
    - {name: gpu, devices: [0, 1], replicas: 4, rename: gpu.packed, allocationPolicy: packed}
    - {name: gpu, devices: [2, 3], replicas: 4, rename: gpu.spread, allocationPolicy: spread}
    - {name: gpu, devices: rest, replicas: 4, rename: gpu.even}
"""


def test_each_resource_has_its_own_policy(driver: str) -> None:
    names = [f"nvidia.com/gpu.{policy}" for policy in ("packed", "spread", "even")]
    packed, spread, even = names
    with Node(bridged(6), POLICIES, driver=driver).run(*names) as node:
        assert gpus(node, "p", packed, 3) == [0, 0, 0]
        assert gpus(node, "q", packed, 2) == [0, 1]
        assert gpus(node, "r", even, 4) == [4, 4, 5, 5]
        assert gpus(node, "s", spread, 2) == [2, 3]
        too_many = node.pod("t", {spread: 3})
        assert too_many.phase == "Failed"
        assert "with the allocation policy `spread` a container gets at most one device of a GPU" in too_many.message
        assert set(envs(node.pod("u", {spread: 2}))["NVIDIA_VISIBLE_DEVICES"].split(",")) == {gpu_uuid(2), gpu_uuid(3)}
