"""Waits until the kubelet no longer counts on devices that were withdrawn: another resource may gain them then.

A list has no acknowledgement, and two resources' lists reach the kubelet in any order. GetAllocatableResources is their
only echo (contract R15, P4); it rebuilds nothing there, so that it may be asked at any time (A14).
"""

import logging
import threading
from collections.abc import Callable

from deviceplugin.app.events import Vanished
from deviceplugin.app.threads import OnDeath, spawn
from deviceplugin.errors import KubeletError
from deviceplugin.model.held import Held
from deviceplugin.model.offer import Withdrawn

log = logging.getLogger(__name__)

TIMEOUT_S = 1.0
# A kubelet applies a list within some 7 ms. One that does not answer, or has lost our stream, is not waited for long:
# whatever it says later, it says after new registrations.
PATIENCE_S = 2.0
# The first looks, doubling up to the last: the kubelet's clients share 100 calls a second, 10 at once (P1).
LOOKS_S = (0.005, 0.1)


class Vanishing:
    """Looks in a thread that lives only while there is something to wait for.

    Args:
        allocatable: the ids that the kubelet counts as healthy, given a timeout in seconds; raises KubeletError.
        post: takes the one Vanished of each wait.
    """

    def __init__(
        self,
        allocatable: Callable[[float], Held],
        post: Callable[[Vanished], None],
        *,
        monotonic: Callable[[], float],
        on_death: OnDeath,
    ) -> None:
        self._allocatable = allocatable
        self._post = post
        self._monotonic = monotonic
        self._on_death = on_death
        self._stopped = threading.Event()

    def wait_for(self, withdrawn: Withdrawn) -> None:
        """Post Vanished once none of these is shown, or when that takes too long; returns at once."""
        spawn("vanishing", lambda: self._wait(withdrawn), self._on_death)

    def stop(self) -> None:
        """End every wait."""
        self._stopped.set()

    def _wait(self, withdrawn: Withdrawn) -> None:
        give_up_at = self._monotonic() + PATIENCE_S
        pause_s, longest_s = LOOKS_S
        while (still := self._shown(withdrawn)) and self._monotonic() < give_up_at:
            if self._stopped.wait(pause_s):
                return
            pause_s = min(2 * pause_s, longest_s)
        if still:
            log.info("going on %.0f s after a list that withdrew devices: %s", PATIENCE_S, still)
        self._post(Vanished(withdrawn))

    def _shown(self, withdrawn: Withdrawn) -> str:
        """Why the wait goes on; empty when nothing is shown any more."""
        try:
            shown = self._allocatable(TIMEOUT_S)
        except KubeletError as error:
            return str(error)
        for name, ids in withdrawn.ids.items():
            if still := shown.of(name) & ids:
                return f"the kubelet still counts {len(still)} of {name}, e.g. {min(still)}"
        return ""
