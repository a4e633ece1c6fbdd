"""What a container receives, and what is refused in which words."""

import time
from dataclasses import replace
from typing import Any

import pytest

from deviceplugin.allocation.answer import VISIBLE_DEVICES, Answer, answer
from deviceplugin.errors import AllocationError
from deviceplugin.model.delivery import Delivery
from deviceplugin.model.offer import Offer
from deviceplugin.model.plan import AllocationPolicy, Device, Health
from tests.allocation.offers import gpu, ids_of, mig, offer


def given(an_offer: Offer, *ids: str) -> Answer:
    return answer(an_offer, ids, response_id=lambda: "the-id")


def visible(an_offer: Offer, *ids: str) -> str:
    return given(an_offer, *ids).envs[VISIBLE_DEVICES]


def refusal(an_offer: Offer, *ids: str) -> str:
    with pytest.raises(AllocationError) as caught:
        given(an_offer, *ids)
    return str(caught.value)


def test_ids_come_in_the_order_asked_without_repeats() -> None:
    four = offer(*(gpu(index, 4) for index in range(4)))
    zero, one = gpu(0).uuid, gpu(1).uuid
    assert visible(four, f"{one}::3", f"{zero}::0", f"{one}::0", f"{zero}::0") == f"{one},{zero}"


def test_index_ids_are_used_where_the_plan_says_so() -> None:
    indexed = offer(gpu(0, 2, visible_id="0"), gpu(7, 2, visible_id="7"))
    assert visible(indexed, f"{gpu(7).uuid}::1", f"{gpu(0).uuid}::0") == "7,0"


def test_by_default_only_the_environment_is_set() -> None:
    one = given(offer(mig(0, 7)), mig(0, 7).uuid)
    assert dict(one.envs) == {VISIBLE_DEVICES: mig(0, 7).uuid}
    assert (one.mounts, one.devices, dict(one.annotations), one.cdi_devices) == ((), (), {}, ())


CDI_GPU = "k8s.device-plugin.nvidia.com/gpu"


def delivering(an_offer: Offer, **how: Any) -> Offer:
    return replace(an_offer, resource=replace(an_offer.resource, delivery=Delivery(**how)))


def test_volume_mounts_name_devices_and_channels_by_path_and_win_the_variable() -> None:
    two = delivering(offer(gpu(0, 2, visible_id="0"), gpu(1, 2)), volume_mounts=True, imex_channels=(0,))
    one = given(two, f"{gpu(0).uuid}::1", f"{gpu(0).uuid}::0", f"{gpu(1).uuid}::0")
    root = "/var/run/nvidia-container-devices"
    assert [(mount.container_path, mount.host_path, mount.read_only) for mount in one.mounts] == [
        (f"{root}/0", "/dev/null", False),
        (f"{root}/{gpu(1).uuid}", "/dev/null", False),
        (f"{root}/imex/0", "/dev/null", False),
    ]
    assert dict(one.envs) == {VISIBLE_DEVICES: root, "NVIDIA_IMEX_CHANNELS": "0"}


def test_device_files_come_once_in_the_order_of_the_request_below_the_dev_root() -> None:
    units = [replace(gpu(index, 2), device_files=(f"nvidia{9 - index}",)) for index in range(2)]
    passing = delivering(offer(*units), device_root="/run/driver/", common_files=("nvidiactl",))
    one = given(passing, f"{gpu(1).uuid}::0", f"{gpu(0).uuid}::0", f"{gpu(1).uuid}::1")
    assert [(file.container_path, file.host_path, file.permissions) for file in one.devices] == [
        (f"/dev/{name}", f"/run/driver/dev/{name}", "rw") for name in ("nvidia8", "nvidia9", "nvidiactl")
    ]
    assert given(delivering(offer(*units), device_root="/"), f"{gpu(0).uuid}::0").devices[0].host_path == "/dev/nvidia9"


def test_pure_cdi_answers_names_and_extras_alone() -> None:
    how: dict[str, Any] = {"device_root": "/", "common_files": ("nvidiactl",), "imex_channels": (0,)}
    pure = delivering(
        offer(gpu(0)), envvar=False, cdi_field=True, extras=("gdrcopy", "gds"), cdi_extras=("gds",), **how
    )
    one = given(pure, gpu(0).uuid)
    vendor = "k8s.device-plugin.nvidia.com"
    assert one.cdi_devices == (f"{CDI_GPU}={gpu(0).uuid}", f"{vendor}/imex-channel=0", f"{vendor}/gds=all")
    assert dict(one.envs) == {"NVIDIA_GDRCOPY": "enabled", "NVIDIA_GDS": "enabled"}
    assert (one.mounts, one.devices, dict(one.annotations)) == ((), (), {})


def test_annotations_carry_the_names_under_a_key_of_their_own_and_add_to_the_rest() -> None:
    both = delivering(offer(gpu(0), gpu(1)), cdi_annotation_prefix="example.com/", device_root="/")
    one = given(both, gpu(1).uuid, gpu(0).uuid)
    names = f"{CDI_GPU}={gpu(1).uuid},{CDI_GPU}={gpu(0).uuid}"
    assert dict(one.annotations) == {"example.com/nvidia-device-plugin_the-id": names}
    assert one.cdi_devices == ()
    assert dict(one.envs) == {VISIBLE_DEVICES: f"{gpu(1).uuid},{gpu(0).uuid}"}


def test_an_empty_request_gets_no_names_and_no_files() -> None:
    everything = delivering(
        offer(gpu(0)), cdi_field=True, cdi_annotation_prefix="x/", device_root="/", common_files=("nvidiactl",)
    )
    one = given(everything)
    assert (one.cdi_devices, dict(one.annotations), one.devices) == ((), {}, ())


def test_an_empty_request_sets_the_variable_to_nothing() -> None:
    assert dict(given(offer(gpu(0))).envs) == {VISIBLE_DEVICES: ""}


@pytest.mark.parametrize("unknown", ["GPU-x", "", "all", f"{gpu(0).uuid}::4", gpu(0).uuid])
def test_an_unknown_device_is_named_in_nvidias_words(unknown: str) -> None:
    shared = offer(gpu(0, 4), name="nvidia.com/gpu.shared")
    expected = f'invalid allocation request for "nvidia.com/gpu.shared": invalid request: unknown device: {unknown}'
    assert refusal(shared, f"{gpu(0).uuid}::0", unknown) == expected


@pytest.mark.parametrize("strange", ["x" * 1_000_000, "a\nERROR b", "\x1b[2J"])
def test_an_id_that_is_none_of_anybodys_is_cut_and_escaped(strange: str) -> None:
    """The message is a line of the log and a gRPC trailer, which has at most 16 KiB."""
    said = refusal(offer(gpu(0)), strange)
    assert "unknown device: " in said
    assert said.isprintable()
    assert len(said) < 300


def test_more_than_one_share_is_refused_in_nvidias_words_after_unknown_ones() -> None:
    strict = offer(gpu(0, 4), refuse_more_than_one=True)
    ids = ids_of(strict)
    assert refusal(strict, *ids[:3]) == (
        'invalid allocation request for "nvidia.com/gpu": '
        "invalid request: maximum request size for shared resources is 1; found 3"
    )
    assert "unknown device: GPU-x" in refusal(strict, ids[0], "GPU-x")
    assert visible(strict, ids[0]) == gpu(0).uuid


def test_a_refused_device_is_named_with_the_reason() -> None:
    draining = offer(gpu(0), gpu(1), refused={gpu(1).uuid: "GPU 1 becomes time-sliced"})
    assert refusal(draining, gpu(0).uuid, gpu(1).uuid) == (
        f'invalid allocation request for "nvidia.com/gpu": device {gpu(1).uuid} can\'t be given out now: '
        "GPU 1 becomes time-sliced"
    )


def test_a_refused_device_that_is_not_listed_gets_its_reason_too() -> None:
    waiting = replace(offer(gpu(0), refused={"GPU-w": "held as nvidia.com/gpu.shared"}), devices=())
    assert refusal(waiting, "GPU-w").endswith("held as nvidia.com/gpu.shared")
    assert "unknown device" in refusal(waiting, gpu(0).uuid)


def test_an_unhealthy_device_is_named_with_its_reason() -> None:
    sick = offer(replace(gpu(0), health=Health.UNHEALTHY, reason="Xid 79"), gpu(1))
    assert refusal(sick, gpu(0).uuid).endswith(f"device {gpu(0).uuid} is Unhealthy: Xid 79")
    assert visible(sick, gpu(1).uuid) == gpu(1).uuid


def test_a_retained_device_of_a_vanished_gpu_is_refused() -> None:
    known = offer(gpu(0))
    retained = replace(known, devices=(*known.devices, Device("GPU-gone::1", "GPU-gone")))
    assert "GPU-gone is gone" in refusal(retained, "GPU-gone::1")


def test_ten_thousand_shares_of_one_gpu_are_one_uuid_at_once() -> None:
    many = offer(gpu(0, 10_000))
    ids = ids_of(many)
    begin = time.process_time()
    assert visible(many, *ids) == gpu(0).uuid
    assert time.process_time() - begin < 0.1


def test_spread_gives_a_container_no_gpu_twice_and_says_which_and_why() -> None:
    """Ids that the kubelet chose against our preference (reports D2)."""
    spread = offer(gpu(0, 4), gpu(1, 4), policy=AllocationPolicy.SPREAD)
    first, second = f"{gpu(1).uuid}::0", f"{gpu(1).uuid}::3"
    assert visible(spread, first, f"{gpu(0).uuid}::0") == f"{gpu(1).uuid},{gpu(0).uuid}"
    assert visible(spread, first, first) == gpu(1).uuid  # one device, asked for twice
    assert refusal(spread, first, f"{gpu(0).uuid}::0", second) == (
        f'invalid allocation request for "nvidia.com/gpu": devices {first} and {second} are both on GPU 1 '
        f"({gpu(1).uuid}); with the allocation policy `spread` a container gets at most one device of a GPU: "
        f"ask for fewer, or set the policy `distributed`"
    )


def test_spread_counts_mig_instances_on_their_parent() -> None:
    spread = offer(mig(0, 0), mig(0, 1), mig(1, 0), policy=AllocationPolicy.SPREAD)
    assert visible(spread, mig(0, 1).uuid, mig(1, 0).uuid) == f"{mig(0, 1).uuid},{mig(1, 0).uuid}"
    assert f"are both on GPU 0 ({gpu(0).uuid})" in refusal(spread, mig(0, 0).uuid, mig(0, 1).uuid)


@pytest.mark.parametrize("policy", [AllocationPolicy.DISTRIBUTED, AllocationPolicy.PACKED])
def test_the_other_policies_refuse_no_gpu(policy: AllocationPolicy) -> None:
    shared = offer(gpu(0, 4), policy=policy)
    assert visible(shared, *ids_of(shared)) == gpu(0).uuid
