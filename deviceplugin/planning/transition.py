"""in force + plan + held -> what to offer next, and what waits (design 3, 4 and 8; contract section 6).

The rule for each device, whatever was listed before: it is offered as planned unless a held device of another
arrangement takes up its GPU or MIG instance; and a held device stays listed where it is, planned or not (L16-L18).
Nothing else is remembered, so applying the same plan again changes nothing, and with nothing held the plan is reached.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import cached_property

from deviceplugin.model.health import HealthReport
from deviceplugin.model.held import Held
from deviceplugin.model.ids import unit_of
from deviceplugin.model.node import Snapshot
from deviceplugin.model.offer import Offer, Waiting
from deviceplugin.model.plan import Plan
from deviceplugin.planning.holders import Parents, ours
from deviceplugin.planning.next_offer import NextOffers
from deviceplugin.planning.verdict import unhealthy

__all__ = ["Transition", "ours", "transition"]

NO_REPORT = HealthReport()


@dataclass(frozen=True)
class Transition:
    """The next state and the way there.

    Attributes:
        offers: the complete next state, by name: one for each resource that must keep a server. A retired resource
            lists what is held of it, in the end nothing; its server may end then (L9, A25).
        waiting: the changes of plan that wait, by resource.
        sequence: the offers to bring into force, in this order. A resource that gives up one GPU for another may
            stand in it twice, first without what it gains: so no GPU is Healthy under two names at any moment (D7).
        in_force: what it started from.
    """

    offers: tuple[Offer, ...]
    waiting: tuple[Waiting, ...]
    sequence: tuple[Offer, ...]
    in_force: Mapping[str, Offer]

    @cached_property
    def unchanged(self) -> frozenset[str]:
        """Resources whose offer is equal: no list, not touched."""
        return frozenset(one.name for one in self.offers if self.in_force.get(one.name) == one)

    @cached_property
    def new(self) -> frozenset[str]:
        """Resources that need a server and a registration."""
        return frozenset(one.name for one in self.offers if one.name not in self.in_force)

    @cached_property
    def listed(self) -> frozenset[str]:
        """Resources that are in force and whose list changes, in ids or health."""
        return frozenset(
            one.name
            for one in self.offers
            if one.name in self.in_force and self.in_force[one.name].devices != one.devices
        )

    @cached_property
    def shrinking(self) -> frozenset[str]:
        """Resources in force whose list loses ids."""
        return frozenset(one.name for one in self.offers if _lost(self.in_force.get(one.name), one))

    @cached_property
    def growing(self) -> frozenset[str]:
        """Resources in force whose list gains ids."""
        return frozenset(
            one.name for one in self.offers if one.name in self.in_force and _gained(self.in_force[one.name], one)
        )


def transition(
    in_force: Mapping[str, Offer],
    plan: Plan,
    held: Held,
    *,
    snapshot: Snapshot | None = None,
    health: HealthReport = NO_REPORT,
) -> Transition:
    """How far a plan can come into force now.

    Args:
        in_force: what is served, by resource; empty at a start.
        plan: the goal.
        held: of our resources only (see `ours`); when it can't be known, nothing that is listed is withdrawn or moved.
        snapshot: what is known of devices that the plan no longer has: their GPU, their health.
        health: verdicts on them, as for `build`.
    """
    verdicts = {unit.uuid: unit.reason for resource in plan.resources for unit in resource.units if unit.reason}
    verdicts |= unhealthy(snapshot, health) if snapshot else health.unhealthy
    offers = NextOffers(in_force, plan, held, snapshot, verdicts)
    names = {*in_force, *(one.name for one in plan.resources), *(name for name, ids in held.ids.items() if ids)}
    steps = [offers.next(name) for name in sorted(names)]
    waiting = tuple(one for step in steps for one in offers.waiting(step))
    following = tuple(step.offer for step in steps)
    return Transition(following, waiting, tuple(_sequence(in_force, following, offers.parents)), in_force)


def _sequence(in_force: Mapping[str, Offer], offers: Sequence[Offer], parents: Parents) -> Iterator[Offer]:
    """What withdraws, then what adds; what does both at once is split only where another resource gave the GPU up."""
    given_up: defaultdict[str, set[str]] = defaultdict(set)
    given_up_on: defaultdict[str, set[str]] = defaultdict(set)
    for offer in offers:
        for uuid in {unit_of(one) for one in _lost(in_force.get(offer.name), offer)}:
            given_up[uuid].add(offer.name)
            if (gpu := parents.gpu_of(uuid)) is not None:
                given_up_on[gpu].add(offer.name)

    def comes_from_elsewhere(device_id: str, name: str) -> bool:
        uuid = unit_of(device_id)
        givers = given_up[uuid] | given_up_on[uuid] | given_up[parents.gpu_of(uuid) or uuid]
        return bool(givers - {name})

    later = []
    for offer in offers:
        before = in_force.get(offer.name)
        if before == offer:
            continue
        late = {one for one in _gained(before, offer) if comes_from_elsewhere(one, offer.name)}
        if not _lost(before, offer):
            later.append(offer)
        elif late:
            yield replace(offer, devices=tuple(device for device in offer.devices if device.id not in late))
            later.append(offer)
        else:
            yield offer
    yield from sorted(later, key=lambda offer: offer.name not in in_force)


def _lost(before: Offer | None, after: Offer) -> AbstractSet[str]:
    return before.device_by_id.keys() - after.device_by_id.keys() if before else frozenset()


def _gained(before: Offer | None, after: Offer) -> AbstractSet[str]:
    return after.device_by_id.keys() - (before.device_by_id.keys() if before else frozenset())
