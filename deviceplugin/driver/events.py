"""Waiting for what the driver reports by itself: Xid errors and double-bit ECC errors."""

import ctypes
import logging
from typing import Any

import pynvml

from deviceplugin.driver.calls import NOT_SUPPORTED, failure_of
from deviceplugin.driver.library import driver_error
from deviceplugin.driver.session import SLICE_S, NvmlSession
from deviceplugin.errors import DriverError
from deviceplugin.model.health import Condition, DriverEvent, Signal, Xid

log = logging.getLogger(__name__)

WANTED = pynvml.nvmlEventTypeXidCriticalError | pynvml.nvmlEventTypeDoubleBitEccError

# nvml.h: what an event says for an instance when it means the whole GPU.
NO_INSTANCE = 0xFFFFFFFF
# One batch stays bounded; what is left comes with the next.
MAX_BATCH = 4096
# A GPU that could not be registered, as it was lost, is tried again after so many waits.
WAITS_BETWEEN_TRIES = 20


class NvmlEvents:
    """One event set for all GPUs. One thread calls `wait`, again and again.

    Args:
        session: borrowed while the set exists.
    """

    def __init__(self, session: NvmlSession) -> None:
        self._session = session
        self._set: Any = None
        self._uuid_of: dict[int, str] = {}
        self._unregistered: set[int] = set()
        self._waits = 0

    def wait(self) -> tuple[DriverEvent, ...] | None:
        """What has happened since the last call, in order; waits up to SLICE_S for something. None: NVML is not open.

        Raises:
            DriverError: events cannot be waited for now. The next call begins afresh, after a pause of the caller's.
        """
        if self._set is None and not self._open():
            return None
        if self._session.wanted:
            self._close()
            return None
        try:
            self._retry_registration()
            return self._collect()
        except pynvml.NVMLError as error:
            self._close()
            raise driver_error(failure_of("nvmlEventSetWait", error)) from error
        except BaseException:
            self._close()
            raise

    def _open(self) -> bool:
        if not self._session.borrow(SLICE_S):
            return False
        try:
            self._set = pynvml.nvmlEventSetCreate()
            self._uuid_of = {}
            self._waits = 0
            self._unregistered = set(range(pynvml.nvmlDeviceGetCount()))
            self._register()
        except BaseException as error:
            self._close()
            if isinstance(error, pynvml.NVMLError):
                raise driver_error(failure_of("nvmlEventSetCreate", error)) from error
            raise
        return True

    def _close(self) -> None:
        events, self._set = self._set, None
        try:
            if events is not None:
                pynvml.nvmlEventSetFree(events)
        except pynvml.NVMLError as error:
            log.debug("nvmlEventSetFree: %s", error)
        finally:
            self._session.give_back()

    def _register(self) -> None:
        for index in sorted(self._unregistered):
            try:
                self._register_gpu(index)
            except pynvml.NVMLError as error:
                # One GPU's failing call says nothing of the others; the probes say what is the matter with it.
                log.debug("no events of GPU %d yet: %s", index, error)
            else:
                self._unregistered.discard(index)

    def _register_gpu(self, index: int) -> None:
        """Register one GPU; one that knows no events is left to the probes."""
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        uuid = pynvml.nvmlDeviceGetUUID(handle)
        try:
            types = pynvml.nvmlDeviceGetSupportedEventTypes(handle) & WANTED
            if types:
                pynvml.nvmlDeviceRegisterEvents(handle, types, self._set)
                self._uuid_of[_address(handle)] = uuid
        except pynvml.NVMLError as error:
            if error.value not in NOT_SUPPORTED:
                raise

    def _retry_registration(self) -> None:
        self._waits += 1
        if self._unregistered and self._waits % WAITS_BETWEEN_TRIES == 0:
            self._register()

    def _collect(self) -> tuple[DriverEvent, ...]:
        events: list[DriverEvent] = []
        timeout_ms = round(SLICE_S * 1000)
        while len(events) < MAX_BATCH:
            try:
                data = pynvml.nvmlEventSetWait_v2(self._set, timeout_ms)
            except pynvml.NVMLError as error:
                if error.value == pynvml.NVML_ERROR_TIMEOUT or events:
                    break  # another error shows again at the next wait; what has come must not be lost for it
                if error.value == pynvml.NVML_ERROR_FUNCTION_NOT_FOUND:
                    raise DriverError(
                        "this driver is too old to wait for events (nvmlEventSetWait_v2, driver 450): GPUs are "
                        "looked at from time to time only",
                        error.value,
                    ) from error
                raise
            timeout_ms = 0
            signal = _signal(data)
            if signal is not None:
                gi, ci = _instance(data.gpuInstanceId), _instance(data.computeInstanceId)
                events.append(DriverEvent(signal, self._whose(data.device), gi, ci))
        return tuple(events)

    def _whose(self, handle: Any) -> str | None:
        """The UUID of the GPU that a handle means; a lost one would not say it any more."""
        known = self._uuid_of.get(_address(handle))
        if known is not None:
            return known
        try:
            uuid: str = pynvml.nvmlDeviceGetUUID(handle)
        except pynvml.NVMLError:
            return None
        return uuid


def _signal(data: Any) -> Signal | None:
    if data.eventType == pynvml.nvmlEventTypeXidCriticalError:
        return Xid(data.eventData)
    if data.eventType == pynvml.nvmlEventTypeDoubleBitEccError:
        return Condition.UNCORRECTABLE_ECC
    return None


def _instance(number: int) -> int | None:
    return None if number == NO_INSTANCE else number


def _address(handle: Any) -> int:
    return ctypes.cast(handle, ctypes.c_void_p).value or 0
