"""When a held device counts as free: a pure fold over reads of PodResources and the checkpoint (contract P5, P8)."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from deviceplugin.app.events import HeldRead
from deviceplugin.kubelet.unix import Identity
from deviceplugin.model.held import KUBELET_SETTLING_S, Held
from deviceplugin.planning.transition import ours

# Two reads this far apart must both lack an id (contract P8: "some seconds apart").
APART_S = 2.0

Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Holding:
    """What is believed held, and since when each id is missing from reads.

    Attributes:
        held: ids that may be held; `unknown_because` when the last read gave nothing.
        missing_since: (resource, id) -> monotonic seconds of the first read that lacked it.
        unproven: held when a kubelet started, and in none of its answers so far. A kubelet that lost its checkpoint
            doesn't know of them, nor does one that has just begun (A31, P5), while their pods run on.
        only_checkpointed: ids that the checkpoint has and PodResources lacks: ended pods whose entry stays until the
            kubelet writes the file again (contract C3), or finished init containers that still hold (A12, P2).
        kubelet: the PodResources socket of the last read: another one is another kubelet's.
        kubelet_came_at: monotonic seconds of the newest kubelet start.
    """

    held: Held = field(default_factory=Held)
    missing_since: Mapping[Key, float] = field(default_factory=dict)
    unproven: frozenset[Key] = frozenset()
    only_checkpointed: Held = field(default_factory=Held)
    kubelet: Identity | None = None
    kubelet_came_at: float = -math.inf

    def kubelet_started(self, at: float) -> "Holding":
        """A new kubelet's silence about what is held proves nothing before it has settled. `at`: monotonic seconds."""
        return replace(self, missing_since={}, unproven=frozenset(_keys(self.held)), kubelet_came_at=at)

    def after(self, read: HeldRead, *, ours_by_name: frozenset[str] = frozenset()) -> "Holding":
        """Fold one read in.

        For a while after a kubelet start PodResources may list too little (P5): then only a checkpoint counts that
        lacks an id which this kubelet has shown before. A read that began before the start may be an earlier kubelet's
        answer, and frees nothing, however late it is over.

        Args:
            read: what the feed posted.
            ours_by_name: resources in force or planned; others are ours by the form of their ids.
        """
        holding = self
        if read.kubelet not in (None, self.kubelet):
            # The first one that is seen has not come, it was there.
            holding = replace(self.kubelet_started(read.began_at) if self.kubelet else self, kubelet=read.kubelet)
        settled = read.began_at - holding.kubelet_came_at > KUBELET_SETTLING_S
        after = holding._after(read, settled, ours_by_name)
        early = read.began_at < holding.kubelet_came_at
        return after.kubelet_started(holding.kubelet_came_at) if early else after

    def _after(self, read: HeldRead, kubelet_settled: bool, ours_by_name: frozenset[str]) -> "Holding":
        if read.listed is None and read.checkpointed is None:
            return replace(self, held=Held(self.held.ids, read.problem, pods=self.held.pods))
        listed = ours(read.listed or Held(), ours_by_name)
        checkpointed = ours(read.checkpointed or Held(), ours_by_name)
        seen = _keys(listed) | _keys(checkpointed)
        unproven = self.unproven - seen if not kubelet_settled else frozenset()
        kept, missing = set(seen), {}
        for key in _keys(self.held) - seen:
            since = self.missing_since.get(key, read.began_at)
            may_free = kubelet_settled or (read.checkpointed is not None and key not in unproven)
            if not may_free or read.began_at - since < APART_S:
                kept.add(key)
                missing[key] = since
        only = _keys(checkpointed) - _keys(listed) if read.listed is not None else set()
        pods = {**self.held.pods, **(read.listed.pods if read.listed else {})}
        held_ids = {device_id for _, device_id in kept}
        held = replace(
            _held(kept),
            ends_unseen_because=read.problem,
            pods={one: pod for one, pod in pods.items() if one in held_ids},
        )
        return replace(self, held=held, missing_since=missing, unproven=unproven, only_checkpointed=_held(only))


def _keys(held: Held) -> set[Key]:
    return {(name, device_id) for name, ids in held.ids.items() for device_id in ids}


def _held(keys: set[Key]) -> Held:
    ids: dict[str, set[str]] = {}
    for name, device_id in keys:
        ids.setdefault(name, set()).add(device_id)
    return Held({name: frozenset(found) for name, found in sorted(ids.items())})
