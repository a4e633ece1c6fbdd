"""Whether a config that is right in itself may come into force here, or is refused whole: pure, from the state."""

import time
from collections.abc import Collection, Sequence

from deviceplugin.app.state import Refused, State
from deviceplugin.config.model import Config, HeldPolicy
from deviceplugin.model.held import Held
from deviceplugin.model.offer import Waiting
from deviceplugin.model.plan import Plan
from deviceplugin.planning.rights import Container, Lack, in_words, lacking
from deviceplugin.planning.transition import Transition, transition


def beyond_rights(state: State, config: Config, plan: Plan, container: Container) -> Refused | None:
    """Why a config is refused that needs more than the container has (design 8, Privileges).

    What already lacks a right under the config in force is not held against an edit that does not add to it. Before
    the first plan nothing is in force that could stay: then the start decides.

    Args:
        plan: what the config makes of the node now.
        container: what ours lacks now.
    """
    if state.plan is None or state.config is None or state.snapshot is None:
        return None
    already = lacking(state.snapshot, state.config, state.plan, container)
    new = sorted({*lacking(state.snapshot, config, plan, container)}.difference(already))
    return Refused(tuple(more_than_it_has(config, new)), time.time()) if new else None


def more_than_it_has(config: Config, lacks: Sequence[Lack]) -> list[str]:
    """One line for each right that is lacking, with all that needs it."""
    return [f"{config.source}: it needs more than this container has: {line}" for line in in_words(lacks)]


def would_wait(state: State, config: Config, plan: Plan, held: Held) -> Refused | None:
    """Why a config is refused that would rather be refused than wait for pods (`sharing.transition`).

    At a start nothing is in force that could stay: then it drains all the same.

    Args:
        plan: what the config makes of the node now.
        held: what pods hold, with what was just handed out.
    """
    if config.transition is not HeldPolicy.REFUSE or state.holding is None or state.plan is None:
        return None
    step = transition(state.offers, plan, held, snapshot=state.snapshot)
    problems = tuple(
        f"{config.source}: sharing.transition: found refuse, and a change that has to wait ({item.what}; for "
        f"{item.waits_for}), expected none: end these pods and send SIGHUP, or set it to drain"
        for item in newly_waiting(step, {item.what for item in state.waiting})
    )
    holders = Held({offer.name: held.of(offer.name) & offer.refused.keys() for offer in step.offers})
    return Refused(problems, time.time(), holders) if problems else None


def newly_waiting(step: Transition, already: Collection[str]) -> tuple[Waiting, ...]:
    """What would wait because of a new config, and not for an earlier one or because hardware went away.

    Args:
        already: what waits now (`Waiting.what`).
    """
    return tuple(item for item in step.waiting if item.what not in already)
