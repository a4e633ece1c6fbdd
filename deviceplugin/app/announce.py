"""Log lines about changes of state: each thing once, when it changes."""

import logging
from collections.abc import Collection, Mapping
from typing import TypeVar

from deviceplugin.model.node import Snapshot
from deviceplugin.model.offer import Waiting
from deviceplugin.model.plan import Mode, Plan, Resource
from deviceplugin.model.words import counted
from deviceplugin.planning.mps import NOT_ASKED
from deviceplugin.planning.rights import Lack, in_words

log = logging.getLogger("deviceplugin.plan")

ISOLATION = {
    Mode.EXCLUSIVE: "",
    Mode.TIME_SLICING: "; replicas share the GPU without a memory limit and without fault isolation",
    Mode.MPS: "; memory limits hold per process, faults are not isolated",
}


def started(plan: Plan) -> None:
    """Say that serving has begun."""
    devices = sum(len(resource.devices) for resource in plan.resources)
    log.info("serving %s with %s", counted(len(plan.resources), "resource"), counted(devices, "device"))


def plan(before: Plan | None, after: Plan, verdicts: Collection[str]) -> None:
    """Say what differs between two plans: resources with their counts, what is left out, warnings.

    Why a device is Unhealthy is said here only where it is none of the `verdicts` on GPUs and MIG instances themselves.
    """
    if before == after:
        return
    old = before or Plan()
    for resource in after.resources:
        _resource(old.resource(resource.name), resource, verdicts)
    for resource in old.resources:
        if after.resource(resource.name) is None:
            log.info("%s: no longer planned", resource.name)
    for left in _new(old.left_out, after.left_out):
        # Without a UUID it is no rule that leaves it out, but a fault.
        log.log(logging.INFO if left.uuid else logging.WARNING, "left out: %s: %s", left.what, left.reason)
    for warning in _new(old.warnings, after.warnings):
        log.warning("%s", warning)
    for problem in _new(old.layout_problems, after.layout_problems):
        log.error("%s", problem)


def _resource(before: Resource | None, after: Resource, verdicts: Collection[str]) -> None:
    if before is None or _figures(before) != _figures(after):
        log.info("%s: %s", after.name, _describe(after))
    was = {unit.uuid: unit.reason for unit in before.units} if before else {}
    for unit in after.units:
        then = was.get(unit.uuid, "")
        if unit.reason not in ("", NOT_ASKED, then) and unit.reason not in verdicts:
            log.warning("%s: %s is Unhealthy: %s", after.name, unit.uuid, unit.reason)
        elif not unit.reason and then not in ("", NOT_ASKED) and then not in verdicts:
            log.info("%s: %s is Healthy again", after.name, unit.uuid)


def verdicts(snapshot: Snapshot, before: Mapping[str, str], after: Mapping[str, str]) -> None:
    """Say what became unhealthy, why, and what is healthy again: one line each. What is wrong with a whole GPU is not
    said again of each MIG instance on it.
    """
    for gpu in snapshot.gpus:
        of_gpu = after.get(gpu.uuid or "", "")
        _verdict(gpu.describe(), before.get(gpu.uuid or "", ""), of_gpu)
        for instance in gpu.mig_instances:
            own = after.get(instance.uuid, "")
            was = before.get(instance.uuid, "")
            was_whole = was and was == before.get(gpu.uuid or "")
            _verdict(
                f"MIG instance {gpu.index}:{instance.slot} ({instance.uuid})",
                "" if was_whole else was,
                "" if own == of_gpu else own,
            )


def _verdict(what: str, was: str, reason: str) -> None:
    if reason and reason != was:
        log.warning("%s is unhealthy: %s", what, reason)
    elif was and not reason:
        log.info("%s is healthy again", what)


T = TypeVar("T")


def _new(before: tuple[T, ...], after: tuple[T, ...]) -> list[T]:
    return [item for item in after if item not in before]


def layout(after: Plan) -> None:
    """Say which MIG layouts a freshly loaded config can't offer."""
    for problem in after.layout_problems:
        log.debug("with the new config: %s", problem)


def lacks(before: tuple[Lack, ...], after: tuple[Lack, ...]) -> None:
    """Say what the config in force needs that the container has not."""
    for line in in_words(_new(before, after)):
        log.error("the container lacks a right: %s", line)


def waiting(before: tuple[Waiting, ...], after: tuple[Waiting, ...]) -> None:
    """Say what waits for what, and what waits no more."""
    for item in after:
        if item not in before:
            log.warning("waiting: %s; for %s", item.what, item.waits_for)
    for item in before:
        if item.what not in {other.what for other in after}:
            log.info("no longer waiting: %s", item.what)


def refused(problems: tuple[str, ...], *, keeps: bool) -> None:
    """Say why a config is not taken."""
    log.error(
        "config refused, %s:\n  %s",
        "the last good one stays in force" if keeps else "nothing is offered until a good one arrives",
        "\n  ".join(problems),
    )


def _figures(resource: Resource) -> tuple[Mode, int, int]:
    return resource.mode, len(resource.devices), len(resource.units)


def _describe(resource: Resource) -> str:
    kind = "GPU" if resource.units[0].profile is None else "MIG instance"
    units = counted(len(resource.units), kind)
    return f"{counted(len(resource.devices), 'device')}, {resource.mode.value}, on {units}{ISOLATION[resource.mode]}"
