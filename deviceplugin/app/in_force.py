"""The other end of `report`: what a status document says is in force, as the values that a plan is compared with."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from deviceplugin.model.held import Held
from deviceplugin.model.ids import unit_of
from deviceplugin.model.mps import MpsShare
from deviceplugin.model.node import Failure, Gpu, MigInstance, MigMode, Snapshot
from deviceplugin.model.offer import Offer
from deviceplugin.model.plan import Device, Mode, Resource, Terms, Unit

Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class InForce:
    """What a running plugin offers and knows, as far as a change of plan depends on it.

    Attributes:
        offers: by resource, with every id that pods hold and the terms it was given out on.
        held: what pods hold, and which pods.
        waiting: the changes that wait already, in words.
        snapshot: its GPUs and MIG instances: their identity is remembered when the driver no longer says it.
    """

    offers: Mapping[str, Offer]
    held: Held
    waiting: frozenset[str]
    snapshot: Snapshot


def in_force(status: Document) -> InForce:
    """Read a status document of this version."""
    planned = {one["name"]: one for one in (status["plan"] or {}).get("resources", ())}
    served = [one for one in status["resources"] if one["served"]]
    pods = {device_id: pod for one in served for device_id, pod in one["pods"].items()}
    held = {one["name"]: frozenset(one["held"]) for one in served}
    return InForce(
        {one["name"]: _offer(one, planned.get(one["name"])) for one in served},
        Held(held, unknown_because=status["held_unknown_because"], pods=pods),
        frozenset(one["what"] for one in status["waiting"]),
        Snapshot(gpus=tuple(_gpu(one) for one in status["gpus"])),
    )


def _offer(resource: Document, planned: Document | None) -> Offer:
    mode = Mode(resource["mode"])
    units = tuple(_units(planned)) if planned else ()
    terms = {one: Terms(Mode(on["mode"]), _share(on["mps"])) for one, on in resource["terms"].items()}
    ids = dict.fromkeys([*(one for unit in units for one in unit.device_ids()), *terms])
    devices = tuple(Device(one, unit_of(one)) for one in ids)
    return Offer(Resource(resource["name"], mode, units), devices, former_terms=terms)


def _units(resource: Document) -> Iterator[Unit]:
    for unit in resource["units"]:
        yield Unit(
            uuid=unit["uuid"],
            gpu_uuid=unit["gpu_uuid"],
            gpu_index=unit["gpu_index"],
            visible_id=unit["visible_id"],
            replicas=unit["replicas"],
            profile=unit["profile"],
            mps=_share(unit["mps"]),
        )


def _share(share: Document | None) -> MpsShare | None:
    if share is None:
        return None
    return MpsShare(share["memory_mib"], share["active_thread_percentage"], share["enforced"], share["root"])


def _gpu(gpu: Document) -> Gpu:
    mig = gpu["mig"]
    return Gpu(
        index=gpu["index"],
        uuid=gpu["uuid"],
        minor=gpu["minor"],
        pci_address=gpu["pci_address"],
        product_name=gpu["product_name"],
        memory_mib=gpu["memory_mib"],
        numa_node=gpu["numa_node"],
        mig_mode=MigMode(mig["current"], mig["pending"]) if mig else None,
        mig_instances=tuple(
            MigInstance(one["uuid"], one["slot"], None, None, one["profile"]) for one in gpu["mig_instances"]
        ),
        failure=Failure("status", gpu["problem"]) if gpu["problem"] else None,
    )
