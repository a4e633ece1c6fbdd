"""Whether the kubelet shows what our lists say: the cure for a registration that only looks alive (contract R13, R15).

A kubelet can lose a plugin while the plugin's stream stays open: a re-registration that failed half-way (R13), or a
second plugin for the same resource that came and went (R12). Nothing on our side tells, and the node shows no devices
until somebody restarts something (reports B3). GetAllocatableResources is the only echo of a list.
"""

import logging
from collections.abc import Mapping

from deviceplugin.app.ports import ResourceState
from deviceplugin.model.held import Held
from deviceplugin.model.offer import Offer
from deviceplugin.model.plan import Health

log = logging.getLogger(__name__)

# The kubelet applies a list within milliseconds; this much later it must show.
GRACE_S = 5.0
# A kubelet that never shows what it has, for a reason of its own, must not be dialled for ever: each time costs a
# moment of Unhealthy devices.
MOST_TRIES = 3


class Echo:
    """Compares lists with what the kubelet shows, and says which resources to register again."""

    def __init__(self) -> None:
        self._doubted_since: dict[str, float] = {}
        self._tries: dict[str, int] = {}

    @property
    def in_doubt(self) -> bool:
        """Whether some resource was missed once: the next read should come soon."""
        return any(self._tries.get(name, 0) < MOST_TRIES for name in self._doubted_since)

    def missed(
        self, offers: Mapping[str, Offer], states: Mapping[str, ResourceState], allocatable: Held, began_at: float
    ) -> list[str]:
        """Resources of which two reads, `GRACE_S` apart, lack healthy devices that our list has.

        Args:
            offers: in force.
            states: how each stands with the kubelet.
            allocatable: what the kubelet shows.
            began_at: monotonic seconds of that read.
        """
        again = []
        for name, offer in offers.items():
            state = states.get(name)
            if state is None or not state.stream_open or not _settled(state, began_at):
                self._doubted_since.pop(name, None)
                continue
            missing = {d.id for d in offer.devices if d.health is Health.HEALTHY} - allocatable.of(name)
            if not missing:
                self._doubted_since.pop(name, None)
                self._tries.pop(name, None)
            elif began_at - self._doubted_since.setdefault(name, began_at) >= GRACE_S and self._may_try(name, missing):
                again.append(name)
        return again

    def _may_try(self, name: str, missing: set[str]) -> bool:
        tries = self._tries[name] = self._tries.get(name, 0) + 1
        if tries > MOST_TRIES:
            return False
        self._doubted_since.pop(name)
        log.warning(
            "%s: the kubelet does not show %d of the healthy devices that our list has, e.g. %s%s",
            name,
            len(missing),
            min(missing),
            "; giving up after this try" if tries == MOST_TRIES else "",
        )
        return True


def _settled(state: ResourceState, began_at: float) -> bool:
    """Whether registration and newest list are old enough for the kubelet to have applied them."""
    return all(at is not None and began_at - at >= GRACE_S for at in (state.registered_at, state.last_list_at))
