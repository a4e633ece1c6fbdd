"""What one resource offers next, given what is held of it and of everything else."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from deviceplugin.model.held import Held
from deviceplugin.model.ids import is_replica, unit_of
from deviceplugin.model.node import Snapshot
from deviceplugin.model.offer import Offer, Waiting
from deviceplugin.model.plan import Device, Health, Mode, Plan, Resource, Terms, Unit
from deviceplugin.planning.holders import Occupied, Parents

MOST_IDS_NAMED = 8
"""A message names so many ids and counts the others."""


@dataclass(frozen=True, slots=True)
class Next:
    """The next offer of a resource.

    Attributes:
        retained: ids that are listed only because pods hold them, or may.
    """

    offer: Offer
    retained: tuple[str, ...]


@dataclass(slots=True)
class _Draft:
    """An offer in the making."""

    units: list[Unit] = field(default_factory=list)
    devices: list[Device] = field(default_factory=list)
    draining: set[str] = field(default_factory=set)
    refused: dict[str, str] = field(default_factory=dict)


class NextOffers:
    """Works out the next offers, resource by resource.

    Args:
        in_force, plan, held, snapshot: as for `transition`.
        verdicts: UUID -> why the GPU or MIG instance is unhealthy.
    """

    def __init__(
        self,
        in_force: Mapping[str, Offer],
        plan: Plan,
        held: Held,
        snapshot: Snapshot | None,
        verdicts: Mapping[str, str],
    ) -> None:
        self.parents = Parents.of((*(one.resource for one in in_force.values()), *plan.resources), snapshot)
        self._in_force = in_force
        self._plan = plan
        self._unknown_because = held.unknown_because
        self._ends_unseen_because = held.ends_unseen_because
        self._verdicts = verdicts
        self._occupied = Occupied.of(in_force, plan, held, self.parents)
        self._planned = {unit.uuid: (one, unit) for one in plan.resources for unit in one.units}
        self._planned_on: defaultdict[str, set[str]] = defaultdict(set)
        for resource, unit in self._planned.values():
            if unit.gpu_uuid != unit.uuid:
                self._planned_on[unit.gpu_uuid].add(resource.name)
        self._facts = _facts(snapshot, in_force, self._planned)
        self._present = _present(snapshot)

    def next(self, name: str) -> Next:
        """The next offer of a resource that is in force, planned or held."""
        before, planned = self._in_force.get(name), self._plan.resource(name)
        if (
            self._unknown_because
            and before is not None
            and planned is not None
            and planned.mode is not before.resource.mode
        ):
            # What is listed may be given out any moment, so it needs the answers of its own mode.
            planned = None
        draft = _Draft()
        for unit in planned.units if planned else ():
            self._offer(unit, name, Terms(planned.mode if planned else Mode.EXCLUSIVE, unit.mps), draft)
        terms = self._occupied.terms.get(name, {})
        listed = {device.id for device in draft.devices}
        retained = tuple(sorted(set(terms) - listed, key=_by_number))
        for device_id in retained:
            self._retain(device_id, name, terms[device_id], before, draft)
        resource = _resource(name, planned, before, retained, draft.units)
        now = {unit.uuid: Terms(resource.mode, unit.mps) for unit in resource.units} if retained else {}
        former = {one: terms[one] for one in retained if terms[one] != now.get(unit_of(one), Terms(resource.mode))}
        offer = Offer(
            resource,
            _in_order(draft.devices, resource) if retained else tuple(draft.devices),
            frozenset(draft.draining),
            MappingProxyType(draft.refused),
            MappingProxyType(former),
        )
        return Next(before if before == offer and before is not None else offer, retained)

    def waiting(self, step: Next) -> Iterator[Waiting]:
        """The changes that what is retained holds up, one for each GPU or MIG instance."""
        name = step.offer.name
        ids: defaultdict[str, list[str]] = defaultdict(list)
        for device_id in step.retained:
            ids[unit_of(device_id)].append(device_id)
        for unit_uuid, own in ids.items():
            what = self._change(unit_uuid, name, self._occupied.terms[name][own[0]])
            if self._unknown_because:
                waits_for = f"knowledge of what pods hold: {self._unknown_because}"
            else:
                waits_for = f"{len(own)} held device{'s' if len(own) > 1 else ''}: {_named(own)}"
                if self._ends_unseen_because:
                    waits_for += f"; whether their pods have ended cannot be seen: {self._ends_unseen_because}"
            yield Waiting(name, what, waits_for, tuple(own))

    def _offer(self, unit: Unit, name: str, terms: Terms, draft: _Draft) -> None:
        """Lists a planned unit, or of one that waits for holders elsewhere only what is held already."""
        blockers = self._occupied.against(unit.uuid, (name, terms))
        held = self._occupied.terms.get(name, {}) if blockers else {}
        ids = [one for one in unit.device_ids() if not blockers or held.get(one) == terms]
        if ids:
            draft.units.append(unit)
        draft.devices += [Device(one, unit.uuid, unit.health, unit.reason, unit.numa_node) for one in ids]
        if blockers:
            holders = ", ".join(sorted(blockers))
            draft.refused |= dict.fromkeys(ids, f"{unit.uuid} is taken up by devices held under {holders}")

    def _retain(self, device_id: str, name: str, terms: Terms, before: Offer | None, draft: _Draft) -> None:
        """Lists an id for the pod that holds it, or may hold it."""
        uuid = unit_of(device_id)
        verdict = self._verdicts.get(uuid) or self._verdicts.get(self.parents.gpu_of(uuid) or "", "")
        old = before.device_by_id.get(device_id) if before else None
        unit = before.unit_by_uuid.get(uuid) if before else None
        if unit is not None and all(one.uuid != uuid for one in draft.units):
            draft.units.append(unit)
        numa_node = old.numa_node if old else self._facts[uuid].numa_node if uuid in self._facts else None
        if self._present is not None and uuid not in self._present:
            # Not to be listed Healthy, however young the registration is: there is nothing left to run on.
            verdict = verdict or "the driver no longer reports it"
        if self._unknown_because and before is not None and old is not None and device_id not in before.refused:
            # Nobody knows whether it is held: it stays what it was, so that nothing shrinks.
            reason = verdict
        else:
            why = f"draining: {self._change(uuid, name, terms)}; it stays listed until the pod that holds it has ended"
            draft.refused[device_id] = why
            reason = verdict or why
            if not verdict:
                draft.draining.add(device_id)
        health = Health.UNHEALTHY if reason else Health.HEALTHY
        draft.devices.append(Device(device_id, uuid, health, reason, numa_node))

    def _change(self, uuid: str, name: str, terms: Terms) -> str:
        """What the plan does with a GPU or MIG instance that `name` offers on `terms`."""
        return f"{self._subject(uuid)}: {self._goal(uuid, name, terms)}"

    def _goal(self, uuid: str, name: str, terms: Terms) -> str:
        if uuid in self._planned:
            resource, unit = self._planned[uuid]
            if resource.name != name:
                return f"{name} -> {resource.name}"
            planned = Terms(resource.mode, unit.mps)
            if planned.mode is not terms.mode:
                return f"{name}: {terms.mode} -> {planned.mode}"
            if planned != terms:
                return f"{name}: {terms.describe()} -> {planned.describe()}"
            return f"{name}: {unit.replicas} replicas from now on"
        others = self._planned_on.get(uuid, set())
        gpu = self.parents.gpu_of(uuid)
        if gpu in self._planned:
            others = {self._planned[gpu][0].name}
        return f"{name} -> {', '.join(sorted(others)) or 'no longer offered'}"

    def _subject(self, uuid: str) -> str:
        unit = self._facts.get(uuid)
        if unit is None:
            return uuid
        return f"GPU {unit.gpu_index}" if unit.profile is None else f"MIG instance {uuid} of GPU {unit.gpu_index}"


@dataclass(frozen=True, slots=True)
class _Facts:
    """What messages and lists say of a GPU or MIG instance that may not be planned any more."""

    gpu_index: int
    profile: str | None
    numa_node: int | None


def _facts(
    snapshot: Snapshot | None, in_force: Mapping[str, Offer], planned: Mapping[str, tuple[Resource, Unit]]
) -> dict[str, _Facts]:
    units = [unit for offer in in_force.values() for unit in offer.resource.units]
    units += [unit for _, unit in planned.values()]
    facts = {unit.uuid: _Facts(unit.gpu_index, unit.profile, unit.numa_node) for unit in units}
    for gpu in snapshot.gpus if snapshot else ():
        if gpu.uuid:
            facts[gpu.uuid] = _Facts(gpu.index, None, gpu.numa_node)
        facts |= {one.uuid: _Facts(gpu.index, one.profile or "", gpu.numa_node) for one in gpu.mig_instances}
    return facts


def _present(snapshot: Snapshot | None) -> frozenset[str] | None:
    """The UUIDs that the driver reports; None when nothing is known of that."""
    if snapshot is None:
        return None
    gpus = {gpu.uuid for gpu in snapshot.gpus if gpu.uuid}
    return frozenset(gpus | {one.uuid for gpu in snapshot.gpus for one in gpu.mig_instances})


def _resource(
    name: str, planned: Resource | None, before: Offer | None, retained: Sequence[str], units: Sequence[Unit]
) -> Resource:
    """The resource that answers are made from, with the units that are listed."""
    base = planned or (before.resource if before else None)
    if base is None:
        # Held of an earlier run or of NVIDIA's plugin, and not planned: listed only, never given out again.
        shared = any(is_replica(one) for one in retained)
        base = Resource(name, Mode.TIME_SLICING if shared else Mode.EXCLUSIVE, (), origin="held by pods")
    own = tuple(sorted(units, key=lambda unit: unit.gpu_index))
    return base if own == base.units else replace(base, units=own)


def _in_order(devices: Sequence[Device], resource: Resource) -> tuple[Device, ...]:
    """By unit and replica as a plan lists them; last what no unit is known of."""
    place = {unit.uuid: number for number, unit in enumerate(resource.units)}
    return tuple(sorted(devices, key=lambda one: (place.get(one.unit_uuid, len(place)), *_by_number(one.id))))


def _by_number(device_id: str) -> tuple[str, int, str]:
    uuid, _, number = device_id.partition("::")
    return uuid, int(number) if number.isdecimal() else -1, device_id


def _named(ids: Sequence[str]) -> str:
    more = len(ids) - MOST_IDS_NAMED
    return ", ".join(ids[:MOST_IDS_NAMED]) + (f" and {more} more" if more > 0 else "")
