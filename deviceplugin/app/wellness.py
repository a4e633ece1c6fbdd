"""What the reconciler learns of health: from each event to the next HealthState, and to the report for planning."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

from deviceplugin.app.events import DriverReported, Released, TakenUp
from deviceplugin.app.state import State
from deviceplugin.config.model import HealthConfig
from deviceplugin.health.fold import on_events, on_look, on_reset
from deviceplugin.health.judge import release_report, report
from deviceplugin.health.policy import Policy, words
from deviceplugin.health.state import HealthState
from deviceplugin.model.health import DriverEvent, HealthReport, Probe, Response
from deviceplugin.model.node import Snapshot

log = logging.getLogger(__name__)

RELEASED = "the driver is released to the operator (gpu-device-plugin release); awaited: release --end, or its time"
# Events before the first snapshot wait for it, since only it tells which devices there are. No driver sends as many.
MOST_EARLY_EVENTS = 10_000


class Wellness:
    """Folds what the driver says into the health part of the state.

    Args:
        policy_of: the policy that a config makes, with the variables over it.
        monotonic: seconds.
        wall: seconds since the epoch.
    """

    def __init__(
        self,
        policy_of: Callable[[HealthConfig], Policy],
        monotonic: Callable[[], float],
        wall: Callable[[], float],
    ) -> None:
        self._policy_of = policy_of
        self._monotonic = monotonic
        self._wall = wall
        self._early: list[DriverEvent] = []

    def policy(self, state: State) -> Policy:
        """In force: the config's, or the default one before the first good config."""
        return self._policy_of(state.config.health if state.config else HealthConfig())

    def looked(self, state: State, snapshot: Snapshot, probe: Probe) -> State:
        """After a look at the driver, which therefore answers.

        Args:
            state: before; the same object comes back when nothing is new.
            snapshot: the look, with lost identities remembered.
            probe: made right after.
        """
        policy = self.policy(state)
        health = on_look(state.health, snapshot, probe, policy, now=self._monotonic(), at=self._wall())
        early, self._early = self._early, []
        if early:
            health = self._after(health, early, snapshot, policy)
        after = replace(state, snapshot=snapshot, health=health, driver_problem="", node_without_gpus=False)
        return state if after == state else after

    def learnt(self, state: State, event: DriverReported | Released | TakenUp) -> State:
        """After any other event about the driver."""
        if isinstance(event, DriverReported):
            return self._reported(state, event)
        if isinstance(event, Released):
            log.warning("the driver is released; every GPU is unhealthy until it is taken up again")
            return replace(state, released=True)
        log.info("the driver is taken up again%s", ", every GPU has been reset" if event.was_reset else "")
        return replace(state, released=False, health=on_reset(state.health) if event.was_reset else state.health)

    def _reported(self, state: State, event: DriverReported) -> State:
        if state.snapshot is None:
            self._early += event.events[: MOST_EARLY_EVENTS - len(self._early)]
            return state
        return replace(state, health=self._after(state.health, event.events, state.snapshot, self.policy(state)))

    def report(self, state: State) -> HealthReport:
        """For planning."""
        if state.released and state.snapshot is not None:
            return release_report(state.snapshot, RELEASED)
        return report(state.health, self.policy(state))

    def _after(
        self,
        health: HealthState,
        events: Sequence[DriverEvent],
        snapshot: Snapshot,
        policy: Policy,
    ) -> HealthState:
        after = on_events(health, events, snapshot, policy, now=self._monotonic(), at=self._wall())
        if after.unknown_events != health.unknown_events:
            log.warning(
                "%d events of the driver name no GPU or MIG instance that it lists; they mark nothing",
                after.unknown_events - health.unknown_events,
            )
        for uuid, unit in after.units.items():
            counted = health.of(uuid).counts
            for signal, times in unit.counts.items():
                if times == counted.get(signal, 0):
                    continue
                # What takes a unit out is said with its verdict.
                level = logging.WARNING if policy.response(signal) is Response.WARN else logging.DEBUG
                log.log(level, "%s: %s, %d times, %s", uuid, words(signal), times, policy.response(signal).value)
        return after
