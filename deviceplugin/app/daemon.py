"""Wires the parts together and runs them until a signal comes. The only place that knows all of them."""

import logging
import queue
import signal
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from deviceplugin import __version__
from deviceplugin.app import heap
from deviceplugin.app.config_feed import ConfigFeed
from deviceplugin.app.driver_feed import DriverFeed
from deviceplugin.app.ending import EXIT_FAILED, EXIT_STOPPED, Ended, Ending, end_process
from deviceplugin.app.event_feed import EventFeed
from deviceplugin.app.events import Event, KubeletCame, Stop
from deviceplugin.app.held_feed import HeldFeed
from deviceplugin.app.kubelet_feed import KubeletFeed
from deviceplugin.app.mps_feed import MpsFeed
from deviceplugin.app.reconciler import Reconciler, StartRules
from deviceplugin.app.releasing import release, take_up
from deviceplugin.app.report import Report, Sources
from deviceplugin.app.threads import spawn
from deviceplugin.app.vanishing import Vanishing
from deviceplugin.app.wellness import Wellness
from deviceplugin.cdi.directory import CdiDirectory
from deviceplugin.config.load import parse_config, read_config_file
from deviceplugin.config.model import Config, HealthConfig
from deviceplugin.config.settings import Settings
from deviceplugin.driver import open_driver
from deviceplugin.errors import ConfigError, DevicePluginError
from deviceplugin.health.policy import Policy
from deviceplugin.kubelet.held_sources import HeldSources
from deviceplugin.kubelet.ledger import Ledger
from deviceplugin.kubelet.link import KubeletLink, KubeletStarted
from deviceplugin.kubelet.paths import KubeletPaths
from deviceplugin.observe.control_socket import ControlSocket, control_path
from deviceplugin.observe.local_socket import LocalSocket
from deviceplugin.observe.status_socket import StatusSocket

log = logging.getLogger(__name__)

# Stopping takes no longer than this, whatever hangs (design 8, NVML: a thread stuck in the driver can't be joined).
STOP_S = 1.5


class Daemon:
    """The running plugin.

    Args:
        settings: process settings, and the layers above the file.
        monotonic: seconds.
    """

    def __init__(self, settings: Settings, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._monotonic = monotonic
        self._ending = Ending()
        self._config_feed: ConfigFeed | None = None
        self._reload_asked = False

    def run(self) -> Ended:
        """Serve until a signal comes; returns why it ended. Must be called from the main thread."""
        settings = self._settings
        heap.begin()
        for warning in settings.warnings:
            log.warning("%s", warning)
        log.info(
            "gpu-device-plugin %s starts; driver %s, kubelet %s", __version__, settings.driver, settings.kubelet_socket
        )
        try:
            config, data, problem = self._first_config()
            driver = open_driver(settings.driver, container_driver_root=self._driver_root(config))
        except DevicePluginError as error:
            log.error("cannot start: %s", error)
            return Ended(EXIT_FAILED, str(error))
        inbox: queue.SimpleQueue[Event] = queue.SimpleQueue()
        kubelet_socket = Path(settings.kubelet_socket)
        ledger = Ledger(self._monotonic)
        link = KubeletLink(
            kubelet_socket=kubelet_socket,
            ledger=ledger,
            monotonic=self._monotonic,
            notify=lambda event: inbox.put(KubeletCame()) if isinstance(event, KubeletStarted) else None,
            on_death=partial(self._died, "kubelet-link"),
        )
        sources = HeldSources(KubeletPaths(kubelet_socket, Path(settings.kubelet_root_dir)))
        held_feed = HeldFeed(
            sources,
            ledger.wait_idle,
            inbox.put,
            monotonic=self._monotonic,
            on_death=self._died,
        )
        vanishing = Vanishing(sources.allocatable, inbox.put, monotonic=self._monotonic, on_death=self._died)
        mps_feed = MpsFeed(Path(settings.mps_container_root), inbox.put, on_death=self._died)
        driver_feed = DriverFeed(
            driver,
            inbox.put,
            monotonic=self._monotonic,
            on_death=self._died,
            on_upgrade=self._upgraded,
            interval_s=(config.health if config else HealthConfig()).poll_s,
        )
        event_feed = EventFeed(driver, inbox.put, driver_feed.request, monotonic=self._monotonic, on_death=self._died)
        wellness = Wellness(self._policy, self._monotonic, time.time)
        reconciler = Reconciler(
            inbox=inbox,
            link=link,
            ledger=ledger,
            held_feed=held_feed,
            vanishing=vanishing,
            mps_feed=mps_feed,
            driver_feed=driver_feed,
            wellness=wellness,
            cdi=CdiDirectory(Path(settings.cdi_root)),
            parse=partial(self._parse, settings.config_file or ""),
            initial=config,
            refused=problem.problems if problem else (),
            rules=StartRules(bad_file_ends_it=self._bad_file_ends_start()),
            monotonic=self._monotonic,
        )
        kubelet_feed = KubeletFeed(kubelet_socket, link, on_death=self._died)
        report = Report(
            Sources(
                state=lambda: reconciler.state,
                link_states=link.states,
                handed_out=ledger.held,
                beat_age_s=reconciler.beat_age_s,
                driver_late_s=driver_feed.late_s,
                events_late_s=event_feed.late_s,
                events_problem=lambda: event_feed.problem,
                policy=wellness.policy,
                monotonic=self._monotonic,
            ),
            {
                "driver": settings.driver,
                "kubelet_socket": settings.kubelet_socket,
                "config_file": settings.config_file,
            },
        )
        status = StatusSocket(Path(settings.status_socket), report.document)
        control = ControlSocket(
            control_path(Path(settings.status_socket)), partial(release, driver_feed), partial(take_up, driver_feed)
        )
        if settings.config_file:
            self._config_feed = ConfigFeed(
                settings.config_file,
                read_config_file,
                inbox.put,
                monotonic=self._monotonic,
                on_death=self._died,
            )
        self._listen_to_signals()
        self._serve_local("status", status, "`status` and the probes will not work")
        self._serve_local("control", control, "`release` will not work")
        link.start()
        mps_feed.start()
        spawn("reconciler", partial(self._reconcile, reconciler), self._died)
        driver_feed.start()
        event_feed.start()
        held_feed.start()
        kubelet_feed.start()
        if self._config_feed is not None:
            self._config_feed.start(data, problem)

        ended = self._ending.wait(partial(self._reload_if_asked, driver_feed, held_feed))

        log.log(logging.INFO if ended.exit_status == EXIT_STOPPED else logging.ERROR, "%s", ended.message)
        steps: list[Callable[[], None]] = [
            partial(inbox.put, Stop()),
            vanishing.stop,
            partial(link.stop, STOP_S),
            status.close,
            control.close,
        ]
        feeds = (driver_feed, event_feed, held_feed, mps_feed, kubelet_feed, self._config_feed)
        steps += [feed.stop for feed in feeds if feed is not None]
        self._stop(steps)
        return ended

    def _first_config(self) -> tuple[Config | None, bytes | None, ConfigError | None]:
        """The config to start with, and what was read; raises ConfigError when a bad file ends the start."""
        settings = self._settings
        if settings.config_file is None:
            log.warning("no config file given: nothing is shared, every GPU is offered whole")
            return parse_config(b"", None, settings.overrides, lenient=settings.lenient), None, None
        data: bytes | None = None
        try:
            data = read_config_file(settings.config_file)
            config = self._parse(settings.config_file, data)
        except ConfigError as error:
            if self._bad_file_ends_start():
                raise
            log.error("waiting for a good config file; refused:\n  %s", "\n  ".join(error.problems))
            return None, data, error
        for warning in config.warnings:
            log.warning("%s", warning)
        return config, data, None

    def _parse(self, source: str, data: bytes) -> Config:
        return parse_config(data, source, self._settings.overrides, lenient=self._settings.lenient)

    def _bad_file_ends_start(self) -> bool:
        return self._settings.fail_on_init_error is not False

    def _policy(self, health: HealthConfig) -> Policy:
        return Policy(health, self._settings.disabled_health_checks, self._settings.enabled_health_checks)

    def _driver_root(self, config: Config | None) -> str:
        return config.flags.container_driver_root if config else "/driver-root"

    def _serve_local(self, name: str, local: LocalSocket, without_it: str) -> None:
        try:
            local.bind()
        except (OSError, DevicePluginError) as error:
            # Seeing the plugin is worth much, but not as much as what it serves.
            log.error(
                "no %s socket beside %s, so %s: %s; --status-socket names another",
                name,
                self._settings.status_socket,
                without_it,
                error,
            )
            return
        spawn(name, local.serve, self._died)

    def _reconcile(self, reconciler: Reconciler) -> None:
        try:
            reconciler.run()
        except DevicePluginError as error:
            self._ending.tell(Ended(EXIT_FAILED, f"cannot start: {error}"))

    def _died(self, name: str, error: BaseException) -> None:
        log.critical("thread %s died, which must never happen", name, exc_info=error)
        self._ending.tell(
            Ended(EXIT_FAILED, f"thread {name} died: {error!r}; the process ends so that it is restarted")
        )

    def _upgraded(self) -> None:
        self._ending.tell(
            Ended(EXIT_STOPPED, "the driver was upgraded: this process starts itself afresh to open it", again=True)
        )

    def _listen_to_signals(self) -> None:
        def stop(number: int, _: object) -> None:
            self._ending.tell(Ended(EXIT_STOPPED, f"stopping on {signal.Signals(number).name}"))

        def reload(_number: int, _: object) -> None:
            self._reload_asked = True

        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
            signal.signal(number, stop)
        signal.signal(signal.SIGHUP, reload)

    def _reload_if_asked(self, driver_feed: DriverFeed, held_feed: HeldFeed) -> None:
        if not self._reload_asked:
            return
        self._reload_asked = False
        if self._config_feed is not None:
            self._config_feed.force()
        driver_feed.request()
        held_feed.request()

    def _stop(self, steps: list[Callable[[], None]]) -> None:
        """Run the steps, but not for longer than STOP_S: one that hangs is left behind."""

        def run_all() -> None:
            for step in steps:
                step()

        stopper = threading.Thread(target=run_all, name="stop", daemon=True)
        stopper.start()
        stopper.join(STOP_S)
        if stopper.is_alive():
            log.warning("something still hangs after %.1f s; leaving it behind", STOP_S)


def run_and_exit(settings: Settings, monotonic: Callable[[], float] = time.monotonic) -> None:
    """Run the daemon and end the process, without waiting for threads that hang in the driver.

    Or start it afresh in the same process, with the same arguments: the process id, and so the container, stays.

    Args:
        settings, monotonic: as for `Daemon`.
    """
    end_process(Daemon(settings, monotonic).run())
