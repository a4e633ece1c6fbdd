"""A real node: the snapshot that NVML, /sys, /proc and /dev give."""

import logging
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pynvml

from deviceplugin.driver.ambiguous import fail_shared_minors, hide_shared_uuids
from deviceplugin.driver.calls import WHOLE_LIBRARY, Inquiry, failure_of
from deviceplugin.driver.capabilities import with_capabilities
from deviceplugin.driver.checks import checks_of
from deviceplugin.driver.devicefiles import device_files, driver_root_device_files
from deviceplugin.driver.driverfiles import InstallationFinder
from deviceplugin.driver.events import NvmlEvents
from deviceplugin.driver.fresh import opens_in_a_new_process
from deviceplugin.driver.late import LateGpus
from deviceplugin.driver.library import NvmlLibrary, driver_error
from deviceplugin.driver.links import NvLinks, links, nvlinks
from deviceplugin.driver.mig import MIB_PER_GIB, MigListing, mig_instances, mig_mode
from deviceplugin.driver.session import NvmlSession
from deviceplugin.driver.sysfs import driver_load, numa_node, nvidia_devices, pci_address, taken_by_another_driver
from deviceplugin.errors import DriverError
from deviceplugin.model.health import DriverEvent, Probe
from deviceplugin.model.node import Gpu, Snapshot

log = logging.getLogger(__name__)

BYTES_PER_MIB = MIB_PER_GIB * 1024


@dataclass(slots=True)
class _Seen:
    """A GPU while it is read: what is known so far, and how to ask for more (None: it gave no handle)."""

    gpu: Gpu
    inquiry: Inquiry
    handle: Any = None

    def finished(self) -> Gpu:
        return replace(self.gpu, failure=self.inquiry.failure)


class NvmlDriver:
    """The driver of this node.

    NVML is opened at the first snapshot and stays open between snapshots. It lists GPUs as they were when it was
    opened: when the PCI bus shows others since (hot-plug, drain; reports H8), the next snapshot opens it anew. A GPU
    is on the bus before the driver has taken it on, so while NVML lacks one it is opened again now and then.

    Args:
        container_driver_root: where the host's driver root is mounted.
        root: what /sys, /proc and /dev lie under, `/` but in tests.
    """

    def __init__(self, container_driver_root: Path, root: Path = Path("/")) -> None:
        self._container_driver_root = container_driver_root
        self._session = NvmlSession(NvmlLibrary(container_driver_root, root))
        self._events = NvmlEvents(self._session)
        self._installation = InstallationFinder(container_driver_root)
        self._root = root
        # A call can hang for a minute. This lock is held only to look at the two flags, never during one.
        self._flags = threading.Lock()
        self._reading = False
        self._closing = False
        self._stuck = False
        self._on_the_bus: frozenset[str] = frozenset()
        self._late = LateGpus()

    def snapshot(self) -> Snapshot:
        """Ask for everything once. A GPU that fails a call carries that failure, the others are complete.

        Raises:
            DriverError: no driver, or it does not answer at all. Also when an earlier snapshot has not come back.
        """
        with self._reading_alone():
            first = self._read_if_session_holds()
            if first is not None and not _every_gpu_failed(first):
                return first
            # Somebody has shut NVML, or the driver went away or was reloaded under it: starting afresh tells which.
            try:
                self._session.shut_down()
                return self._read(session_verified=True)
            except pynvml.NVMLError as error:
                raise driver_error(failure_of("nvmlDeviceGetCount", error)) from error
            except DriverError as error:
                if first is None or error.code in WHOLE_LIBRARY:
                    raise
                return first

    def probe(self, snapshot: Snapshot) -> Probe:
        """Probe every GPU and MIG instance of a snapshot; no checks when NVML as a whole gives none."""
        with self._reading_alone():
            try:
                return Probe(checks_of(snapshot), driver_load(self._root))
            except pynvml.NVMLError as error:
                # The next snapshot tells what is the matter.
                log.debug("probes failed: %s", error)
                return Probe(driver_load=driver_load(self._root))

    def wait_events(self) -> tuple[DriverEvent, ...] | None:
        """Wait a moment for events, as NvmlEvents does. For one thread of its own."""
        return self._events.wait()

    def fresh_start_helps(self) -> bool:
        """Whether NVML can be opened in a new process, as it can't in this one. Takes up to a minute."""
        return opens_in_a_new_process(self._container_driver_root, self._root)

    def close(self) -> bool:
        """Shut NVML. Never raises. True: it is shut.

        False: a call hangs. A snapshot shuts NVML when it comes back; the wait for events is not waited for.
        """
        with self._flags:
            self._closing = self._reading
            if self._reading:
                return False
        return self._shut()

    def _shut(self) -> bool:
        try:
            self._session.shut_down()
        except DriverError as error:
            # Said once: whoever wants NVML closed asks again every second.
            log.log(logging.DEBUG if self._stuck else logging.WARNING, "%s", error)
            self._stuck = True
            return False
        self._stuck = False
        return True

    def nvidia_device_present(self) -> bool:
        """Whether the PCI bus has an NVIDIA GPU, driver or no driver. Makes no call of NVML."""
        return bool(nvidia_devices(self._root))

    @contextmanager
    def _reading_alone(self) -> Iterator[None]:
        with self._flags:
            if self._reading:
                raise DriverError("the last call of the driver has not come back yet: it hangs")
            self._reading = True
        try:
            yield
        finally:
            with self._flags:
                self._reading, closing = False, self._closing
                self._closing = False
            if closing:
                self._shut()

    def _read_if_session_holds(self) -> Snapshot | None:
        try:
            return self._read(session_verified=False)
        except pynvml.NVMLError:
            return None

    def _read(self, *, session_verified: bool) -> Snapshot:
        on_the_bus = nvidia_devices(self._root)
        if on_the_bus != self._on_the_bus:
            self._session.shut_down()
            self._on_the_bus = on_the_bus
            self._late = LateGpus()
        elif not session_verified and self._late.open_anew():
            self._session.shut_down()
        self._session.ensure_ready()
        system = Inquiry(session_verified=session_verified)
        driver_version = system.ask(pynvml.nvmlSystemGetDriverVersion)
        cuda_version = system.ask(pynvml.nvmlSystemGetCudaDriverVersion_v2)
        seen = [
            self._look_at(index, Inquiry(session_verified=session_verified), session_verified=session_verified)
            for index in range(pynvml.nvmlDeviceGetCount())
        ]
        nvlinks_of = _read_nvlinks(seen)
        self._late.lacking = self._lacks_one_of(on_the_bus, seen)
        installation = self._installation.look(driver_version)
        handles = {one.gpu.uuid: one.handle for one in seen if one.gpu.uuid is not None}
        told_apart = fail_shared_minors(hide_shared_uuids(tuple(one.finished() for one in seen)))
        gpus = with_capabilities(self._root, told_apart)
        return Snapshot(
            driver_version=driver_version,
            cuda_version=None if cuda_version is None else f"{cuda_version // 1000}.{cuda_version % 1000 // 10}",
            gpus=gpus,
            links=links(handles, nvlinks_of),
            device_files=device_files(self._root / "dev", gpus),
            driver_root_device_files=driver_root_device_files(self._container_driver_root, gpus),
            driver_files=installation.files,
            cdi_hook=installation.hook,
        )

    def _lacks_one_of(self, on_the_bus: frozenset[str], seen: Sequence[_Seen]) -> bool:
        """Whether a GPU on the bus is not listed; one that fails may hide its address."""
        listed = {one.gpu.pci_address for one in seen}
        hidden = sum(one.gpu.pci_address is None for one in seen)
        lacking = [one for one in on_the_bus - listed if not taken_by_another_driver(self._root, one)]
        return len(lacking) > hidden

    def _look_at(self, index: int, inquiry: Inquiry, *, session_verified: bool) -> _Seen:
        ask = inquiry.ask
        handle = ask(pynvml.nvmlDeviceGetHandleByIndex, index)
        if handle is None:
            return _Seen(Gpu(index=index, uuid=None), inquiry)
        uuid = ask(pynvml.nvmlDeviceGetUUID, handle)
        minor = ask(pynvml.nvmlDeviceGetMinorNumber, handle)
        pci = ask(pynvml.nvmlDeviceGetPciInfo, handle)
        address = None if pci is None else pci_address(pci.domain, pci.bus, pci.device)
        product_name = ask(pynvml.nvmlDeviceGetName, handle)
        memory = ask(pynvml.nvmlDeviceGetMemoryInfo, handle)
        memory_mib = None if memory is None else memory.total // BYTES_PER_MIB
        mode = mig_mode(inquiry, handle)
        mig = (
            mig_instances(inquiry, handle, memory_mib, session_verified=session_verified)
            if mode and mode.current
            else MigListing()
        )
        gpu = Gpu(
            index=index,
            uuid=uuid,
            minor=minor,
            pci_address=address,
            product_name=product_name,
            memory_mib=memory_mib,
            compute_capability=ask(pynvml.nvmlDeviceGetCudaComputeCapability, handle),
            numa_node=None if address is None else numa_node(self._root, address),
            mig_mode=mode,
            mig_instances=mig.instances,
            mig_hidden=mig.hidden,
        )
        return _Seen(gpu, inquiry, handle)


def _every_gpu_failed(snapshot: Snapshot) -> bool:
    return bool(snapshot.gpus) and all(gpu.failure and gpu.failure.code is not None for gpu in snapshot.gpus)


def _read_nvlinks(seen: Iterable[_Seen]) -> dict[str, NvLinks]:
    """NVLinks by UUID; the number that end in a switch goes into each GPU."""
    named = [(one, one.gpu.uuid) for one in seen if one.gpu.uuid is not None]
    uuid_at = {one.gpu.pci_address: uuid for one, uuid in named if one.gpu.pci_address is not None}
    found = {}
    for one, uuid in named:
        found[uuid] = nvlinks(one.inquiry, one.handle, uuid_at)
        one.gpu = replace(one.gpu, nvswitch_links=found[uuid].to_switches)
    return found
