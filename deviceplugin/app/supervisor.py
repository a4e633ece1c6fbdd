"""`gpu-device-plugin mps`: keeps one MPS control daemon for each GPU that the plan offers by MPS.

The same config, snapshot and planning as the plugin; a process of its own, so that the plugin can be updated without
touching a client. One thread owns the plan and gives orders; each GPU's keeper carries them out in its own.
"""

import logging
import math
import queue
import signal
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from deviceplugin import __version__
from deviceplugin.app import announce
from deviceplugin.app.config_feed import ConfigFeed
from deviceplugin.app.driver_feed import DriverFeed
from deviceplugin.app.ending import EXIT_FAILED, EXIT_STOPPED, Ended, Ending, end_process
from deviceplugin.app.events import DriverDown, Event, FileRead, HeldRead, SnapshotTaken, Stop
from deviceplugin.app.held_feed import HeldFeed
from deviceplugin.app.holding import Holding
from deviceplugin.app.threads import spawn
from deviceplugin.config.load import parse_config, read_config_file
from deviceplugin.config.model import Config
from deviceplugin.config.settings import Settings
from deviceplugin.driver import open_driver
from deviceplugin.driver.computemode import open_compute_modes
from deviceplugin.errors import ConfigError, DevicePluginError
from deviceplugin.kubelet.held_sources import HeldSources
from deviceplugin.kubelet.paths import KubeletPaths
from deviceplugin.model.held import Held
from deviceplugin.model.ids import unit_of
from deviceplugin.model.mps import MpsDaemon
from deviceplugin.model.node import Snapshot
from deviceplugin.mps.keeper import Keeper
from deviceplugin.mps.order import ComputeModes, Order
from deviceplugin.mps.paths import owned
from deviceplugin.planning.build import build
from deviceplugin.planning.identity import remember
from deviceplugin.planning.mps import daemons

log = logging.getLogger("deviceplugin.mps")

LOOK_S = 1.0
HELD_INTERVAL_S = 5.0
# Daemons get this long to end at a stop; a pod's terminationGracePeriodSeconds must be longer.
STOP_S = 10.0
# The last orders take milliseconds.
GIVER_S = 1.0


class Orders:
    """What each GPU's keeper is told: pure but for the keepers it starts.

    Args:
        root: the MPS root as this process sees it.
        start: makes the keeper of a GPU and starts its thread.
    """

    def __init__(self, root: Path, start: Callable[[str], Keeper]) -> None:
        self._root = root
        self._start = start
        self.keepers: dict[str, Keeper] = {}

    def give(self, needed: Mapping[str, MpsDaemon], held: Held) -> None:
        """Orders for every GPU that needs a daemon, has one, or has not been given back."""
        for uuid in [uuid for uuid, keeper in self.keepers.items() if keeper.done.is_set()]:
            del self.keepers[uuid]
        for uuid in sorted({*needed, *owned(self._root), *self.keepers}):
            if uuid not in self.keepers:
                self.keepers[uuid] = self._start(uuid)
            self.keepers[uuid].follow(Order(needed.get(uuid), held_by(held, uuid)))

    def disputed(self) -> bool:
        """Whether a GPU is not yet as it was ordered."""
        return any(keeper.problem or not keeper.settled for keeper in self.keepers.values())

    def end(self) -> Mapping[str, Keeper]:
        """Have every GPU's daemon ended; returns who does it.

        Also of GPUs for which no order was given yet: a stop may come before driver and kubelet have answered.
        """
        for uuid in sorted(owned(self._root).difference(self.keepers)):
            self.keepers[uuid] = self._start(uuid)
        for keeper in self.keepers.values():
            keeper.end()
        return dict(self.keepers)


def held_by(held: Held, gpu_uuid: str) -> str:
    """Which pods' devices keep a GPU as it is; empty when none does."""
    if held.unknown_because:
        return f"what pods hold is not known: {held.unknown_because}"
    on_it = {name: sorted(one for one in ids if unit_of(one) == gpu_uuid) for name, ids in held.ids.items()}
    words = [f"{len(ids)} of {name}" for name, ids in sorted(on_it.items()) if ids]
    return f"pods hold {', '.join(words)}" if words else ""


class Supervisor:
    """The running supervisor.

    Args:
        settings: as for the plugin.
        monotonic: seconds.
    """

    def __init__(self, settings: Settings, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._monotonic = monotonic
        self._root = Path(settings.mps_container_root)
        self._ending = Ending()
        self._inbox: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._config: Config | None = None
        self._snapshot: Snapshot | None = None
        self._holding = Holding()
        self._held_read_at = -math.inf
        self._planned_at = 0.0
        self._needed: Mapping[str, MpsDaemon] = {}
        self._plan_problems: tuple[str, ...] = ()
        self._driver_problem = ""
        self._reload_asked = False
        self._read_held: Callable[[], None] = lambda: None
        # Something is to be started, changed or ended, and who holds shares decides it.
        self._in_doubt = True

    def run(self) -> Ended:
        """Supervise until a signal comes; returns why it ended. Must be called from the main thread."""
        settings = self._settings
        # First of all: who is told to end has daemons of an earlier supervisor to end.
        self._listen_to_signals()
        log.info("gpu-device-plugin mps %s starts; driver %s, MPS root %s", __version__, settings.driver, self._root)
        try:
            data, problem = self._first_config()
            flags_root = self._config.flags.container_driver_root if self._config else "/driver-root"
            driver = open_driver(settings.driver, container_driver_root=flags_root)
            modes = open_compute_modes(settings.driver, container_driver_root=flags_root)
        except DevicePluginError as error:
            log.error("cannot start: %s", error)
            return Ended(EXIT_FAILED, str(error))
        sources = HeldSources(KubeletPaths(Path(settings.kubelet_socket), Path(settings.kubelet_root_dir)))
        self._holding = Holding(kubelet=sources.kubelet())
        driver_feed = DriverFeed(
            driver, self._inbox.put, monotonic=self._monotonic, on_death=self._died, on_upgrade=self._upgraded
        )
        # Allocates are the plugin's: whether one is running is not known here, so List is asked seldom (contract A14).
        held_feed = HeldFeed(
            sources, lambda timeout_s: self._in_doubt, self._inbox.put, monotonic=self._monotonic, on_death=self._died
        )
        held_feed.every(HELD_INTERVAL_S)
        self._read_held = held_feed.request
        config_feed = self._config_feed()
        orders = Orders(self._root, partial(self._start_keeper, modes))
        giver = spawn("mps-orders", partial(self._give_orders, orders), self._died)
        driver_feed.start()
        held_feed.start()
        if config_feed is not None:
            config_feed.start(data, problem)

        ended = self._ending.wait(partial(self._reload_if_asked, config_feed, driver_feed, held_feed))

        log.log(logging.INFO if ended.exit_status == EXIT_STOPPED else logging.ERROR, "%s", ended.message)
        for feed in (driver_feed, held_feed, config_feed):
            if feed is not None:
                feed.stop()
        if not ended.again:
            # Else the daemons run on, and are taken over from their records.
            self._in_doubt = True
            self._inbox.put(held_feed.read())  # what has been given out since the last read is to be served again
            self._inbox.put(Stop())
            giver.join(GIVER_S)
            self._end_keepers(orders)
        return ended

    def _first_config(self) -> tuple[bytes | None, ConfigError | None]:
        settings = self._settings
        if settings.config_file is None:
            self._config = parse_config(b"", None, settings.overrides, lenient=settings.lenient)
            return None, None
        data: bytes | None = None
        try:
            data = read_config_file(settings.config_file)
            self._config = self._parse(data)
        except ConfigError as error:
            # Daemons that run are worth more than a start that ends: they go on as they are.
            announce.refused(error.problems, keeps=False)
            return data, error
        return data, None

    def _parse(self, data: bytes) -> Config:
        return parse_config(
            data, self._settings.config_file or "", self._settings.overrides, lenient=self._settings.lenient
        )

    def _config_feed(self) -> ConfigFeed | None:
        if self._settings.config_file is None:
            return None
        return ConfigFeed(
            self._settings.config_file,
            read_config_file,
            self._inbox.put,
            monotonic=self._monotonic,
            on_death=self._died,
        )

    # The thread that gives orders.

    def _give_orders(self, orders: Orders) -> None:
        while True:
            try:
                event = self._inbox.get(timeout=LOOK_S)
            except queue.Empty:
                event = None
            if isinstance(event, Stop):
                return
            if event is not None:
                self._learn(event)
            # What was read before a plan is no word on the shares that were given out until then, on the old terms.
            if self._snapshot is not None and self._config is not None and self._held_read_at >= self._planned_at:
                orders.give(self._needed, self._holding.held)
                # With nothing to change nobody need know who holds what; the checkpoint errs on the safe side.
                self._in_doubt = orders.disputed()

    def _learn(self, event: Event) -> None:
        if isinstance(event, HeldRead):
            self._holding = self._holding.after(event)
            self._held_read_at = event.began_at
        elif isinstance(event, SnapshotTaken):
            self._driver_said("")
            self._snapshot = remember(self._snapshot, event.snapshot)
            self._plan()
        elif isinstance(event, DriverDown):
            self._driver_said(str(event.error))
        elif isinstance(event, FileRead):
            self._learn_file(event)

    def _driver_said(self, problem: str) -> None:
        """Log what changes; a driver that is down is asked every two seconds."""
        if problem != self._driver_problem:
            if problem:
                log.warning("the driver does not answer: %s; the daemons go on as they are", problem)
            else:
                log.info("the driver answers again")
            self._driver_problem = problem

    def _learn_file(self, event: FileRead) -> None:
        try:
            if event.data is None:
                raise event.problem or ConfigError(("the config file could not be read",))
            config = self._parse(event.data)
        except ConfigError as error:
            announce.refused(error.problems, keeps=self._config is not None)
            return
        if config != self._config:
            log.info("config loaded from %s", config.source)
            self._config = config
            self._plan()

    def _plan(self) -> None:
        if self._config is None or self._snapshot is None:
            return
        try:
            plan = build(self._snapshot, self._config)
        except ConfigError as error:
            if error.problems != self._plan_problems:
                announce.refused(error.problems, keeps=True)
            self._plan_problems = error.problems
            return
        self._plan_problems = ()
        needed = {daemon.gpu_uuid: daemon for daemon in daemons(plan)}
        if needed != self._needed:
            log.info("%d GPUs need an MPS control daemon", len(needed))
            self._planned_at = self._monotonic()
            self._in_doubt = True
            self._read_held()
        self._needed = needed

    def _start_keeper(self, modes: ComputeModes, gpu_uuid: str) -> Keeper:
        keeper = Keeper(self._root, gpu_uuid, modes, multiuser=self._settings.mps_multiuser, monotonic=self._monotonic)
        spawn(f"mps-{gpu_uuid[:12]}", keeper.run, self._died)
        return keeper

    # The end.

    def _end_keepers(self, orders: Orders) -> None:
        deadline = self._monotonic() + STOP_S
        for uuid, keeper in orders.end().items():
            if not keeper.done.wait(max(0.0, deadline - self._monotonic())):
                log.warning("%s: its daemon is left behind; the next start puts the compute mode back", uuid)

    def _upgraded(self) -> None:
        self._ending.tell(
            Ended(EXIT_STOPPED, "the driver was upgraded: this process starts itself afresh to open it", again=True)
        )

    def _died(self, name: str, error: BaseException) -> None:
        log.critical("thread %s died, which must never happen", name, exc_info=error)
        self._ending.tell(
            Ended(EXIT_FAILED, f"thread {name} died: {error!r}; the process ends so that it is restarted")
        )

    def _listen_to_signals(self) -> None:
        def stop(number: int, _: object) -> None:
            self._ending.tell(Ended(EXIT_STOPPED, f"stopping on {signal.Signals(number).name}"))

        def reload(_number: int, _: object) -> None:
            self._reload_asked = True

        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
            signal.signal(number, stop)
        signal.signal(signal.SIGHUP, reload)

    def _reload_if_asked(self, config_feed: ConfigFeed | None, driver_feed: DriverFeed, held_feed: HeldFeed) -> None:
        # Never in the handler itself: it takes locks (app.ending).
        if not self._reload_asked:
            return
        self._reload_asked = False
        if config_feed is not None:
            config_feed.force()
        driver_feed.request()
        held_feed.request()


def run_and_exit(settings: Settings) -> None:
    """Run the supervisor and end the process; as `deviceplugin.app.daemon.run_and_exit`."""
    end_process(Supervisor(settings).run())
