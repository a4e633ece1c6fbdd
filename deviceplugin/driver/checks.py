"""Probing one GPU or MIG instance: what events do not tell, and what must be in order before it may recover."""

from collections.abc import Callable
from typing import Any

import pynvml

from deviceplugin.driver.calls import NOT_SUPPORTED, Inquiry
from deviceplugin.driver.events import WANTED
from deviceplugin.model.health import Check
from deviceplugin.model.node import Snapshot

UNKNOWN = NOT_SUPPORTED | {
    pynvml.NVML_ERROR_NO_PERMISSION,
    pynvml.NVML_ERROR_NO_DATA,
    pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
}
"""Answers that say nothing about the GPU: that something can't be checked does not mean that it is broken."""


def checks_of(snapshot: Snapshot) -> tuple[Check, ...]:
    """Probe every GPU and MIG instance that a snapshot shows without a failure.

    Raises:
        pynvml.NVMLError: the session as a whole is in doubt.
    """
    checks = []
    for gpu in snapshot.gpus:
        if gpu.uuid is None or gpu.failure is not None:
            continue
        checks.append(_check_gpu(gpu.uuid))
        checks += [_check_instance(one.uuid) for one in gpu.mig_instances if one.failure is None]
    return tuple(checks)


def _check_gpu(uuid: str) -> Check:
    inquiry = Inquiry(session_verified=False)
    handle = _reached(inquiry, uuid)
    if handle is None:
        return Check(uuid, failure=inquiry.failure)

    def ask(function: Callable[..., Any], *arguments: object) -> Any:
        return inquiry.ask(function, handle, *arguments, absent=UNKNOWN)

    ecc = ask(pynvml.nvmlDeviceGetTotalEccErrors, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC)
    rows = ask(pynvml.nvmlDeviceGetRemappedRows)
    retiring = ask(pynvml.nvmlDeviceGetRetiredPagesPendingStatus)
    events = ask(pynvml.nvmlDeviceGetSupportedEventTypes)
    return Check(
        uuid,
        failure=inquiry.failure,
        uncorrectable_ecc=ecc,
        remapping_pending=None if rows is None else bool(rows[2]),
        remapping_failed=None if rows is None else bool(rows[3]),
        retirement_pending=None if retiring is None else retiring == pynvml.NVML_FEATURE_ENABLED,
        events=bool((events or 0) & WANTED),
    )


def _check_instance(uuid: str) -> Check:
    inquiry = Inquiry(session_verified=False)
    _reached(inquiry, uuid)
    return Check(uuid, failure=inquiry.failure)


def _reached(inquiry: Inquiry, uuid: str) -> Any:
    """A handle by UUID whose memory the driver can tell."""
    handle = inquiry.ask(pynvml.nvmlDeviceGetHandleByUUID, uuid, absent=UNKNOWN)
    if handle is not None:
        inquiry.ask(pynvml.nvmlDeviceGetMemoryInfo, handle, absent=UNKNOWN)
    return handle
