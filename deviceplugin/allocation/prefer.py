"""Which of the available devices a container should get (contract A8 to A10, design 4 and 5).

The kubelet takes the answer as a hint and fills up at random, so an answer that can't be good is left empty; it is
never an error, which would fail the pod (A10). Everything here is deterministic: the order of the offer breaks ties,
the order of the request means nothing (A11).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush
from itertools import groupby

from deviceplugin.allocation.whole import choose_whole_gpus
from deviceplugin.model.ids import unit_of
from deviceplugin.model.offer import Offer
from deviceplugin.model.plan import AllocationPolicy, Device, Mode, Unit


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
        choose = _choose_shares
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


def _choose_shares(offer: Offer, free: Sequence[Device], must: Sequence[str], count: int) -> list[str]:
    """`count` of `free` by the resource's policy, over physical GPUs first and over their units within one."""
    tree = _tree(offer, free, must)
    return [tree.take() for _ in range(count)]


class _Branch:
    """Something with shares on it: a unit, a GPU with its units, or the whole resource. Taken from one by one.

    Fractions, not counts, decide: of two GPUs with 2 and 8 replicas, one share is half of the first (reports D5).
    """

    def __init__(self, policy: AllocationPolicy, position: int, total: int, picked: int) -> None:
        self.total = max(total, 1)
        self.picked = picked
        self.free = 0
        self.position = position
        self._policy = policy
        self._ids: list[str] = []
        self._branches: list[tuple[tuple[float, float, int], _Branch]] = []

    def hold(self, ids: Iterable[str]) -> None:
        """Make this a unit with `ids` free, the first to be taken first."""
        self._ids = list(ids)[::-1]
        self.free = len(self._ids)

    def grow(self, branches: Iterable[_Branch]) -> None:
        """Make this the stem of `branches`."""
        self._branches = [(branch.rank(), branch) for branch in branches if branch.free]
        heapify(self._branches)
        self.free = sum(branch.free for _, branch in self._branches)

    def rank(self) -> tuple[float, float, int]:
        """The lowest is taken from next; positions differ among siblings, so ranks never tie."""
        free_fraction = self.free / self.total
        match self._policy:
            case AllocationPolicy.DISTRIBUTED:
                return -free_fraction, self.picked, self.position
            case AllocationPolicy.PACKED:
                return free_fraction, -self.picked, self.position
            case AllocationPolicy.SPREAD:
                return self.picked, -free_fraction, self.position

    def take(self) -> str:
        """The next id. Called at most `free` times."""
        self.free -= 1
        self.picked += 1
        if not self._branches:
            return self._ids.pop()
        _, branch = heappop(self._branches)
        device_id = branch.take()
        if branch.free:
            heappush(self._branches, (branch.rank(), branch))
        return device_id


def _tree(offer: Offer, free: Sequence[Device], must: Sequence[str]) -> _Branch:
    """The offer's free shares as resource, physical GPUs, units; MIG instances stand under their parent GPU."""
    policy = offer.resource.allocation_policy
    free_of: defaultdict[str, list[str]] = defaultdict(list)
    for device in free:
        free_of[device.unit_uuid].append(device.id)
    must_of = [unit_of(device_id) for device_id in must]

    def unit_branch(position: int, unit: Unit) -> _Branch:
        branch = _Branch(policy, position, unit.replicas, must_of.count(unit.uuid))
        branch.hold(free_of.pop(unit.uuid, ()))
        return branch

    def stem(position: int, branches: Sequence[_Branch]) -> _Branch:
        branch = _Branch(policy, position, sum(b.total for b in branches), sum(b.picked for b in branches))
        branch.grow(branches)
        return branch

    units = sorted(offer.resource.units, key=lambda unit: (unit.gpu_index, unit.gpu_uuid))
    gpus = [
        stem(position, [unit_branch(slot, unit) for slot, unit in enumerate(members)])
        for position, (_, members) in enumerate(groupby(units, key=lambda unit: unit.gpu_uuid))
    ]
    for unit_uuid, ids in free_of.items():  # retained for a pod, of a unit that is gone: each on its own
        gpus.append(_Branch(policy, len(gpus), len(ids), must_of.count(unit_uuid)))
        gpus[-1].hold(ids)
    return stem(0, gpus)
