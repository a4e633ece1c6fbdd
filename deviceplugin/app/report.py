"""The status document: a versioned picture of the state for people, probes and `plan`."""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from operator import itemgetter
from typing import Any

from deviceplugin import __version__
from deviceplugin.app.state import State
from deviceplugin.health.judge import documents
from deviceplugin.health.policy import Policy
from deviceplugin.kubelet.link import ResourceState
from deviceplugin.model.held import Held
from deviceplugin.model.node import Gpu
from deviceplugin.model.offer import Offer
from deviceplugin.model.plan import Health, Mode, Plan, Terms
from deviceplugin.planning.explain import explain, share_document
from deviceplugin.planning.holders import terms_of_held
from deviceplugin.planning.mps import not_asked
from deviceplugin.planning.rights import in_words

Document = dict[str, Any]

# The version of the document: raised when a key changes meaning or goes away, not when one is added.
DOCUMENT_VERSION = 1
# A snapshot usually takes milliseconds; a driver that needs this long hangs.
DRIVER_LATE_S = 15.0
# The reconciler comes round every 2 s; a loop this late is stuck.
LOOP_LATE_S = 20.0


@dataclass(frozen=True, slots=True)
class Sources:
    """Where the report reads; every call is safe from any thread and does not block."""

    state: Callable[[], State]
    link_states: Callable[[], Mapping[str, ResourceState]]
    handed_out: Callable[[], Held]
    beat_age_s: Callable[[], float]
    driver_late_s: Callable[[], float]
    events_late_s: Callable[[], float]
    events_problem: Callable[[], str]
    policy: Callable[[State], Policy]
    monotonic: Callable[[], float]


class Report:
    """Builds the document.

    Args:
        sources: see there.
        context: what never changes: driver, kubelet socket, config file as given.
    """

    def __init__(self, sources: Sources, context: Mapping[str, str | None]) -> None:
        self._sources = sources
        self._context = dict(context)
        self._started_at = time.time()

    def document(self) -> Document:
        """The whole status, JSON-serialisable."""
        state = self._sources.state()
        link = self._sources.link_states()
        held = self._held(state)
        return {
            "version": DOCUMENT_VERSION,
            "plugin": {
                "version": __version__,
                "pid": os.getpid(),
                "started_at": _when(self._started_at),
                **self._context,
            },
            "live": _verdict(self._not_live(state)),
            "ready": _verdict(self._not_ready(state, link)),
            "config": _config(state),
            "driver": self._driver(state),
            "health": self._health(state),
            "gpus": [_gpu(gpu) for gpu in state.snapshot.gpus] if state.snapshot else [],
            "resources": sorted(
                [
                    *(
                        _resource(offer, state.plan, link.get(name), held, self._sources.monotonic())
                        for name, offer in state.offers.items()
                    ),
                    *_unserved(state),
                ],
                key=itemgetter("name"),
            ),
            "mps": _mps(state),
            "cdi_problem": state.cdi_problem,
            "held_unknown_because": state.holding.held.unknown_because if state.holding else "not read yet",
            "waiting": [
                {"resource": item.resource, "what": item.what, "waits_for": item.waits_for, "ids": list(item.ids)}
                for item in (*state.waiting, *state.without_daemon)
            ],
            "plan": self._plan(state),
        }

    def _held(self, state: State) -> Held:
        read = state.holding.held if state.holding else Held()
        return read.with_handed_out(self._sources.handed_out())

    def _plan(self, state: State) -> Document | None:
        if state.plan is None or state.snapshot is None or state.config is None:
            return None
        return explain(state.snapshot, state.config, state.plan)

    def _driver(self, state: State) -> Document:
        return {
            "version": state.snapshot.driver_version if state.snapshot else None,
            "cuda_version": state.snapshot.cuda_version if state.snapshot else None,
            "problem": "" if state.node_without_gpus else state.driver_problem,
            "node_without_gpus": state.node_without_gpus,
            "unanswered_for_s": round(self._sources.driver_late_s(), 1),
        }

    def _health(self, state: State) -> Document:
        policy = self._sources.policy(state)
        return {
            "released": state.released,
            "events_problem": self._sources.events_problem(),
            "unknown_events": state.health.unknown_events,
            "live_after_s": policy.config.live_after_s,
            "units": list(documents(state.health, policy, now=self._sources.monotonic())),
        }

    def _not_live(self, state: State) -> list[str]:
        reasons = []
        age = self._sources.beat_age_s()
        if age > LOOP_LATE_S:
            reasons.append(f"the reconciler has not come round for {age:.0f} s (limit {LOOP_LATE_S:.0f} s)")
        limit = self._sources.policy(state).config.live_after_s
        for what, late in (
            ("the driver has not answered", self._sources.driver_late_s()),
            ("the wait for the driver's events has not come back", self._sources.events_late_s()),
        ):
            if late > limit:
                reasons.append(
                    f"{what} for {late:.0f} s: health is not watched (limit {limit:.0f} s, health.liveAfter)"
                )
        return reasons

    def _not_ready(self, state: State, link: Mapping[str, ResourceState]) -> list[str]:
        reasons = self._not_live(state)
        if state.config is None:
            reasons.append(
                "no good config yet: " + ("; ".join(state.refused.problems) if state.refused else "not read")
            )
        late = self._sources.driver_late_s()
        if late > DRIVER_LATE_S:
            reasons.append(f"the driver has not answered for {late:.0f} s")
        if state.driver_problem and not state.node_without_gpus:
            reasons.append(f"waiting for the driver: {state.driver_problem}")
        elif state.snapshot is None:
            reasons.append("waiting for the driver's first answer")
        elif state.plan is None and state.config is not None:
            reasons.extend(state.plan_problems or ("what pods hold is not read yet",))
        elif state.plan is not None and (unasked := not_asked(state.plan)):
            reasons.append(f"not asked yet: the MPS control daemons of {', '.join(unasked)}")
        reasons += [f"the container lacks a right: {line}" for line in in_words(state.lacks)]
        if state.cdi_problem:
            reasons.append(f"CDI specifications are not in place: {state.cdi_problem}")
        return reasons + _unregistered(state, link)


def _unregistered(state: State, link: Mapping[str, ResourceState]) -> list[str]:
    """One line for each thing that keeps resources from the kubelet, with all the resources it keeps."""
    names: dict[str, list[str]] = {}
    for name, offer in sorted(state.offers.items()):
        served = link.get(name)
        wanted = bool(offer.devices) or (state.plan is not None and state.plan.resource(name) is not None)
        if wanted and (served is None or not served.registered or not served.stream_open):
            names.setdefault((served.awaiting or served.last_error) if served else "", []).append(name)
    return [
        f"not registered with the kubelet: {', '.join(kept)}" + (f"; awaiting {awaited}" if awaited else "")
        for awaited, kept in names.items()
    ]


def _verdict(reasons: list[str]) -> Document:
    return {"ok": not reasons, "reasons": reasons}


def _when(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def _config(state: State) -> Document:
    config = state.config
    refused = state.refused
    return {
        "source": config.source if config else None,
        "loaded_at": _when(state.config_loaded_at) if config else None,
        "in_force": config.text if config else None,
        "warnings": list(config.warnings) if config else [],
        "refused": {"problems": list(refused.problems), "at": _when(refused.at)} if refused else None,
        "plan_problems": list(state.plan_problems),
    }


def _gpu(gpu: Gpu) -> Document:
    return {
        "index": gpu.index,
        "uuid": gpu.uuid,
        "minor": gpu.minor,
        "pci_address": gpu.pci_address,
        "product_name": gpu.product_name,
        "memory_mib": gpu.memory_mib,
        "numa_node": gpu.numa_node,
        "mig": None if gpu.mig_mode is None else {"current": gpu.mig_mode.current, "pending": gpu.mig_mode.pending},
        "mig_instances": [
            {"uuid": instance.uuid, "slot": instance.slot, "profile": instance.profile}
            for instance in gpu.mig_instances
        ],
        "problem": "; ".join(str(one) for one in (gpu.failure, gpu.mig_hidden) if one),
    }


def _mps(state: State) -> list[Document]:
    """The GPUs that are offered by MPS, or that the MPS supervisor speaks of."""
    asked = {daemon.gpu_uuid: (daemon.describe(), problem) for daemon, problem in state.mps.items()}
    return [
        {
            "gpu_uuid": uuid,
            "daemon": asked[uuid][0] if uuid in asked else state.mps_keepers[uuid].daemon,
            "planned": uuid in asked,
            "problem": asked[uuid][1] if uuid in asked else "",
            "supervisor": asdict(state.mps_keepers[uuid]) if uuid in state.mps_keepers else None,
        }
        for uuid in sorted({*asked, *state.mps_keepers})
    ]


def _resource(offer: Offer, plan: Plan | None, served: ResourceState | None, held: Held, now: float) -> Document:
    healthy = sum(device.health is Health.HEALTHY for device in offer.devices)
    document: Document = {
        "name": offer.name,
        "mode": offer.resource.mode.value,
        "origin": offer.resource.origin,
        "planned": plan is not None and plan.resource(offer.name) is not None,
        "served": True,
        "capacity": len(offer.devices),
        "healthy": healthy,
        "held": sorted(held.of(offer.name)),
        "pods": {one: held.pods[one] for one in sorted(held.of(offer.name)) if one in held.pods},
        "terms": {one: _terms(terms_of_held(one, offer, None)) for one in sorted(held.of(offer.name))},
        "draining": sorted(offer.draining),
        "unhealthy": {device.id: device.reason for device in offer.devices if device.health is not Health.HEALTHY},
        "registered": served is not None and served.registered,
        "stream_open": served is not None and served.stream_open,
    }
    if served is not None:
        document |= {
            "endpoint": served.endpoint,
            "lists_sent": served.lists_sent,
            "last_list_age_s": None if served.last_list_at is None else round(now - served.last_list_at, 1),
            "last_error": served.last_error,
            "awaiting": served.awaiting,
            "conflict": served.conflict,
        }
    return document


def _terms(terms: Terms) -> Document:
    return {"mode": terms.mode.value, "mps": share_document(terms.mps) if terms.mps else None}


def _unserved(state: State) -> Iterator[Document]:
    """The resources that are planned and that the kubelet does not know of yet, each with what it awaits."""
    waits = {item.resource: item.waits_for for item in state.without_daemon}
    for resource in state.plan.resources if state.plan else ():
        if resource.name in state.offers:
            continue
        of_mps, others = (
            "the first answer of its MPS control daemons",
            "another resource, which gives devices up for it",
        )
        yield {
            "name": resource.name,
            "mode": resource.mode.value,
            "origin": resource.origin,
            "planned": True,
            "served": False,
            "capacity": 0,
            "healthy": 0,
            "held": [],
            "pods": {},
            "terms": {},
            "draining": [],
            "unhealthy": {},
            "registered": False,
            "stream_open": False,
            "awaiting": waits.get(resource.name) or (of_mps if resource.mode is Mode.MPS else others),
        }
