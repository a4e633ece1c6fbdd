"""Which shares or MIG instances a container should get: by the policy of their resource, over physical GPUs first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush
from itertools import groupby

from deviceplugin.model.ids import unit_of
from deviceplugin.model.offer import Offer
from deviceplugin.model.plan import AllocationPolicy, Device, Mode, Unit


def choose_shares(offer: Offer, free: Sequence[Device], must: Sequence[str], count: int) -> list[str]:
    """The ids of `count` devices of `free`, by the resource's policy over GPUs and over the units within one.

    `distributed` takes from what has the greatest part of its devices free, `packed` from what has the least, and
    `spread` from what the container has least of. MPS shares of one container come from one GPU wherever one has
    enough free, since Allocate refuses others (design 5).

    Args:
        free: at least `count` devices of the offer, in its order.
        must: ids that the container gets besides.
    """
    if offer.resource.mode is Mode.MPS and not offer.resource.refuse_more_than_one:
        free = _of_one_gpu(offer, free, must, count)
    tree = _tree(offer, free, must)
    return [tree.take() for _ in range(count)]


def _of_one_gpu(offer: Offer, free: Sequence[Device], must: Sequence[str], count: int) -> Sequence[Device]:
    """The devices of the GPU that the policy takes from first, of those that can give all; else `free`."""
    taken = {unit_of(device_id) for device_id in must}
    free_of = _by_unit(free)
    enough = [
        device for uuid, devices in free_of.items() if len(devices) >= count and taken <= {uuid} for device in devices
    ]
    return free_of[unit_of(_tree(offer, enough, must).take())] if enough else free


def _by_unit(devices: Sequence[Device]) -> dict[str, list[Device]]:
    found: defaultdict[str, list[Device]] = defaultdict(list)
    for device in devices:
        found[device.unit_uuid].append(device)
    return found


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
    free_of = {uuid: [device.id for device in devices] for uuid, devices in _by_unit(free).items()}
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
