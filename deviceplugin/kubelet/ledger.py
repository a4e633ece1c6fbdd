"""The device ids that we handed out, and the Allocates that run now (contract A14, A26, P8; design 5 and 8)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final

from deviceplugin.errors import AllocationError
from deviceplugin.model.held import KUBELET_SETTLING_S, Held
from deviceplugin.model.plan import Unit

READS_APART_S: Final = 5.0  # two reads that lack an id must be this far apart to end its entry
NAMED_IN_LOG: Final = 3

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Entry:
    """One id handed out.

    Attributes:
        missed_at: when the first of the reads began that lack it since.
        unproven: it was handed out for an earlier kubelet, and no read of the present one has shown it.
    """

    unit_uuid: str
    handed_out_at: float
    missed_at: float | None = None
    unproven: bool = False


class _Call(AbstractContextManager[None]):
    """One Allocate, which is in `running` while it runs. A class: a generator would cost its pod twice the time."""

    __slots__ = ("_idle", "_running")

    def __init__(self, idle: threading.Condition, running: set[_Call]) -> None:
        self._idle = idle
        self._running = running

    def __enter__(self) -> None:
        with self._idle:
            self._running.add(self)

    def __exit__(self, *_: object) -> None:
        with self._idle:
            self._running.remove(self)
            self._idle.notify_all()


class Ledger:
    """What was handed out and may be held, though PodResources does not show it yet. Thread-safe.

    An entry ends when two reads of PodResources, begun after its Allocate and `READS_APART_S` apart, lack it.
    No method but `wait_idle` blocks, and the one lock is held for a few dictionary look-ups at a time.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        """`monotonic` gives seconds; every `began_at` is by the same clock."""
        self._monotonic = monotonic
        self._idle = threading.Condition()
        # resource -> UUID of the physical GPU -> device id -> entry: an overlap is looked for on one GPU only.
        self._entries: dict[str, dict[str, dict[str, _Entry]]] = {}
        self._running: set[_Call] = set()
        self._kubelet_started_at = float("-inf")

    @property
    def running(self) -> int:
        """How many Allocates run now. PodResources List is not called while any does (A14)."""
        return len(self._running)

    def allocating(self) -> AbstractContextManager[None]:
        """The time of one Allocate."""
        return _Call(self._idle, self._running)

    def wait_idle(self, timeout_s: float) -> bool:
        """Wait until every Allocate that runs now is done; later ones don't matter. False when that took too long."""
        with self._idle:
            before = frozenset(self._running)
            return self._idle.wait_for(lambda: before.isdisjoint(self._running), timeout_s)

    def hand_out(self, resource: str, units: Mapping[str, Unit]) -> None:
        """Enter the ids of one Allocate, all or none.

        The same id of the same resource a second time is logged, not refused: a pod that was rejected after its
        Allocate gives its ids back without telling us (A26).

        Args:
            units: device id -> the GPU or MIG instance behind it.

        Raises AllocationError when a device overlaps one handed out under another resource: the same GPU or MIG
        instance, or parent and child; siblings on one GPU don't overlap (design 5).
        """
        with self._idle:
            now = self._monotonic()
            for unit in {unit.uuid: unit for unit in units.values()}.values():
                self._refuse_overlap(resource, unit, now)
            mine = self._entries.setdefault(resource, {})
            again = []
            for device_id, unit in units.items():
                entries = mine.setdefault(unit.gpu_uuid, {})
                if device_id in entries:
                    again.append(device_id)
                entries[device_id] = _Entry(unit.uuid, now)
        if again:
            log.info(
                "%s: handed out again: %s%s; the kubelet gave them back without telling",
                resource,
                ", ".join(again[:NAMED_IN_LOG]),
                f" and {len(again) - NAMED_IN_LOG} more" if len(again) > NAMED_IN_LOG else "",
            )

    def held(self) -> Held:
        """Every id with an entry, by resource."""
        with self._idle:
            ids = {name: frozenset().union(*gpus.values()) for name, gpus in self._entries.items()}
            return Held({name: held for name, held in ids.items() if held})

    def observe(self, read: Held, began_at: float) -> None:
        """Take note of one read of PodResources, begun at `began_at`; the checkpoint won't do, it keeps the dead (C3).

        A read that failed, or that began before the kubelet's last start, proves nothing. While the kubelet settles it
        ends only entries that this kubelet has made or shown before: PodResources is short then (P5), and a kubelet
        that lost its checkpoint knows nothing of pods that run on (A31).
        """
        if read.unknown_because:
            return
        with self._idle:
            if began_at < self._kubelet_started_at:
                return
            settled = began_at >= self._kubelet_started_at + KUBELET_SETTLING_S
            for resource, gpus in self._entries.items():
                held = read.of(resource)
                for entries in gpus.values():
                    for device_id in [i for i, entry in entries.items() if _ends(entry, i in held, began_at, settled)]:
                        del entries[device_id]

    def kubelet_started(self) -> None:
        """A kubelet has just started: for a while its PodResources is empty or short and proves nothing (P5)."""
        with self._idle:
            self._kubelet_started_at = self._monotonic()
            for gpus in self._entries.values():
                for entries in gpus.values():
                    for entry in entries.values():
                        entry.missed_at, entry.unproven = None, True

    def _refuse_overlap(self, resource: str, unit: Unit, now: float) -> None:
        for other, gpus in self._entries.items():
            if other == resource:
                continue
            for device_id, entry in gpus.get(unit.gpu_uuid, {}).items():
                whole_gpu_involved = unit.gpu_uuid in (unit.uuid, entry.unit_uuid)
                if whole_gpu_involved or unit.uuid == entry.unit_uuid:
                    raise AllocationError(
                        f'invalid allocation request for "{resource}": {unit.uuid} overlaps {device_id}, handed out '
                        f'as "{other}" {now - entry.handed_out_at:.0f} s ago; no GPU is given out under two resources '
                        "at a time. Let the pod that holds it end first"
                    )


def _ends(entry: _Entry, held: bool, read_began_at: float, settled: bool) -> bool:
    """Take note in `entry` of one read; whether it is the second that lacks the id."""
    if entry.handed_out_at >= read_began_at:
        return False
    if held:
        entry.missed_at, entry.unproven = None, False
    elif entry.unproven and not settled:
        return False
    elif entry.missed_at is None:
        entry.missed_at = read_began_at
    else:
        return read_began_at - entry.missed_at >= READS_APART_S
    return False
