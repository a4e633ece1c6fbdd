"""The node's status in the API server: pushed on ticks only, keys never removed (L8 to L12)."""

from __future__ import annotations

import random
from collections.abc import Mapping

from deviceplugin.simulator.clock import STATUS_REPORT_SECONDS, Clock
from deviceplugin.simulator.devicemanager import DeviceManager
from deviceplugin.simulator.journal import Journal, StatusSnapshot

Amounts = tuple[int, int]


class NodeStatus:
    """Resource -> (capacity, allocatable) as last PATCHed. It lives in the API server, so it outlives the kubelet."""

    def __init__(self, journal: Journal, clock: Clock, rng: random.Random) -> None:
        self.journal = journal
        self.clock = clock
        self.rng = rng
        self.pushed: Mapping[str, Amounts] = {}
        self._resend_at = 0.0

    def tick(self, manager: DeviceManager) -> bool:
        """Compute the status and PATCH it if it changed, or if 5 minutes +-50 % passed (L11). Whether it was sent."""
        with self.journal.changed:
            current = self.compute(manager)
            now = self.clock.now()
            if self.journal.statuses and current == self.pushed and now < self._resend_at:
                return False
            self.pushed = current
            self._resend_at = now + STATUS_REPORT_SECONDS * self.rng.uniform(0.5, 1.5)
            self.journal.statuses.append(StatusSnapshot(now, current))
            self.journal.changed.notify_all()
            return True

    def compute(self, manager: DeviceManager) -> dict[str, Amounts]:
        """The new status: deleted resources go to 0, keys that the manager does not know keep their value (L10)."""
        amounts, deleted = manager.capacity()
        return {**self.pushed, **dict.fromkeys(deleted, (0, 0)), **amounts}
