"""Brings offers into force on the wire, in an order in which nothing breaks (design 3 and 8, contract section 6)."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from deviceplugin.app.ports import Ledger, Link
from deviceplugin.model.health import HealthReport
from deviceplugin.model.held import Held
from deviceplugin.model.node import Snapshot
from deviceplugin.model.offer import Offer, Waiting, Withdrawn
from deviceplugin.model.plan import Plan
from deviceplugin.model.words import counted
from deviceplugin.planning.transition import Transition, transition

log = logging.getLogger(__name__)

NOTHING = Withdrawn({}, {})

# Handlers answer in well under a millisecond; one that takes this long is a client that vanished half-way.
IDLE_TIMEOUT_S = 1.0
# A list that became empty must be seen by node status (<= 10.4 s, contract L11) before its stream ends (L9, D7).
RETIRE_AFTER_S = 30.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What is in force after applying.

    Attributes:
        complete: false when an Allocate was still running: the lists were not sent, apply again.
        withdrawn: ids that lists have lost: apply again once the kubelet shows none of them.
    """

    offers: Mapping[str, Offer]
    waiting: tuple[Waiting, ...]
    complete: bool
    withdrawn: Withdrawn = NOTHING


def apply_plan(
    in_force: Mapping[str, Offer],
    plan: Plan,
    held: Held,
    *,
    snapshot: Snapshot,
    health: HealthReport,
    vanishing: Sequence[Withdrawn],
    link: Link,
    ledger: Ledger,
) -> Outcome:
    """Take the plan as far into force as held devices allow.

    Order: the handlers refuse what is to go; wait for running Allocates; only then the lists, in the order of
    `Transition.sequence`; new resources register with the kubelet. What one resource gains from another comes with
    another call, once the kubelet has seen what gives way.

    Args:
        in_force: what the link serves now; an offer that does not change is not touched at all.
        plan: the goal.
        held: what pods hold, by PodResources and checkpoint; what was handed out since is taken from the ledger.
        snapshot: what the driver knows of devices that the plan no longer has.
        health: the verdicts on them.
        vanishing: what was withdrawn before, and the kubelet may still show.
    """
    known = held.with_handed_out(ledger.held())
    step = transition(in_force, plan, known, snapshot=snapshot, health=health, vanishing=vanishing)
    while _withdraws(step):
        for offer in step.sequence:
            if offer.name in in_force:
                link.answer_from(offer)
        if not ledger.wait_idle(IDLE_TIMEOUT_S):
            log.warning("an Allocate is still running; lists that withdraw devices wait for it (contract L17)")
            return Outcome(in_force, step.waiting, complete=False)
        # An Allocate that had begun before the handlers refused may have handed out an id that was to go.
        now_known = held.with_handed_out(ledger.held())
        if now_known == known:
            break
        known = now_known
        step = transition(in_force, plan, known, snapshot=snapshot, health=health, vanishing=vanishing)
    for offer in step.sequence:
        before = in_force.get(offer.name)
        if before is None:
            link.open(offer)
            continue
        link.answer_from(offer)
        if link.send(offer.name):
            log.info("%s: %s", offer.name, _change_in_words(before, offer))
    return Outcome(step.after, step.waiting, complete=True, withdrawn=step.withdrawn)


def _withdraws(step: Transition) -> bool:
    """Whether anything that is listed and given out now goes, or is refused from now on."""
    for offer in step.sequence:
        before = step.in_force.get(offer.name)
        if before is not None and (
            before.device_by_id.keys() - offer.device_by_id.keys() or offer.refused.keys() - before.refused.keys()
        ):
            return True
    return False


def _change_in_words(before: Offer, after: Offer) -> str:
    old, new = len(before.devices), len(after.devices)
    text = f"{old} -> {counted(new, 'device')}" if old != new else f"{counted(new, 'device')}, list changed"
    return text + (f", {len(after.draining)} of them draining" if after.draining else "")


def close_retired(
    offers: Mapping[str, Offer],
    plan: Plan | None,
    retired_since: Mapping[str, float],
    *,
    now: float,
    link: Link,
    ledger: Ledger,
) -> tuple[Mapping[str, Offer], Mapping[str, float]]:
    """End the streams of resources that no plan has and nobody holds, once their empty list has been seen.

    Returns:
        The offers that remain, and since when each retired one is empty.
    """
    if plan is None:
        return offers, retired_since
    empty = [name for name, offer in offers.items() if not offer.devices and plan.resource(name) is None]
    since = {name: retired_since.get(name, now) for name in empty}
    handed_out = ledger.held()
    due = [name for name in empty if now - since[name] >= RETIRE_AFTER_S and not handed_out.of(name)]
    if not due:
        return offers, since
    for name in due:
        log.info("%s: offers nothing any more; its server ends", name)
        link.close(name)
        del since[name]
    return {name: offer for name, offer in offers.items() if name not in due}, since
