"""When CDI specifications are put in place, put back and removed: what a container is given must resolve then."""

import logging
from collections.abc import Callable
from dataclasses import replace

from deviceplugin.app.holding import Holding
from deviceplugin.app.ports import CdiFiles, Ledger
from deviceplugin.app.state import State
from deviceplugin.config.model import Config
from deviceplugin.model.node import Snapshot
from deviceplugin.planning.cdi import cdi_specs
from deviceplugin.planning.delivering import by_cdi

log = logging.getLogger(__name__)

# Specifications that could not be written, or that somebody removed, are written again at this pace.
RETRY_S = 2.0


class CdiUpkeep:
    """Keeps the specifications that the node and the config in force need, and those that pods may still name.

    Args:
        files: the specifications on disk.
        ledger: what was handed out, and whether an Allocate is running.
        monotonic: seconds.
    """

    def __init__(self, files: CdiFiles, ledger: Ledger, monotonic: Callable[[], float]) -> None:
        self._files = files
        self._ledger = ledger
        self._monotonic = monotonic
        self._tried_at = -RETRY_S

    def put(self, state: State, snapshot: Snapshot, config: Config) -> State:
        """Before a list makes the kubelet give anything out: returns the state with `cdi_problem` as it is now."""
        problem = self._files.ensure(cdi_specs(snapshot, config.flags))
        self._tried_at = self._monotonic()
        if problem == state.cdi_problem:
            return state
        if problem:
            log.error("CDI specifications are not in place: %s", problem)
        return replace(state, cdi_problem=problem)

    def due(self, state: State) -> bool:
        """Whether they are not in place, or were meddled with, and it is time to put them again."""
        return self._monotonic() - self._tried_at >= RETRY_S and bool(state.cdi_problem or not self._files.intact())

    def remove_unneeded(self, holding: Holding) -> None:
        """Names that nothing in force gives out any more: none may be held, nor be in an answer on its way."""
        if self._ledger.wait_idle(0):
            held = holding.held.with_handed_out(self._ledger.held())
            if not held.unknown_because and not any(held.ids.values()):
                self._files.remove_others()

    def lacking(self, config: Config) -> str:
        """Why our container may not write what a config needs written; empty when it may, or needs nothing."""
        return self._files.unwritable() if by_cdi(config.flags) else ""
