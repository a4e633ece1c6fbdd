"""Brings offers into force on the wire, in an order in which nothing breaks (design 3 and 8, contract section 6)."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from deviceplugin.app.ports import Ledger, Link
from deviceplugin.model.held import Held
from deviceplugin.model.offer import Offer, Waiting
from deviceplugin.model.plan import Plan
from deviceplugin.planning.transition import Transition, transition

log = logging.getLogger(__name__)

# Handlers answer in well under a millisecond; one that takes this long is a client that vanished half-way.
IDLE_TIMEOUT_S = 1.0
# A list that became empty must be seen by node status (<= 10.4 s, contract L11) before its stream ends (L9, D7).
RETIRE_AFTER_S = 30.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What is in force after applying.

    Attributes:
        complete: false when an Allocate was still running: the lists were not sent, apply again.
    """

    offers: Mapping[str, Offer]
    waiting: tuple[Waiting, ...]
    complete: bool


def apply_plan(in_force: Mapping[str, Offer], plan: Plan, held: Held, link: Link, ledger: Ledger) -> Outcome:
    """Take the plan as far into force as held devices allow.

    Order: the handlers refuse what is to go; wait for running Allocates; only then the lists, those that withdraw
    first, so that no GPU is Healthy under two resources; new resources last (they register with the kubelet).

    Args:
        in_force: what the link serves now; an offer that does not change is not touched at all.
        plan: the goal.
        held: what pods hold, by PodResources and checkpoint; what was handed out since is taken from the ledger.
    """
    known = held.union(ledger.held())
    step = transition(in_force, plan, known)
    while True:
        changed = [offer for offer in step.offers if in_force.get(offer.name) != offer]
        for offer in changed:
            if offer.name in in_force:
                link.answer_from(offer)
        if not changed or not _withdraws(in_force, changed):
            break
        if not ledger.wait_idle(IDLE_TIMEOUT_S):
            log.warning("an Allocate is still running; lists that withdraw devices wait for it (contract L17)")
            return Outcome(in_force, step.waiting, complete=False)
        # An Allocate that had begun before the handlers refused may have handed out an id that was to go.
        now_known = held.union(ledger.held())
        if now_known == known:
            break
        known = now_known
        step = transition(in_force, plan, known)
    _send(in_force, step, link)
    return Outcome({offer.name: offer for offer in step.offers}, step.waiting, complete=True)


def _withdraws(in_force: Mapping[str, Offer], changed: list[Offer]) -> bool:
    return any(_withdrawn(in_force.get(offer.name), offer) for offer in changed)


def _withdrawn(before: Offer | None, after: Offer) -> bool:
    if before is None:
        return False
    listed = {device.id for device in after.devices}
    return any(device.id not in listed for device in before.devices) or bool(after.refused.keys() - before.refused.keys())


def _send(in_force: Mapping[str, Offer], step: Transition, link: Link) -> None:
    changed = [offer for offer in step.offers if in_force.get(offer.name) != offer]
    existing = [offer for offer in changed if offer.name in in_force]
    for offer in sorted(existing, key=lambda offer: not _withdrawn(in_force[offer.name], offer)):
        before = in_force[offer.name]
        if before.devices != offer.devices or before.draining != offer.draining:
            log.info("%s: %s", offer.name, _change_in_words(before, offer))
        link.send(offer.name)
    for offer in changed:
        if offer.name not in in_force:
            link.open(offer)


def _change_in_words(before: Offer, after: Offer) -> str:
    old, new = len(before.devices), len(after.devices)
    text = f"{old} -> {new} devices" if old != new else f"{new} devices, list changed"
    return text + (f", {len(after.draining)} of them draining" if after.draining else "")


def close_retired(
    offers: Mapping[str, Offer],
    plan: Plan | None,
    retired_since: Mapping[str, float],
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
