"""in force + plan + held -> what to offer next, and what waits (design 3, 4 and 8; contract section 6).

The rule for each device, whatever was listed before: it is offered as planned unless a held device of another
arrangement takes up its GPU or MIG instance; and a held device stays listed where it is, planned or not (L16-L18).
Nothing else is remembered, so applying the same plan again changes nothing, and with nothing held the plan is reached.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import cached_property

from deviceplugin.model.health import HealthReport
from deviceplugin.model.held import Held
from deviceplugin.model.ids import unit_of
from deviceplugin.model.node import Snapshot
from deviceplugin.model.offer import Offer, Waiting, Withdrawn
from deviceplugin.model.plan import Health, Plan
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
        sequence: the offers to bring into force now, in this order: without what a resource gains from another one.
        withdrawn: the ids that they withdraw. Lists of two resources reach the kubelet in any order, so that whatever
            another resource gains from these follows, by another transition, once it shows none of them (R15): at no
            moment is a GPU Healthy under two names (D7).
        in_force: what it started from.
    """

    offers: tuple[Offer, ...]
    waiting: tuple[Waiting, ...]
    sequence: tuple[Offer, ...]
    withdrawn: Withdrawn
    in_force: Mapping[str, Offer]

    @cached_property
    def after(self) -> Mapping[str, Offer]:
        """What is in force after the sequence, by name; `offers` unless something gives way."""
        return {**self.in_force, **{one.name: one for one in self.sequence}}

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
            if one.name in self.in_force and _on_the_wire(self.in_force[one.name]) != _on_the_wire(one)
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
    vanishing: Sequence[Withdrawn] = (),
) -> Transition:
    """How far a plan can come into force now.

    Args:
        in_force: what is served, by resource; empty at a start.
        plan: the goal.
        held: of our resources only (see `ours`); when it can't be known, nothing that is listed is withdrawn or moved.
        snapshot: what is known of devices that the plan no longer has: their GPU, their health.
        health: verdicts on them, as for `build`. What only a planned unit lacks (its MPS control daemon) is not among
            them: it says nothing of a device that was given out on other terms.
        vanishing: what earlier transitions withdrew and the kubelet may still show: what would gain from these waits
            on, and nothing else does.
    """
    if snapshot:
        verdicts = unhealthy(snapshot, health)
    else:
        verdicts = {unit.uuid: unit.reason for resource in plan.resources for unit in resource.units if unit.reason}
        verdicts |= health.unhealthy
    offers = NextOffers(in_force, plan, held, snapshot, verdicts)
    names = {*in_force, *(one.name for one in plan.resources), *(name for name, ids in held.ids.items() if ids)}
    steps = [offers.next(name) for name in sorted(names)]
    waiting = tuple(one for step in steps for one in offers.waiting(step))
    following = tuple(step.offer for step in steps)
    return Transition(following, waiting, *_sequence(in_force, following, offers.parents, vanishing), in_force)


def _sequence(
    in_force: Mapping[str, Offer], offers: Sequence[Offer], parents: Parents, vanishing: Sequence[Withdrawn]
) -> tuple[tuple[Offer, ...], Withdrawn]:
    """What to do now, first what withdraws; and the ids withdrawn by it, which delay what gains from them."""
    lost = {offer.name: frozenset(ids) for offer in offers if (ids := _lost(in_force.get(offer.name), offer))}
    units = {unit_of(device_id) for ids in lost.values() for device_id in ids}
    withdrawn = Withdrawn(lost, {unit: gpu for unit in units if (gpu := parents.gpu_of(unit))})
    parents = parents.knowing(one.gpu_of for one in vanishing)
    given_up: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
    for name, ids in [entry for one in (withdrawn, *vanishing) for entry in one.ids.items()]:
        for unit in {unit_of(device_id) for device_id in ids}:
            for uuid in {unit, parents.gpu_of(unit) or unit}:
                given_up[uuid].add((name, unit))

    def from_others(device_id: str, name: str) -> bool:
        uuid = unit_of(device_id)
        found = given_up[uuid] | given_up[parents.gpu_of(uuid) or uuid]
        return any(giver != name and parents.overlap(unit, uuid) for giver, unit in found)

    now = []
    for offer in offers:
        before = in_force.get(offer.name)
        if before == offer:
            continue
        late = {one for one in _gained(before, offer) if from_others(one, offer.name)}
        if not late:
            now.append(offer)
        elif before is not None:
            part = replace(offer, devices=tuple(device for device in offer.devices if device.id not in late))
            if part != before:
                now.append(part)
    now.sort(key=lambda offer: (not _lost(in_force.get(offer.name), offer), offer.name not in in_force))
    return tuple(now), withdrawn


def _on_the_wire(offer: Offer) -> list[tuple[str, Health, int | None]]:
    """What the kubelet sees of a list: no reasons."""
    return [(device.id, device.health, device.numa_node) for device in offer.devices]


def _lost(before: Offer | None, after: Offer) -> AbstractSet[str]:
    return before.device_by_id.keys() - after.device_by_id.keys() if before else frozenset()


def _gained(before: Offer | None, after: Offer) -> AbstractSet[str]:
    return after.device_by_id.keys() - (before.device_by_id.keys() if before else frozenset())
