"""A node in one process: the product's own reconciler, ledger and link against the kubelet stand-in.

The product's parts are the real ones, gRPC included; only their threads of looking (file, driver, held devices) are
replaced by whoever drives the world, so that each step is over before the next one begins.
"""

import queue
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import wait
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from deviceplugin.app.events import Event, FileRead, KubeletCame, SnapshotTaken, Tick, Vanished
from deviceplugin.app.held_feed import HeldFeed
from deviceplugin.app.reconciler import Reconciler, StartRules
from deviceplugin.app.wellness import Wellness
from deviceplugin.cdi.directory import CdiDirectory
from deviceplugin.config.model import Config
from deviceplugin.errors import ConfigError
from deviceplugin.health.policy import Policy
from deviceplugin.kubelet.held_sources import HeldSources
from deviceplugin.kubelet.ledger import Ledger
from deviceplugin.kubelet.lifecycle import SETTLING_S
from deviceplugin.kubelet.link import KubeletLink, KubeletStarted, LinkEvent
from deviceplugin.kubelet.lists import device_list
from deviceplugin.kubelet.paths import KubeletPaths
from deviceplugin.model.mps import MpsDaemon
from deviceplugin.model.node import Snapshot
from deviceplugin.model.offer import Offer, Withdrawn
from deviceplugin.model.plan import Health, Unit
from deviceplugin.simulator import AdmittedPod, Clock, Container, Kubelet, Pod
from tests.health.nodes import probe as passing
from tests.kubelet.node import SteppedClock, eventually

BAD = b"bad"
# The kubelet gets so many reads before it has admitted a pod again, so far apart (P5).
EARLY_READS, EARLY_READS_APART_S = 3, 4.0


class SlowLedger(Ledger):
    """The ledger; on demand an Allocate stays under way until somebody waits for it."""

    def __init__(self, monotonic: SteppedClock) -> None:
        super().__init__(monotonic)
        self.under_way, self._go = threading.Event(), threading.Event()
        self._go.set()

    def hold_up(self) -> None:
        """The next Allocate stays under way, its answer composed and not yet entered."""
        self.under_way.clear()
        self._go.clear()

    def go_on(self) -> None:
        """End it."""
        self._go.set()

    def hand_out(self, resource: str, units: Mapping[str, Unit]) -> None:
        """See `Ledger`."""
        self.under_way.set()
        assert self._go.wait(10.0)
        super().hand_out(resource, units)

    def wait_idle(self, timeout_s: float) -> bool:
        """See `Ledger`."""
        self.go_on()
        return super().wait_idle(timeout_s)


class AccountableLink(KubeletLink):
    """The link; it tells before it sends a list that says nothing new."""

    before_resend: Callable[[str], None]

    def resend(self, name: str) -> None:
        """See `KubeletLink`."""
        self.before_resend(name)
        super().resend(name)


class World:
    """One node from its start on.

    The classes of its parts are attributes, so that a world with a mistake in it is a subclass.

    Args:
        configs: what the file can say; it holds the number of one of them.
        snapshot: what the driver says at first.
        config: what the file says at first.
    """

    ledger_class: ClassVar[type[SlowLedger]] = SlowLedger
    link_class: ClassVar[type[AccountableLink]] = AccountableLink
    sources_class: ClassVar[type[HeldSources]] = HeldSources
    reconciler_class: ClassVar[type[Reconciler]] = Reconciler
    patience_s: ClassVar[float] = 10.0

    def __init__(self, configs: tuple[Config, ...], snapshot: Snapshot, config: int) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="w"))
        self.configs, self.snapshot = configs, snapshot
        self.clock = SteppedClock()
        # In real time, so that its budget of calls (P1) fills up again and its records are in order.
        self.kubelet = Kubelet(
            device_plugins_dir=self.root / "device-plugins", root_dir=self.root, clock=Clock(scale=1), automatic=False
        )
        self.kubelet.start()
        self._inbox: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._deaths: list[BaseException] = []
        self.ledger = self.ledger_class(self.clock)
        self.link = self.link_class(
            kubelet_socket=self.kubelet.registration_socket,
            ledger=self.ledger,
            monotonic=self.clock,
            notify=self._hear,
            on_death=self._deaths.append,
        )
        self.link.before_resend = self._expect_another
        self._another: dict[str, int] = {}
        self._held_feed = HeldFeed(
            self.sources_class(KubeletPaths(self.kubelet.registration_socket, self.root)),
            self.ledger.wait_idle,
            self._inbox.put,
            monotonic=self.clock,
            on_death=lambda _, error: self._deaths.append(error),
        )
        self.reconciler = self.reconciler_class(
            inbox=self._inbox,
            link=self.link,
            ledger=self.ledger,
            held_feed=self._held_feed,
            vanishing=self,
            mps_feed=self,
            driver_feed=self,
            cdi=CdiDirectory(self.root / "cdi"),
            wellness=Wellness(lambda _: Policy(), self.clock, time.time),
            parse=self.parse,
            initial=configs[config],
            refused=(),
            rules=StartRules(bad_file_ends_it=False),
            monotonic=self.clock,
        )
        self.link.start()
        self.reconciler.step([SnapshotTaken(snapshot, passing(snapshot)), self._held_feed.read()])
        self.settle()

    # What the daemon's own threads would do.

    def _hear(self, event: LinkEvent) -> None:
        if isinstance(event, KubeletStarted):
            self._inbox.put(KubeletCame())

    def wait_for(self, withdrawn: Withdrawn) -> None:
        """`Vanishing`, without its thread."""

        def vanished() -> bool:
            local = self.kubelet.local()
            return not any(name in local and local[name].healthy & ids for name, ids in withdrawn.ids.items())

        eventually(vanished, self.patience_s)
        self._inbox.put(Vanished(withdrawn))

    def every(self, interval_s: float) -> None:
        """`Paced`: whoever drives the world looks at the driver."""

    def request(self) -> None:
        """`Paced`, likewise."""

    def watch(self, daemons: Iterable[MpsDaemon]) -> None:
        """No config here needs an MPS daemon."""
        assert not list(daemons)

    def parse(self, data: bytes) -> Config:
        """What a file says; raises ConfigError."""
        if data == BAD:
            raise ConfigError(("config.yaml:1: found nonsense, expected sense",))
        return replace(self.configs[int(data)], text=data.decode())

    # What happens to the node.

    def edit(self, data: bytes) -> None:
        """The file says something else."""
        self.reconciler.step([FileRead(data, None)])
        self.settle()

    def edit_during_allocate(self, data: bytes, pod: Pod) -> AdmittedPod:
        """The same while an Allocate for `pod` is under way, if the kubelet calls one."""
        self.ledger.hold_up()
        admitted = self.kubelet.submit(pod)
        eventually(lambda: self.ledger.under_way.is_set() or admitted.done(), self.patience_s)
        try:
            self.reconciler.step([FileRead(data, None)])
            # What went out without waiting has arrived before the Allocate is over.
            eventually(self._applied, self.patience_s)
        finally:
            self.ledger.go_on()
            wait([admitted], self.patience_s)
        self.settle()
        return admitted.result(0)

    def look(self, snapshot: Snapshot) -> None:
        """The driver says something else."""
        self.snapshot = snapshot
        self.reconciler.step([SnapshotTaken(snapshot, passing(snapshot))])
        self.settle()

    def admit(self, pod: Pod) -> AdmittedPod:
        """A pod comes."""
        return self.kubelet.admit(pod)

    def restart_kubelet(self, *, keep_checkpoint: bool) -> None:
        """The kubelet restarts; the plugin is back, and has read, before pods are admitted again."""
        before = self._registrations()
        self.kubelet.stop()
        if not keep_checkpoint:
            self.kubelet.checkpoint_path.unlink(missing_ok=True)
        self.kubelet.start(readmit=False)
        eventually(
            lambda: all(self._registrations().get(name, 0) > before.get(name, 0) for name in self.offered()),
            self.patience_s,
        )
        self.settle()
        for _ in range(EARLY_READS):
            self._advance(EARLY_READS_APART_S)
        self.kubelet.readmit()

    def pass_time(self, seconds: float) -> None:
        """Time passes, in which driver and holders are looked at now and then."""
        for _ in range(4):
            self._advance(seconds / 4)

    def _advance(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.kubelet.clock.advance(seconds)
        self.link.kick()
        self.reconciler.step([SnapshotTaken(self.snapshot, passing(self.snapshot)), self._held_feed.read(), Tick()])
        self.settle()

    def read_held(self, after_s: float) -> None:
        """So much later what is held is read, and nothing waits for the kubelet to have any list."""
        self.clock.advance(after_s)
        self.reconciler.step([self._held_feed.read()])

    def settle(self) -> None:
        """Until the kubelet has every list, and the reconciler has nothing left to do."""
        for _ in range(50):
            eventually(self._applied, self.patience_s)
            events = []
            while not self._inbox.empty():
                events.append(self._inbox.get())
            if not events:
                return
            self.reconciler.step(events)
        raise AssertionError("the reconciler never comes to rest")

    # What is so now.

    def offered(self) -> Mapping[str, frozenset[str]]:
        """The ids in force, by resource."""
        return {name: frozenset(offer.device_by_id) for name, offer in self.reconciler.state.offers.items()}

    def running(self) -> Mapping[str, AdmittedPod]:
        """Pods that run, by uid."""
        return {pod.uid: pod for pod in self.kubelet.pods() if pod.phase == "Running"}

    def _registrations(self) -> Mapping[str, int]:
        counts: dict[str, int] = {}
        for record in self.kubelet.registrations:
            if record.error is None:
                counts[record.resource] = counts.get(record.resource, 0) + 1
        return counts

    def _applied(self) -> bool:
        if self._deaths:
            raise AssertionError(f"a thread died: {self._deaths}")
        return all(self._shows(offer) for offer in self.reconciler.state.offers.values())

    def _shows(self, offer: Offer) -> bool:
        """Whether the kubelet has the newest list of a resource, and none is on its way."""
        state, local = self.link.states().get(offer.name), self.kubelet.local().get(offer.name)
        if state is None or local is None or not state.stream_open or state.registered_at is None:
            return False
        settling = self.clock() < state.registered_at + SETTLING_S
        devices = device_list(offer, settling=settling).devices
        healthy = {device.ID for device in devices if device.health == Health.HEALTHY}
        return (
            local.healthy == healthy
            and local.unhealthy == {device.ID for device in devices} - healthy
            and len(self.kubelet.resources[offer.name].lists) >= self._another.get(offer.name, 0)
        )

    def _expect_another(self, name: str) -> None:
        """A list is about to be sent once more; those before it must have come, so that it can be told from them."""
        eventually(self._applied, self.patience_s)
        self._another[name] = len(self.kubelet.resources[name].lists) + 1

    def close(self) -> None:
        """End everything; raises the kubelet's panic."""
        self.ledger.go_on()
        self.link.stop(2.0)
        try:
            self.kubelet.close()
        finally:
            shutil.rmtree(self.root, ignore_errors=True)


def pod(name: str, resource: str, count: int = 1) -> Pod:
    """A pod whose one container wants `count` devices."""
    return Pod(name, containers=(Container("main", {resource: count}),))
