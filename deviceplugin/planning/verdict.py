"""Why a GPU or MIG instance is not to be given out now."""

from collections import Counter

from deviceplugin.model.health import HealthReport
from deviceplugin.model.node import Failure, Snapshot


def unhealthy(snapshot: Snapshot, health: HealthReport) -> dict[str, str]:
    """The reason for every GPU and MIG instance of known UUID that is unhealthy.

    What fails a GPU fails everything on it; what fails an instance fails only itself (reports H3). Two GPUs that
    report one minor number are both unhealthy: a device file handed out by it could be another tenant's (reports K3).

    Returns:
        UUID -> reason; healthy ones are absent.
    """
    minors = Counter(gpu.minor for gpu in snapshot.gpus if gpu.minor is not None)
    reasons: dict[str, str] = {}
    for gpu in snapshot.gpus:
        of_gpu = _reason(gpu.failure, health.unhealthy.get(gpu.uuid or "", ""))
        if not of_gpu and gpu.minor is not None and minors[gpu.minor] > 1:
            of_gpu = (
                f"{minors[gpu.minor]} GPUs report the minor number {gpu.minor}: /dev/nvidia{gpu.minor} is ambiguous"
            )
        if of_gpu and gpu.uuid:
            reasons[gpu.uuid] = of_gpu
        for instance in gpu.mig_instances:
            own = _reason(instance.failure, health.unhealthy.get(instance.uuid, ""))
            if of_gpu or own:
                reasons[instance.uuid] = of_gpu or own
    return reasons


def _reason(failure: Failure | None, reported: str) -> str:
    """Both, where the report's verdict is about something else than the failure that the snapshot shows."""
    if failure is None or str(failure) in reported:
        return reported
    return f"{failure}; {reported}" if reported else str(failure)
