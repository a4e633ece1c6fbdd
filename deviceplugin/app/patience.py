"""How often to ask what pods hold, and how to hurry a kubelet that has not written down that they have ended."""

import logging
from collections.abc import Callable

from deviceplugin.app.ports import Ledger, Link, Paced
from deviceplugin.app.state import State
from deviceplugin.model.held import Held

log = logging.getLogger(__name__)

# Pace of reading what is held: while a change waits for it, while handed-out ids are unconfirmed, else.
HELD_WAITING_S, HELD_RECENT_S, HELD_IDLE_S = 2.0, 10.0, 30.0
# A list sent only to make the kubelet rewrite its checkpoint costs it an fsync (L13): seldom.
RESEND_S = 10.0


class Patience:
    """Paces the reads of held devices by what waits for them.

    Args:
        link, ledger: the kubelet's side.
        held_feed: reads what is held, at the pace it is told.
        monotonic: seconds.
    """

    def __init__(self, link: Link, ledger: Ledger, held_feed: Paced, monotonic: Callable[[], float]) -> None:
        self._link = link
        self._ledger = ledger
        self._held_feed = held_feed
        self._monotonic = monotonic
        self._resent_at = -RESEND_S

    def look(self, state: State, *, in_doubt: bool) -> None:
        """Set the pace for this state; `in_doubt`: the kubelet may not show what our lists say."""
        if state.waiting or in_doubt or (state.refused and any(state.refused.holders.ids.values())):
            self._held_feed.every(HELD_WAITING_S)
            self._refresh_checkpoint(state)
        elif any(self._ledger.held().ids.values()):
            self._held_feed.every(HELD_RECENT_S)
        else:
            self._held_feed.every(HELD_IDLE_S)

    def _refresh_checkpoint(self, state: State) -> None:
        """Have the kubelet rewrite a checkpoint whose ended pods are all that a change still waits for (C3)."""
        if state.holding is None or self._monotonic() - self._resent_at < RESEND_S:
            return
        stale = state.holding.only_checkpointed
        holders = state.refused.holders if state.refused else Held()
        names = [
            name for name, offer in state.offers.items() if (offer.refused.keys() | holders.of(name)) & stale.of(name)
        ]
        for name in names:
            log.debug("sending the list of %s again: its last holders are in the kubelet's checkpoint only", name)
            self._link.resend(name)
        if names:
            self._resent_at = self._monotonic()
