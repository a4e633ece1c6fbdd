"""The one thread that owns the state: it takes every event that waits, plans, compares and applies (design 3)."""

import gc
import logging
import queue
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from deviceplugin.app import announce, heap
from deviceplugin.app.acceptance import beyond_rights, more_than_it_has, would_wait
from deviceplugin.app.apply import apply_plan, close_retired
from deviceplugin.app.cdi_upkeep import CdiUpkeep
from deviceplugin.app.echo import Echo
from deviceplugin.app.events import (
    DriverDown,
    DriverReported,
    Event,
    FileRead,
    HeldRead,
    KubeletCame,
    MpsAsked,
    MpsKept,
    MpsRootSeen,
    Released,
    SnapshotTaken,
    Stop,
    TakenUp,
    Tick,
    Vanished,
)
from deviceplugin.app.holding import Holding
from deviceplugin.app.patience import Patience
from deviceplugin.app.ports import CdiFiles, Ledger, Link, MpsWatch, Paced, VanishingWait
from deviceplugin.app.state import Refused, State
from deviceplugin.app.wellness import Wellness
from deviceplugin.config.model import Config
from deviceplugin.errors import ConfigError, DevicePluginError
from deviceplugin.model.health import HealthReport
from deviceplugin.model.node import Snapshot
from deviceplugin.model.offer import Withdrawn
from deviceplugin.model.plan import Plan
from deviceplugin.planning.build import build
from deviceplugin.planning.carry_on import carry_on
from deviceplugin.planning.identity import all_failed, remember
from deviceplugin.planning.mps import await_daemons, daemons, judged
from deviceplugin.planning.rights import Container, lacking
from deviceplugin.planning.verdict import unhealthy

log = logging.getLogger(__name__)

# The loop comes round at least this often, so that a stuck one shows (status --live).
BEAT_S = 2.0
# By then everything is imported, served and registered.
START_TAKES_S = 2.0


class StartError(DevicePluginError):
    """The start fails for good (failOnInitError). The process ends with exit status 1."""


@dataclass(frozen=True, slots=True)
class StartRules:
    """What ends a start.

    Attributes:
        bad_file_ends_it: false only when the flag or variable failOnInitError says so; the file can't be asked.
    """

    bad_file_ends_it: bool


class Reconciler:
    """Owns the state.

    Args:
        inbox: where everybody puts events; only the reconciler takes them.
        link, ledger: the kubelet's side.
        held_feed: asked for a read when one is needed, and paced.
        vanishing: asked when a list has lost devices.
        mps_feed: told which MPS control daemons the plan needs.
        driver_feed: paced by the config.
        wellness: what health makes of the driver's words.
        cdi: where CDI specifications are put before what they name is listed.
        parse: bytes of the config file -> Config; raises ConfigError.
        initial: the config read before the start; None when it was refused and the start goes on without.
        refused: the findings in that case.
        rules: what ends the start.
        monotonic: seconds.
    """

    def __init__(
        self,
        *,
        inbox: queue.SimpleQueue[Event],
        link: Link,
        ledger: Ledger,
        held_feed: Paced,
        driver_feed: Paced,
        wellness: Wellness,
        vanishing: VanishingWait,
        mps_feed: MpsWatch,
        cdi: CdiFiles,
        parse: Callable[[bytes], Config],
        initial: Config | None,
        refused: tuple[str, ...],
        rules: StartRules,
        monotonic: Callable[[], float],
    ) -> None:
        self._link = link
        self._ledger = ledger
        self._held_feed = held_feed
        self._vanishing = vanishing
        self._mps_feed = mps_feed
        self._driver_feed = driver_feed
        self._wellness = wellness
        self._cdi = CdiUpkeep(cdi, ledger, monotonic)
        self._parse = parse
        self._rules = rules
        self._monotonic = monotonic
        self._inbox = inbox
        self._state = State(
            config=initial,
            config_loaded_at=time.time(),
            refused=Refused(refused, time.time()) if refused else None,
        )
        self._beat_at = monotonic()
        self._kubelet_came_at = monotonic()
        self._patience = Patience(link, ledger, held_feed, monotonic)
        self._echo = Echo()
        self._started_at = monotonic()
        self._unsettled = True
        # What lists have lost, one for each wait until the kubelet has seen it.
        self._withdrawn: tuple[Withdrawn, ...] = ()
        # Something that is not part of the state may let more of the plan come into force.
        self._again = False

    @property
    def state(self) -> State:
        """The newest state; safe from any thread."""
        return self._state

    def beat_age_s(self) -> float:
        """Seconds since the loop last came round."""
        return self._monotonic() - self._beat_at

    def run(self) -> None:
        """The loop; returns after Stop. Raises StartError when the start fails for good."""
        while True:
            events = self._take()
            self._beat_at = self._monotonic()
            if any(isinstance(event, Stop) for event in events):
                return
            self.step(events)

    def step(self, events: Sequence[Event]) -> None:
        """Take these events in, in order, then bring about what follows from them."""
        before = self._state
        newest_file = max((i for i, event in enumerate(events) if isinstance(event, FileRead)), default=-1)
        for i, event in enumerate(events):
            # What a file said before it said something else is nobody's wish any more.
            if i == newest_file or not isinstance(event, FileRead):
                self._learn(event)
        if self._state is not before or self._again:
            self._reconcile(before)
            # What a reload or a new inventory leaves behind is in cycles: collected at once it is used again by the
            # next one, instead of making the process grow. Little is looked at, since the start was frozen.
            gc.collect()
        self._house_keeping()

    def _take(self) -> list[Event]:
        timeout = 0.1 if self._again else BEAT_S
        try:
            events = [self._inbox.get(timeout=timeout)]
        except queue.Empty:
            return [Tick()]
        while True:
            try:
                events.append(self._inbox.get_nowait())
            except queue.Empty:
                return events

    # What each event changes in the state. Nothing here plans or sends.

    def _learn(self, event: Event) -> None:
        state = self._state
        if isinstance(event, FileRead):
            self._learn_file(event)
        elif isinstance(event, SnapshotTaken):
            if state.driver_problem:
                log.info("the driver answers again")
            snapshot = remember(state.snapshot, event.snapshot)
            self._state = self._wellness.looked(state, snapshot, event.probe)
        elif isinstance(event, DriverReported | Released | TakenUp):
            self._state = self._wellness.learnt(state, event)
        elif isinstance(event, DriverDown):
            self._learn_driver_down(event)
        elif isinstance(event, HeldRead):
            self._learn_held(event)
        elif isinstance(event, Vanished):
            self._withdrawn = tuple(one for one in self._withdrawn if one is not event.withdrawn)
            self._again = True
        elif isinstance(event, KubeletCame):
            self._kubelet_came_at = self._monotonic()
            if state.holding is not None:
                self._state = replace(state, holding=state.holding.kubelet_started(self._kubelet_came_at))
            # Its checkpoint shows now what it knows of, even of pods that have ended meanwhile.
            self._held_feed.request()
        elif isinstance(event, MpsAsked):
            self._state = replace(state, mps={**state.mps, event.daemon: event.problem})
        elif isinstance(event, MpsKept):
            self._state = replace(state, mps_keepers=event.keepers)
        elif isinstance(event, MpsRootSeen):
            self._state = replace(state, mps_root_problem=event.problem, mps_owned=event.owned)

    def _learn_file(self, event: FileRead) -> None:
        try:
            if event.data is None:
                raise event.problem or ConfigError(("the config file could not be read",))
            config = self._parse(event.data)
            plan = None if self._state.snapshot is None else build(self._state.snapshot, config)
        except ConfigError as error:
            self._refuse(Refused(error.problems, time.time()))
            return
        if plan is not None:
            announce.layout(plan)
            held = (self._state.holding or Holding()).held.with_handed_out(self._ledger.held())
            refused = beyond_rights(self._state, config, plan, self._container(config)) or would_wait(
                self._state, config, plan, held
            )
            if refused is not None:
                self._refuse(refused)
                return
        if config == self._state.config and self._state.refused is None:
            log.debug("the config file was read again; it says the same")
            return
        log.info("config loaded from %s", config.source)
        self._driver_feed.every(config.health.poll_s)
        self._state = replace(self._state, config=config, config_loaded_at=time.time(), refused=None)

    def _refuse(self, refused: Refused) -> None:
        before = self._state.refused
        if before is None or before.problems != refused.problems:
            announce.refused(refused.problems, keeps=self._state.config is not None)
        self._state = replace(self._state, refused=refused)

    def _learn_driver_down(self, event: DriverDown) -> None:
        state = self._state
        problem = str(event.error)
        if problem != state.driver_problem:
            log.error("the driver does not answer: %s", problem)
        if state.plan is not None and state.snapshot is not None and not state.node_without_gpus:
            # It worked before: every GPU of it is out of service, none disappears (reports H5).
            snapshot = all_failed(state.snapshot, "the driver does not answer")
            self._state = replace(state, snapshot=snapshot, driver_problem=problem)
            return
        if state.plan is None and state.config is not None and state.config.flags.fail_on_init_error:
            raise StartError(f"{problem}\n(failOnInitError is true; set it to false to wait for the driver instead)")
        if event.nvidia_device_present:
            self._state = replace(state, driver_problem=problem, node_without_gpus=False)
        elif not state.node_without_gpus:
            log.info("no NVIDIA device and no driver: a node without GPUs, nothing to offer")
            self._state = replace(state, snapshot=Snapshot(), driver_problem=problem, node_without_gpus=True)

    def _learn_held(self, event: HeldRead) -> None:
        holding = self._state.holding or Holding(kubelet_came_at=self._kubelet_came_at)
        after = holding.after(event, ours_by_name=self._our_names())
        if after.kubelet_came_at != holding.kubelet_came_at:
            self._ledger.kubelet_started()
        if event.listed is not None:
            handed_out = self._ledger.held()
            self._ledger.observe(event.listed, event.began_at)
            self._again |= self._ledger.held() != handed_out
        if event.allocatable is not None:
            for name in self._echo.missed(self._state.offers, self._link.states(), event.allocatable, event.began_at):
                self._link.register_again(name)
        if after.held.unknown_because and after.held.unknown_because != holding.held.unknown_because:
            log.warning("what pods hold cannot be read: %s", after.held.unknown_because)
        if after != self._state.holding or after.held.pods != holding.held.pods:
            self._state = replace(self._state, holding=after)

    def _our_names(self) -> frozenset[str]:
        planned = self._state.plan.resources if self._state.plan else ()
        return frozenset(self._state.offers) | {resource.name for resource in planned}

    # Planning and applying.

    def _reconcile(self, before: State) -> None:
        self._again = False
        state = self._state
        if state.config is None or state.snapshot is None or state.holding is None:
            return
        self._state = self._cdi.put(state, state.snapshot, state.config)
        report = self._wellness.report(state)
        plan = self._plan(state.config, state.snapshot, report)
        if plan is None:
            return
        verdicts = unhealthy(state.snapshot, report)
        announce.plan(state.plan, plan, {*state.verdicts.values(), *verdicts.values()})
        announce.verdicts(state.snapshot, state.verdicts, verdicts)
        in_service, without_daemon = await_daemons(
            plan, state.offers, state.holding.held.with_handed_out(self._ledger.held())
        )
        outcome = apply_plan(
            state.offers,
            in_service,
            state.holding.held,
            snapshot=state.snapshot,
            health=report,
            vanishing=self._withdrawn,
            link=self._link,
            ledger=self._ledger,
        )
        self._again = not outcome.complete
        if outcome.withdrawn.ids:
            self._withdrawn += (outcome.withdrawn,)
            self._vanishing.wait_for(outcome.withdrawn)
        announce.waiting((*state.waiting, *state.without_daemon), (*outcome.waiting, *without_daemon))
        self._state = replace(
            self._state,
            plan=plan,
            verdicts=verdicts,
            offers=outcome.offers,
            waiting=outcome.waiting,
            without_daemon=without_daemon,
        )
        if outcome.complete:
            self._cdi.remove_unneeded(state.holding)
        if before.plan is None:
            announce.started(plan)

    def _plan(self, config: Config, snapshot: Snapshot, report: HealthReport) -> Plan | None:
        """The plan for what is known now, or the last good one carried on; None when there has been none yet."""
        last_good = self._state.plan
        starting = last_good is None
        try:
            plan = build(snapshot, config, report, cdi_problem=self._state.cdi_problem)
        except ConfigError as error:
            if starting and self._rules.bad_file_ends_it:
                raise
            if error.problems != self._state.plan_problems:
                announce.refused(error.problems, keeps=not starting)
            self._state = replace(self._state, plan_problems=error.problems)
            if last_good is None:
                return None
            return self._with_mps(carry_on(last_good, snapshot, config, report, cdi_problem=self._state.cdi_problem))
        lacks = lacking(snapshot, config, plan, self._container(config))
        if starting and config.flags.fail_on_init_error and (plan.layout_problems or lacks):
            problems = [*plan.layout_problems, *more_than_it_has(config, lacks)]
            raise StartError("\n".join(problems) + "\n(failOnInitError is true)")
        announce.lacks(self._state.lacks, lacks)
        if self._state.plan_problems or self._state.lacks != lacks:
            self._state = replace(self._state, plan_problems=(), lacks=lacks)
        return self._with_mps(plan)

    def _container(self, config: Config) -> Container:
        """What our container lacks of what a config may need."""
        return Container(self._state.mps_root_problem, self._cdi.lacking(config))

    def _with_mps(self, plan: Plan) -> Plan:
        """The plan, judged by what its MPS control daemons say; they are asked from now on, and no others."""
        needed = frozenset(daemons(plan))
        self._mps_feed.watch(needed)
        if not self._state.mps.keys() <= needed:
            known = {daemon: problem for daemon, problem in self._state.mps.items() if daemon in needed}
            self._state = replace(self._state, mps=known)
        return judged(plan, self._state.mps, self._state.mps_owned)

    def _house_keeping(self) -> None:
        if self._unsettled and self._state.plan is not None and self._monotonic() - self._started_at > START_TAKES_S:
            self._unsettled = False
            heap.settle()
        state = self._state
        offers, retired = close_retired(
            state.offers, state.plan, state.retired_since, now=self._monotonic(), link=self._link, ledger=self._ledger
        )
        if offers is not state.offers or retired != state.retired_since:
            self._state = replace(state, offers=offers, retired_since=retired)
        self._again |= self._cdi.due(self._state)
        self._patience.look(self._state, in_doubt=self._echo.in_doubt)
