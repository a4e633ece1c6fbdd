"""The document behind `plan`: what each resource has and isolates, what is left out and why, what would change.

Keys are added without notice; DOCUMENT_VERSION rises when one changes meaning or goes away.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from deviceplugin.config.model import Config
from deviceplugin.model.mps import MpsShare
from deviceplugin.model.node import Snapshot
from deviceplugin.model.plan import AllocationPolicy, Health, LeftOut, Mode, Plan, Resource, Unit
from deviceplugin.model.words import counted
from deviceplugin.planning.message import largest_replicas
from deviceplugin.planning.mps import beyond_together
from deviceplugin.planning.nvidia import otherwise

DOCUMENT_VERSION = 1

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Isolation:
    """What keeps the pods that share a GPU or MIG instance apart: `no`, `limited` or `hardware`.

    Attributes:
        memory: whether one can use up another's memory.
        faults: whether a fault of one ends another.
        time: whether one can take another's computing time.
        why: the mechanism, or its absence.
    """

    memory: str
    faults: str
    time: str
    why: str


# Sources: NVIDIA's MPS documentation (memory limits and active thread percentage per client process, shared fault
# domain) and MIG user guide; time-slicing is the driver's own switching between processes (reports D1, F1).
ISOLATION: Mapping[Mode, Isolation] = {
    Mode.EXCLUSIVE: Isolation("hardware", "hardware", "hardware", "one pod has the whole GPU or MIG instance"),
    Mode.TIME_SLICING: Isolation("no", "no", "no", "the driver switches between processes; any may use all memory"),
    Mode.MPS: Isolation("limited", "no", "limited", "MPS limits memory and threads per process, not per container"),
}

WINDOW = (
    "after a change the scheduler sees the old numbers for up to 10.4 s: pods that ask for a device that was just "
    "withdrawn can fail in that time"
)
PER_PROCESS = "the limits hold for each process of a container, not for the container as a whole"
USERS = (
    "a control daemon serves one user id at a time unless it runs with -multiuser-server, as our supervisor starts it; "
    "where it can't, pods of different user ids on one GPU wait for each other, for ever if need be"
)
ADVISORY = (
    "failRequestsGreaterThanOne is false, so a container may take several shares and the MPS limits are advisory: "
    "a pod can override them in its environment"
)


def explain(snapshot: Snapshot, config: Config, plan: Plan) -> Document:
    """Everything that a plan says, as JSON-serialisable values.

    Args:
        snapshot, config: what the plan was built from.
    """
    indices = {one.uuid: f"{gpu.index}:{one.slot}" for gpu in snapshot.gpus for one in gpu.mig_instances}
    return {
        "version": DOCUMENT_VERSION,
        "node": {
            "driver_version": snapshot.driver_version,
            "cuda_version": snapshot.cuda_version,
            "gpus": len(snapshot.gpus),
        },
        "config": {
            "source": config.source,
            "migStrategy": config.flags.mig_strategy.value,
            "failOnInitError": config.flags.fail_on_init_error,
        },
        "resources": [_resource(one, indices) for one in plan.resources],
        "left_out": [_left_out(one) for one in plan.left_out],
        "warnings": [*config.warnings, *plan.warnings],
        "layout_problems": list(plan.layout_problems),
        "nvidia_otherwise": [asdict(one) for one in otherwise(config)],
        "notes": [WINDOW],
    }


def difference(planned: Mapping[str, Any], in_force: Mapping[str, Any]) -> list[str]:
    """What would change if a plan came into force, as lines for people; none if nothing would.

    Only what the config decides: health is another's to say (`unhealthy`).

    Args:
        planned, in_force: documents of `explain`; a document of another version is reported as the only difference.
    """
    if planned.get("version") != in_force.get("version"):
        return [f"documents of version {planned.get('version')} and {in_force.get('version')} can't be compared"]
    new = {one["name"]: one for one in planned["resources"]}
    old = {one["name"]: one for one in in_force["resources"]}
    lines = []
    for name in sorted(new.keys() | old.keys()):
        if name not in old:
            lines.append(f"+ {name}: {_summary(new[name])}")
        elif name not in new:
            lines.append(f"- {name}: {_summary(old[name])}")
        else:
            lines += [f"~ {name}: {change}" for change in _changes(old[name], new[name])]
    return [*lines, *_left_out_changes(planned["left_out"], in_force["left_out"])]


def unhealthy(in_force: Mapping[str, Any]) -> list[str]:
    """The GPUs and MIG instances of a document that are Unhealthy, as lines for people: each reason once.

    Args:
        in_force: a document of `explain`.
    """
    by_reason: dict[tuple[str, str], list[str]] = {}
    for resource in in_force["resources"]:
        for unit in resource["units"]:
            if unit["health"] != Health.HEALTHY.value:
                what = f"MIG instance {unit['index']}" if unit["profile"] else f"GPU {unit['index']}"
                by_reason.setdefault((resource["name"], unit["reason"]), []).append(what)
    return [f"{name}: {', '.join(what)}: {reason}" for (name, reason), what in by_reason.items()]


def _resource(resource: Resource, indices: Mapping[str, str]) -> Document:
    shared = resource.mode is not Mode.EXCLUSIVE
    healthy = [unit for unit in resource.units if unit.health is Health.HEALTHY]
    notes = [PER_PROCESS, USERS] if resource.mode is Mode.MPS else []
    if resource.mode is Mode.MPS and not resource.refuse_more_than_one:
        notes.append(ADVISORY)
    return {
        "name": resource.name,
        "mode": resource.mode.value,
        "devices": _count(resource.units),
        "healthy": _count(healthy),
        "isolation": asdict(ISOLATION[resource.mode]),
        "refuse_more_than_one": resource.refuse_more_than_one,
        "allocation_policy": resource.allocation_policy.value,
        "origin": resource.origin,
        "largest_replicas": largest_replicas(resource.units) if shared else None,
        "units": [_unit(unit, indices.get(unit.uuid, str(unit.gpu_index))) for unit in resource.units],
        "link_scores": [list(row) for row in resource.link_scores.rows],
        "notes": [*notes, *beyond_together(resource), *_spread(resource)],
    }


def _spread(resource: Resource) -> Iterator[str]:
    """What the policy `spread` lets a container have, where devices are less than GPUs."""
    parts_of_gpus = any(unit.replicas or unit.profile for unit in resource.units)
    if parts_of_gpus and resource.allocation_policy is AllocationPolicy.SPREAD:
        gpus = len({unit.gpu_uuid for unit in resource.units})
        yield (
            f"the allocation policy is `spread`: a container gets at most one device of a GPU, so at most {gpus} in "
            f"all; one that asks for more fails"
        )


def _count(units: tuple[Unit, ...] | list[Unit]) -> int:
    """How many devices they make, without making any."""
    return sum(max(1, unit.replicas) for unit in units)


def _unit(unit: Unit, index: str) -> Document:
    return {
        "uuid": unit.uuid,
        "index": index,
        "gpu_uuid": unit.gpu_uuid,
        "gpu_index": unit.gpu_index,
        "visible_id": unit.visible_id,
        "profile": unit.profile,
        "product_name": unit.product_name,
        "memory_mib": unit.memory_mib,
        "numa_node": unit.numa_node,
        "replicas": unit.replicas,
        "mps": share_document(unit.mps) if unit.mps else None,
        "health": unit.health.value,
        "reason": unit.reason,
    }


def share_document(share: MpsShare) -> Document:
    """What an MPS share gives, as JSON-serialisable values."""
    return {
        "memory_mib": share.memory_mib,
        "active_thread_percentage": share.active_thread_percentage,
        "enforced": share.enforced,
        "root": share.root,
    }


def _left_out(one: LeftOut) -> Document:
    return {"what": one.what, "uuid": one.uuid, "reason": one.reason}


def _summary(resource: Mapping[str, Any]) -> str:
    return f"{counted(resource['devices'], 'device')}, {resource['mode']}"


def _changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    for key in ("mode", "devices"):
        if old[key] != new[key]:
            yield f"{key} {old[key]} -> {new[key]}"
    for key, word in (
        ("refuse_more_than_one", "failRequestsGreaterThanOne"),
        ("allocation_policy", "allocationPolicy"),
    ):
        if old[key] != new[key]:
            yield f"{word} {_yaml(old[key])} -> {_yaml(new[key])}"
    before, after = ({unit["uuid"]: unit for unit in one["units"]} for one in (old, new))
    for verb, units in (("gains", after.keys() - before.keys()), ("gives up", before.keys() - after.keys())):
        if units:
            named = sorted((_place(unit), _name(unit)) for unit in ((after | before)[uuid] for uuid in units))
            yield f"{verb} {', '.join(name for _, name in named)}"
    for uuid in sorted(before.keys() & after.keys(), key=lambda uuid: _place(after[uuid])):
        if before[uuid]["replicas"] != after[uuid]["replicas"]:
            yield f"{_name(after[uuid])}: replicas {before[uuid]['replicas']} -> {after[uuid]['replicas']}"
        elif change := _shares(before[uuid]["mps"], after[uuid]["mps"], same_mode=old["mode"] == new["mode"]):
            yield f"{_name(after[uuid])}: {change}"
        elif before[uuid]["visible_id"] != after[uuid]["visible_id"]:
            yield f"{_name(after[uuid])}: told as {before[uuid]['visible_id']} -> {after[uuid]['visible_id']}"


def _shares(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None, *, same_mode: bool) -> str:
    """What changes in the MPS share of a GPU. In one mode a share is missing only while its GPU has failed."""
    if before == after or (same_mode and (before is None or after is None)):
        return ""
    limits = f"{_limits(before)} -> {_limits(after)}"
    if before and after and before["root"] != after["root"]:
        root = f"mpsRoot {before['root']} -> {after['root']}"
        return root if _limits(before) == _limits(after) else f"{limits}, {root}"
    return limits


def _place(unit: Mapping[str, Any]) -> tuple[int, str]:
    """For the order in which people count: by GPU."""
    return unit["gpu_index"], unit["uuid"]


def _limits(share: Mapping[str, Any] | None) -> str:
    if share is None:
        return "no MPS limits"
    advisory = "" if share["enforced"] else ", advisory"
    return f"{share['memory_mib']}M and {share['active_thread_percentage']} % for each process{advisory}"


def _name(unit: Mapping[str, Any]) -> str:
    kind = f"{unit['profile']} of GPU" if unit["profile"] else "GPU"
    return f"{kind} {unit['gpu_index']} ({unit['uuid']})"


def _yaml(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _left_out_changes(planned: list[Mapping[str, Any]], in_force: list[Mapping[str, Any]]) -> Iterator[str]:
    new, old = ({one["what"]: one["reason"] for one in some} for some in (planned, in_force))
    for what in sorted(new.keys() | old.keys()):
        if what not in old:
            yield f"+ left out: {what}: {new[what]}"
        elif what not in new:
            yield f"- left out: {what}: {old[what]}"
        elif new[what] != old[what]:
            yield f"~ left out: {what}: {old[what]} -> {new[what]}"
