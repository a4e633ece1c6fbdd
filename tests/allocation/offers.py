"""Offers made for the tests."""

from collections.abc import Mapping

from deviceplugin.model.links import NO_LINK_SCORES, LinkScores
from deviceplugin.model.offer import Offer
from deviceplugin.model.plan import AllocationPolicy, Mode, Resource, Unit


def gpu(index: int, replicas: int = 0, *, visible_id: str | None = None, numa_node: int | None = None) -> Unit:
    """GPU `index`, whole or in replicas."""
    uuid = f"GPU-{index:08x}-0000-4000-8000-000000000000"
    return Unit(uuid, uuid, index, visible_id or uuid, replicas, numa_node=numa_node)


def mig(parent: int, instance: int, replicas: int = 0) -> Unit:
    """MIG instance `instance` of GPU `parent`, whole or in replicas."""
    uuid = f"MIG-{parent:08x}-{instance:04x}-4000-8000-000000000000"
    return Unit(uuid, gpu(parent).uuid, parent, uuid, replicas, profile="1g.5gb")


def offer(
    *units: Unit,
    name: str = "nvidia.com/gpu",
    policy: AllocationPolicy = AllocationPolicy.DISTRIBUTED,
    refuse_more_than_one: bool = False,
    refused: Mapping[str, str] | None = None,
    link_scores: LinkScores = NO_LINK_SCORES,
    shared_by: Mode = Mode.TIME_SLICING,
) -> Offer:
    """An offer of everything on `units`."""
    mode = shared_by if any(unit.replicas for unit in units) else Mode.EXCLUSIVE
    resource = Resource(name, mode, units, policy, refuse_more_than_one, link_scores=link_scores)
    return Offer(resource, resource.devices, refused=refused or {})


def ids_of(an_offer: Offer) -> list[str]:
    """Every listed id, in order."""
    return [device.id for device in an_offer.devices]
