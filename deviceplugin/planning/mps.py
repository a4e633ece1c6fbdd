"""What an MPS entry makes of a GPU: the limits of a share, and when a GPU can't be shared by MPS at all."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Final

from deviceplugin.config.model import Config, SharingEntry
from deviceplugin.model.held import Held
from deviceplugin.model.mps import (
    CONTAINER_MPS_DIRECTORY,
    LOWEST_CAPABILITY,
    MPS_CLIENTS,
    SUN_PATH_BYTES,
    MpsDaemon,
    MpsShare,
    longest_pipe,
)
from deviceplugin.model.node import Gpu
from deviceplugin.model.offer import Waiting
from deviceplugin.model.plan import Health, Mode, Plan, Resource, Unit

BRIEF_REASON: Final = 60
"""Characters up to which a reason is repeated in full where those of many GPUs share one line."""
NOT_ASKED: Final = "its MPS control daemon has not been asked yet"
STILL_OWNED: Final = (
    "MPS still has this GPU: the MPS supervisor has yet to end its control daemon, put the compute mode back and give "
    "it up; is the supervisor running?"
)
NO_ROOT: Final = (
    "found no MPS root, expected the directory on the host that holds the pipes of the MPS control daemons, such as "
    "/run/nvidia/mps: set --mps-root, the environment variable MPS_ROOT, or flags.mpsRoot"
)


def refusal(gpu: Gpu, replicas: int) -> str:
    """Why a GPU can't be shared by MPS; empty when it can.

    A GPU that has failed is judged by what is known of it: it is Unhealthy already, and must not lose its devices.
    """
    capability, memory_mib = gpu.compute_capability, gpu.memory_mib
    if capability is None and gpu.failure is None:
        return "the driver does not say its compute capability, so it is unknown whether MPS can limit its clients"
    if memory_mib is None and gpu.failure is None:
        return "the driver does not say how much memory it has, so an MPS share of it has no size"
    if capability is not None and capability < LOWEST_CAPABILITY:
        return (
            f"its compute capability is {_dotted(capability)}; MPS limits memory and threads from "
            f"{_dotted(LOWEST_CAPABILITY)} on"
        )
    if replicas > MPS_CLIENTS:
        return f"{replicas} replicas are asked for, MPS serves at most {MPS_CLIENTS} clients on one GPU"
    if memory_mib is not None and memory_mib < replicas:
        return f"its {memory_mib} MiB make no {replicas} MPS shares of at least 1 MiB"
    return ""


def pipe_refusal(resource_name: str, gpu_uuid: str) -> str:
    """Why a control daemon could not open its pipes for a resource; empty when it can.

    Judged for the root at which plugin and supervisor see the MPS root unless they are told another
    (`--mps-container-root`).
    """
    size = len(longest_pipe(CONTAINER_MPS_DIRECTORY, resource_name, gpu_uuid).encode())
    if size <= SUN_PATH_BYTES:
        return ""
    return (
        f"the path of its control daemon's pipe would have {size} bytes, a unix socket's has at most {SUN_PATH_BYTES}: "
        f"give the resource a name that is {size - SUN_PATH_BYTES} shorter ({resource_name} has {len(resource_name)})"
    )


def _dotted(capability: tuple[int, int]) -> str:
    return ".".join(map(str, capability))


def share_of(gpu: Gpu, entry: SharingEntry, *, enforced: bool, config: Config) -> MpsShare | None:
    """A share's limits: everything rounded down, and never 0 (design 5, reports F3).

    Args:
        enforced: whether a container gets one share at most, so that the daemon's defaults can be the ceiling.

    Returns:
        None where the memory of a failed GPU is unknown.
    """
    if gpu.memory_mib is None:
        return None
    if entry.memory_limit_mib is not None:
        memory_mib = entry.memory_limit_mib
    elif entry.memory_limit_percent is not None:
        memory_mib = gpu.memory_mib * entry.memory_limit_percent // 100
    else:
        memory_mib = gpu.memory_mib // entry.replicas
    threads = entry.active_thread_percentage or 100 // entry.replicas
    return MpsShare(max(1, memory_mib), max(1, threads), enforced, config.flags.mps_root)


def beyond_memory(entry: SharingEntry, gpus: Iterable[Gpu]) -> Iterator[str]:
    """A warning for each GPU that has less memory than one share of it may use."""
    for gpu in gpus:
        if entry.memory_limit_mib and gpu.memory_mib and entry.memory_limit_mib > gpu.memory_mib:
            yield (
                f"{entry.origin}.memoryLimit: {entry.memory_limit_mib} MiB limit nothing on {gpu.describe()}, which "
                f"has {gpu.memory_mib}"
            )


def beyond_together(resource: Resource) -> Iterator[str]:
    """For the GPUs whose shares may together use more memory than they have: a note, since it can be meant so."""
    asked: defaultdict[tuple[int, int, int], list[int]] = defaultdict(list)
    for unit in resource.units:
        if unit.mps and unit.memory_mib and unit.replicas * unit.mps.memory_mib > unit.memory_mib:
            asked[unit.replicas, unit.mps.memory_mib, unit.memory_mib].append(unit.gpu_index)
    for (replicas, limit_mib, memory_mib), gpus in asked.items():
        yield (
            f"{replicas} shares of {limit_mib}M each may use {replicas * limit_mib}M together, more than the "
            f"{memory_mib}M of GPU {', '.join(map(str, gpus))}: then processes that keep to their limits run out of "
            "memory too"
        )


def daemon_of(resource: Resource, unit: Unit) -> MpsDaemon | None:
    """The control daemon that a GPU of an MPS resource needs; None while its share has no size."""
    if resource.mode is not Mode.MPS or unit.mps is None:
        return None
    return MpsDaemon(resource.name, unit.uuid, unit.gpu_index, unit.mps)


def daemons(plan: Plan) -> tuple[MpsDaemon, ...]:
    """The control daemons that a plan needs, in order of resource and GPU."""
    needed = (daemon_of(resource, unit) for resource in plan.resources for unit in resource.units)
    return tuple(daemon for daemon in needed if daemon is not None)


def judged(plan: Plan, verdicts: Mapping[MpsDaemon, str], owned: AbstractSet[str]) -> Plan:
    """The plan with every GPU Unhealthy that MPS does not serve as planned, or has and should not have.

    Args:
        verdicts: what a daemon's control pipe was found to say: empty when it answers with the limits of its share,
            else why not. One that is missing here has not been asked.
        owned: UUIDs of the GPUs that the MPS supervisor has. What is planned otherwise waits until it has put their
            compute mode back (reports F8).
    """

    def problem(resource: Resource, unit: Unit) -> str:
        if resource.mode is Mode.MPS:
            daemon = daemon_of(resource, unit)
            return "" if daemon is None else verdicts.get(daemon, NOT_ASKED)
        return STILL_OWNED if unit.gpu_uuid in owned else ""

    def judge(resource: Resource, unit: Unit) -> Unit:
        reason = unit.reason or problem(resource, unit)
        return replace(unit, health=Health.UNHEALTHY, reason=reason) if reason != unit.reason else unit

    if not owned and all(one.mode is not Mode.MPS for one in plan.resources):
        return plan
    resources = tuple(replace(one, units=tuple(judge(one, unit) for unit in one.units)) for one in plan.resources)
    return replace(plan, resources=resources)


def not_asked(plan: Plan) -> tuple[str, ...]:
    """The GPUs of a judged plan whose control daemon has not been asked yet, for people."""
    return tuple(
        f"GPU {unit.gpu_index} ({resource.name})"
        for resource in plan.resources
        for unit in resource.units
        if unit.reason == NOT_ASKED
    )


def await_daemons(plan: Plan, served: Iterable[str], held: Held) -> tuple[Plan, tuple[Waiting, ...]]:
    """The plan without the MPS resources none of whose daemons has ever answered, and what each of them waits for.

    They are not registered (design 8, golden 072 and 073). Nothing waits for a daemon that is just being asked. Once
    registered a resource stays, Unhealthy if need be; one of which pods hold something was registered by an earlier
    run.

    Args:
        plan: judged.
        served: the resources in force.
        held: what pods hold.
    """
    in_force = set(served)
    absent = {
        one.name: one
        for one in plan.resources
        if one.mode is Mode.MPS
        and one.name not in in_force
        and not held.of(one.name)
        and all(unit.health is Health.UNHEALTHY for unit in one.units)
    }
    if not absent:
        return plan, ()
    rest = tuple(one for one in plan.resources if one.name not in absent)
    waiting = tuple(
        Waiting(
            name,
            f"{name}: not registered with the kubelet",
            f"an MPS control daemon that answers ({_brief_reasons(one)}); is the MPS supervisor running (docs/mps.md)?",
        )
        for name, one in absent.items()
        if all(unit.reason != NOT_ASKED for unit in one.units)
    )
    return replace(plan, resources=rest), waiting


def _brief_reasons(resource: Resource) -> str:
    """Why none of its GPUs is served, for one line: `GPUs 0, 1: pipe missing; GPU 2: no answer`."""
    gpus: dict[str, list[str]] = {}
    for unit in resource.units:
        # What is longer says first what is wrong, then where and what to do: status and the log have it for each GPU.
        brief = unit.reason if len(unit.reason) <= BRIEF_REASON else unit.reason.partition(": ")[0]
        gpus.setdefault(brief, []).append(str(unit.gpu_index))
    return "; ".join(f"GPU{'s' * (len(of) > 1)} {', '.join(of)}: {why}" for why, of in gpus.items())
