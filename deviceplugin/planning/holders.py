"""Who stands in the way: held devices, by the GPU or MIG instance that they take up."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from deviceplugin.model.held import Held
from deviceplugin.model.ids import is_replica, unit_of
from deviceplugin.model.node import Snapshot
from deviceplugin.model.offer import Offer
from deviceplugin.model.plan import Mode, Plan, Resource, Terms

_HEX = "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"
_OUR_ID = re.compile(rf"(GPU-{_HEX}|MIG-{_HEX}|MIG-GPU-{_HEX}/\d+/\d+)(::\d+)?")
_LEGACY_MIG = re.compile(r"MIG-(GPU-[^/]+)/\d+/\d+")

Arrangement = tuple[str, Terms]
"""A way to offer a GPU or MIG instance: under which name, on which terms."""


def ours(held: Held, names: AbstractSet[str] = frozenset()) -> Held:
    """The held ids that this plugin, an earlier run of it or NVIDIA's plugin gave out.

    Others' resources must be left alone: to list them we would have to register their name, which takes it from them
    (contract R11). A resource is ours when it is in `names`, or when each of its held ids has NVIDIA's form
    (drop-in.md 1): a UUID as the driver spells it, with or without `::n`.

    Args:
        names: resources that are in force or planned.
    """

    def is_ours(name: str, ids: AbstractSet[str]) -> bool:
        return name in names or all(_OUR_ID.fullmatch(one) for one in ids)

    ids = {name: ids for name, ids in held.ids.items() if ids and is_ours(name, ids)}
    return replace(held, ids=ids)


class Parents:
    """Which GPU a MIG instance is on, from all that is known of it.

    Args:
        sources: UUID of a MIG instance or GPU -> UUID of its GPU.
    """

    def __init__(self, sources: Mapping[str, str]) -> None:
        self._parents = sources

    @classmethod
    def of(cls, resources: Iterable[Resource], snapshot: Snapshot | None) -> "Parents":
        """From what is in force, what is planned and what the driver says."""
        parents = {unit.uuid: unit.gpu_uuid for resource in resources for unit in resource.units}
        for gpu in snapshot.gpus if snapshot else ():
            parents |= {one.uuid: gpu.uuid for one in gpu.mig_instances if gpu.uuid}
        return cls(parents)

    def knowing(self, others: Iterable[Mapping[str, str]]) -> "Parents":
        """These, and what is known of others: MIG instance -> its GPU."""
        return Parents({**{uuid: gpu for known in others for uuid, gpu in known.items()}, **self._parents})

    def gpu_of(self, uuid: str) -> str | None:
        """The UUID of the GPU that a MIG instance is on; None for a GPU itself and when nothing knows it."""
        legacy = _LEGACY_MIG.fullmatch(uuid)
        gpu = self._parents.get(uuid) or (legacy[1] if legacy else None)
        return None if gpu == uuid else gpu

    def overlap(self, first: str, second: str) -> bool:
        """The same GPU or MIG instance, or parent and child; never siblings (design 5)."""
        return first == second or self.gpu_of(first) == second or self.gpu_of(second) == first


@dataclass(frozen=True, slots=True)
class Occupied:
    """Devices that must stay listed: pods hold them, or may.

    Attributes:
        terms: resource -> id -> the terms that it was handed out on.
    """

    terms: Mapping[str, Mapping[str, Terms]]
    _on_unit: Mapping[str, AbstractSet[Arrangement]]
    _on_instances_of: Mapping[str, AbstractSet[Arrangement]]
    _parents: Parents

    @classmethod
    def of(cls, in_force: Mapping[str, Offer], plan: Plan, held: Held, parents: Parents) -> "Occupied":
        """What is held; when that is not known, everything that is listed."""
        terms_of: dict[str, dict[str, Terms]] = {}
        on_unit: defaultdict[str, set[Arrangement]] = defaultdict(set)
        on_instances_of: defaultdict[str, set[Arrangement]] = defaultdict(set)
        for name in sorted({*in_force, *held.ids}):
            offer, planned = in_force.get(name), plan.resource(name)
            ids = set(held.of(name))
            if held.unknown_because and offer is not None:
                ids |= offer.device_by_id.keys()
            terms_of[name] = {one: terms_of_held(one, offer, planned) for one in sorted(ids)}
            for one, terms in terms_of[name].items():
                on_unit[unit_of(one)].add((name, terms))
                if (gpu := parents.gpu_of(unit_of(one))) is not None:
                    on_instances_of[gpu].add((name, terms))
        return cls(terms_of, on_unit, on_instances_of, parents)

    def against(self, unit_uuid: str, arrangement: Arrangement) -> set[str]:
        """The resources whose held devices keep a GPU or MIG instance from being offered in an arrangement.

        Other shares of the same one in the same arrangement don't; its GPU, or an instance on it, does in any.
        """
        blocking = {one for one in self._on_unit.get(unit_uuid, ()) if one != arrangement}
        blocking |= self._on_instances_of.get(unit_uuid, frozenset())
        if (gpu := self._parents.gpu_of(unit_uuid)) is not None:
            blocking |= self._on_unit.get(gpu, frozenset())
        return {name for name, _ in blocking}


def terms_of_held(device_id: str, offer: Offer | None, planned: Resource | None) -> Terms:
    """The terms on which a held id was given out; at a start nothing says them but the id's form and the plan.

    Args:
        offer: the resource as it is in force.
        planned: the same resource in the plan.
    """
    if offer is not None and device_id in offer.device_by_id:
        terms = offer.former_terms.get(device_id) or _as_offered(device_id, offer.resource)
        if terms.mode is not Mode.MPS or terms.mps is not None:
            return terms
        # The limits of a GPU that had failed: what the plan knows by now is what its daemon has.
    if not is_replica(device_id):
        return Terms(Mode.EXCLUSIVE)
    known = (planned, offer.resource if offer is not None else None)
    shared = (_as_offered(device_id, one) for one in known if one is not None and one.mode is not Mode.EXCLUSIVE)
    return next(shared, Terms(Mode.TIME_SLICING))


def _as_offered(device_id: str, resource: Resource) -> Terms:
    uuid = unit_of(device_id)
    return Terms(resource.mode, next((unit.mps for unit in resource.units if unit.uuid == uuid), None))
