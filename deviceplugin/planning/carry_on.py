"""The last good plan on a node that the config no longer fits: it offers what it offered, in the health of now."""

from collections.abc import Iterator
from dataclasses import replace

from deviceplugin.config.model import Config
from deviceplugin.model.health import HealthReport
from deviceplugin.model.node import Snapshot
from deviceplugin.model.plan import Health, LeftOut, Plan, Unit
from deviceplugin.planning.build import NO_REPORT, planned_unit
from deviceplugin.planning.candidate import Candidate, describe
from deviceplugin.planning.delivering import delivery, not_to_be_given

GONE = "the driver no longer reports it"
NOT_PLANNED = "the config does not fit this node as it is now, so nothing new is offered"


def carry_on(
    plan: Plan, snapshot: Snapshot, config: Config, health: HealthReport = NO_REPORT, *, cdi_problem: str = ""
) -> Plan:
    """Keep a plan in force where `build` refuses to make another (design 3: a failed plan changes nothing).

    What is offered stays, but no plan outlives the health of its devices: a GPU that fails or goes is Unhealthy, and
    what its containers get (index, device files, NUMA node) is what the driver says now.

    Args:
        plan: the last good one.
        snapshot, config, health, cdi_problem: as for `build`, which raised ConfigError on them.
    """
    present = {
        one.uuid: one
        for gpu in snapshot.gpus
        for one in (Candidate(gpu, instance, "", "") for instance in (None, *gpu.mig_instances))
        if one.uuid
    }
    verdicts = not_to_be_given(present.values(), snapshot, config.flags, health, cdi_problem)
    delivered = delivery(snapshot, config.flags)

    def as_of_now(unit: Unit) -> Unit:
        if unit.uuid not in present:
            return replace(unit, health=Health.UNHEALTHY, reason=GONE)
        return planned_unit(present[unit.uuid], unit.replicas, verdicts, config, unit.mps)

    resources = tuple(
        replace(one, units=tuple(map(as_of_now, one.units)), delivery=delivered) for one in plan.resources
    )
    return replace(plan, resources=resources, left_out=tuple(_left_out(plan, snapshot)))


def _left_out(plan: Plan, snapshot: Snapshot) -> Iterator[LeftOut]:
    """What was left out and still is there, then the GPUs that the plan says nothing of."""
    offered = {uuid for one in plan.resources for unit in one.units for uuid in (unit.uuid, unit.gpu_uuid)}
    of_gpu = {gpu: [describe(gpu, one) for one in (None, *gpu.mig_instances)] for gpu in snapshot.gpus}
    still_here = {what for all_of_one in of_gpu.values() for what in all_of_one}
    kept = [one for one in plan.left_out if one.what in still_here]
    named = {one.what for one in kept}
    yield from kept
    for gpu, all_of_one in of_gpu.items():
        if gpu.uuid not in offered and named.isdisjoint(all_of_one):
            yield LeftOut(gpu.describe(), gpu.uuid, NOT_PLANNED)
