"""Which of the available devices a container should get (contract A8 to A10, design 4 and 5).

The kubelet takes the answer as a hint and fills up at random, so an answer that can't be good is left empty; it is
never an error, which would fail the pod (A10). Everything here is deterministic: the order of the offer breaks ties,
the order of the request means nothing (A11).
"""

from collections.abc import Sequence

from deviceplugin.allocation.shares import choose_shares
from deviceplugin.allocation.whole import choose_whole_gpus
from deviceplugin.model.offer import Offer
from deviceplugin.model.plan import Device, Mode


def prefer(offer: Offer, available: Sequence[str], must_include: Sequence[str], size: int) -> list[str]:
    """Exactly `size` ids that include `must_include`, all of them out of both; empty when that can't be met.

    Ids that the offer does not list are dropped. Devices that Allocate would refuse are taken only when the request
    can't be met without them. As NVIDIA's plugin answers, and unlike the rule above: more shares or MIG instances
    in `must_include` than `size` come back as they are (golden 032), and for whole GPUs an unlisted id, or one in
    `must_include` that is not available, makes the answer empty (golden 115).

    Args:
        size: the container's total, must-include ids counted (A8).
    """
    wanted = frozenset(available)
    must = [device_id for device_id in dict.fromkeys(must_include) if device_id in offer.device_by_id]
    missing = size - len(must)
    choosable = wanted.difference(must)
    free = [device for device in offer.devices if device.id in choosable]
    if _offers_whole_gpus(offer):
        listed = offer.device_by_id.keys()
        if missing < 0 or not wanted <= listed or not wanted.issuperset(must_include):
            return []
        choose = _choose_whole_gpus
    else:
        choose = choose_shares
    if missing > len(free):
        return []
    if missing <= 0:
        return must
    undeliverable = offer.undeliverable
    good = [device for device in free if device.id not in undeliverable]
    return must + choose(offer, good if len(good) >= missing else free, must, missing)


def _offers_whole_gpus(offer: Offer) -> bool:
    """Shares that drain from an earlier mode do not change what it is that a resource gives out."""
    resource = offer.resource
    whole = resource.mode is Mode.EXCLUSIVE and all(unit.profile is None for unit in resource.units)
    return whole and bool(resource.units)


def _choose_whole_gpus(offer: Offer, free: Sequence[Device], must: Sequence[str], count: int) -> list[str]:
    """`count` of `free` by the links between GPUs."""
    taken = [offer.device_by_id[device_id] for device_id in must]
    return choose_whole_gpus(offer.resource.link_scores, free, taken, count)
