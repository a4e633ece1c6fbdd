"""What a container with MPS shares receives (design 5, drop-in.md 3, golden 070)."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from deviceplugin.allocation.answer import Answer, Mount, answer
from deviceplugin.errors import AllocationError
from deviceplugin.model.mps import MpsShare
from deviceplugin.model.offer import Offer
from deviceplugin.model.plan import Mode, Resource
from tests.allocation.offers import gpu, ids_of

SHARE = MpsShare(3840, 33, enforced=True, root="/run/nvidia/mps/")


def shared(*indices: int, refuse: bool = False) -> Offer:
    units = tuple(replace(gpu(index, 4), mps=SHARE) for index in indices)
    resource = Resource("nvidia.com/gpu.mps", Mode.MPS, units, refuse_more_than_one=refuse)
    return Offer(resource, resource.devices)


def received(offer: Offer, ids: Sequence[str]) -> Answer:
    return answer(offer, ids, response_id=lambda: "00000000-0000-4000-8000-000000000000")


def test_one_share() -> None:
    offer = shared(0, 1, refuse=True)
    one = received(offer, [f"{gpu(1).uuid}::2"])
    assert dict(one.envs) == {
        "NVIDIA_VISIBLE_DEVICES": gpu(1).uuid,
        "CUDA_MPS_PIPE_DIRECTORY": "/mps/nvidia.com/gpu.mps/pipe",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "33",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=3840M",
    }
    assert one.mounts == (
        Mount("/mps/nvidia.com/gpu.mps/pipe", f"/run/nvidia/mps/nvidia.com/gpu.mps/{gpu(1).uuid}/pipe", False),
        Mount("/dev/shm", "/run/nvidia/mps/shm", False),
    )


@pytest.mark.parametrize(("count", "percentage", "memory"), [(2, "66", "0=7680M"), (4, "100", "0=15360M")])
def test_several_shares_of_one_gpu_add_up(count: int, percentage: str, memory: str) -> None:  # reports D4
    offer = shared(0, 1)
    envs = received(offer, [*ids_of(offer)[:count], ids_of(offer)[0]]).envs
    assert envs["NVIDIA_VISIBLE_DEVICES"] == gpu(0).uuid
    assert envs["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == percentage
    assert envs["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == memory


def test_shares_of_two_gpus_are_refused_with_the_reason() -> None:
    offer = shared(0, 1)
    with pytest.raises(AllocationError, match=r"MPS shares of 2 GPUs .* must be of one GPU"):
        received(offer, [f"{gpu(0).uuid}::0", f"{gpu(1).uuid}::0"])


def test_an_empty_request_gets_nothing_of_mps() -> None:
    one = received(shared(0), [])
    assert dict(one.envs) == {"NVIDIA_VISIBLE_DEVICES": ""}
    assert one.mounts == ()
