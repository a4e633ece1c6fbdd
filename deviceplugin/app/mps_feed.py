"""Asks every MPS control daemon that is planned whether it serves: one thread each, since any of them can hang.

The plugin judges by the pipe alone, whoever started the daemon. The supervisor's files only say when to look again, and
why there is nothing to be had: for people.
"""

import threading
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from deviceplugin.app.events import MpsAsked, MpsKept, MpsRootSeen
from deviceplugin.app.files import Watcher, lookups
from deviceplugin.app.threads import OnDeath, spawn
from deviceplugin.model.mps import MpsDaemon
from deviceplugin.mps.paths import DaemonPaths, compute_modes, owned, root_problem, states
from deviceplugin.mps.state import KeeperState, read_all

# Between two questions to a daemon that serves, and to one that does not.
ASK_INTERVAL_S = 5.0
RETRY_INTERVAL_S = 1.0
# Files are compared this often, whatever inotify says.
LOOK_INTERVAL_S = 1.0

Asker = Callable[[DaemonPaths, MpsDaemon], str]


def ask(paths: DaemonPaths, daemon: MpsDaemon) -> str:
    """Why a daemon does not serve; empty when it answers with the limits of its share."""
    # Imported only where MPS is in use: subprocess costs memory.
    from deviceplugin.mps.control import Control, problem_of  # noqa: PLC0415

    return problem_of(Control(paths.pipe, paths.log), daemon.share)


class _Watch:
    """One daemon under watch."""

    def __init__(self, paths: DaemonPaths) -> None:
        self.paths = paths
        self.wake = threading.Event()
        self.ended = False


class MpsFeed:
    """Posts what the planned daemons say when it changes, what the MPS root shows, and what the supervisor
    says of its GPUs.

    Args:
        root: the MPS root as this process sees it.
        post: takes MpsAsked, MpsKept and MpsRootSeen.
        asker: asks one daemon; may take seconds.
    """

    def __init__(
        self,
        root: Path,
        post: Callable[[MpsAsked | MpsKept | MpsRootSeen], None],
        *,
        on_death: OnDeath,
        asker: Asker = ask,
    ) -> None:
        self._root = root
        self._post = post
        self._on_death = on_death
        self._ask = asker
        self._watches: dict[MpsDaemon, _Watch] = {}
        self._seen = MpsRootSeen("", frozenset())
        self._said: dict[str, tuple[int, KeeperState]] = {}
        self._stopping = threading.Event()
        self._changed = threading.Event()
        self._watcher = Watcher(self._changed.set, "the MPS control daemons")

    def start(self) -> None:
        """Posts at once what the MPS root shows, then begins."""
        self._look()
        spawn("mps", self._run, self._on_death)

    def stop(self) -> None:
        """Ask every thread to end; one that waits for a daemon ends after its deadline."""
        self._stopping.set()
        self._changed.set()
        for watch in list(self._watches.values()):
            watch.ended = True
            watch.wake.set()

    def watch(self, daemons: Iterable[MpsDaemon]) -> None:
        """Ask these from now on, and no others. Called by one thread only."""
        wanted = set(daemons)
        watches = dict(self._watches)
        for daemon in watches.keys() - wanted:
            watch = watches.pop(daemon)
            watch.ended = True
            watch.wake.set()
        new = wanted - watches.keys()
        for daemon in new:
            watches[daemon] = _Watch(DaemonPaths(self._root, daemon.resource_name, daemon.gpu_uuid))
        self._watches = watches
        for daemon in new:
            name, watch = f"mps-{daemon.gpu_uuid[:12]}", watches[daemon]
            spawn(name, partial(self._keep_asking, daemon, watch), self._on_death)
        if new:
            self._changed.set()

    def _keep_asking(self, daemon: MpsDaemon, watch: _Watch) -> None:
        last: str | None = None
        while not watch.ended:
            watch.wake.clear()
            problem = self._explained(self._ask(watch.paths, daemon), daemon)
            if watch.ended:
                return
            if problem != last:
                last = problem
                self._post(MpsAsked(daemon, problem))
            watch.wake.wait(RETRY_INTERVAL_S if problem else ASK_INTERVAL_S)

    def _explained(self, problem: str, daemon: MpsDaemon) -> str:
        """What was found at the pipe, with what the supervisor says about it."""
        said = self._said.get(daemon.gpu_uuid)
        if not problem or said is None or not said[1].problem or said[1].problem in problem:
            return problem
        return f"{problem}; the MPS supervisor says: {said[1].problem}"

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._watcher.watch(self._lookups())
            if self._changed.wait(LOOK_INTERVAL_S):
                self._changed.clear()
                for watch in list(self._watches.values()):
                    watch.wake.set()
            self._look()
        self._watcher.stop()

    def _look(self) -> None:
        said = read_all(states(self._root), self._said)
        before, self._said = self._said, said
        keepers = {uuid: state for uuid, (_, state) in said.items()}
        if keepers != {uuid: state for uuid, (_, state) in before.items()}:
            self._post(MpsKept(keepers))
        now = MpsRootSeen(root_problem(self._root), owned(self._root))
        if now != self._seen:
            self._seen = now
            self._post(now)

    def _lookups(self) -> dict[str, frozenset[str]]:
        found: dict[str, frozenset[str]] = {}
        if not self._watches and not self._seen.owned:
            return found
        for path in (watch.paths for watch in self._watches.values()):
            for one in (path.pipe / "control", path.ready):
                for directory, names in lookups(one).items():
                    found[directory] = found.get(directory, frozenset()) | names
        modes = compute_modes(self._root)
        found[str(modes)] = self._seen.owned
        return found
