"""Nodes and probes for tests of health."""

from dataclasses import replace

from deviceplugin.health.policy import Policy
from deviceplugin.health.state import HealthState
from deviceplugin.model.health import Check, DriverEvent, Probe, Xid
from deviceplugin.model.node import Failure, Gpu, MigInstance, MigMode, Snapshot

LOST = Failure("nvmlDeviceGetHandleByIndex", "GPU is lost", 15)
NO_RESPONSE = Failure("nvmlDeviceGetMemoryInfo", "Unknown Error", 999)


def uuid(index: int) -> str:
    """The UUID of GPU `index`."""
    return f"GPU-{index}"


def mig_uuid(index: int, slot: int) -> str:
    """The UUID of the MIG instance in a slot of a GPU."""
    return f"MIG-{index}-{slot}"


def node(gpus: int = 2, migs: int = 0) -> Snapshot:
    """GPUs, each with that many MIG instances; those have the GPU instance ids 3, 4, ... and compute instance 0."""
    return Snapshot(
        gpus=tuple(
            Gpu(
                index=index,
                uuid=uuid(index),
                mig_mode=MigMode(bool(migs), bool(migs)),
                mig_instances=tuple(MigInstance(mig_uuid(index, s), s, 3 + s, 0, "1g.5gb") for s in range(migs)),
            )
            for index in range(gpus)
        )
    )


def failing(snapshot: Snapshot, failure: Failure, *uuids: str) -> Snapshot:
    """The snapshot with these GPUs or MIG instances failed."""
    return replace(
        snapshot,
        gpus=tuple(
            replace(
                gpu,
                failure=failure if gpu.uuid in uuids else None,
                mig_instances=tuple(
                    replace(one, failure=failure if one.uuid in uuids else None) for one in gpu.mig_instances
                ),
            )
            for gpu in snapshot.gpus
        ),
    )


def probe(snapshot: Snapshot, *special: Check, driver_load: int | None = None) -> Probe:
    """A probe that passes for all that does not fail in the snapshot, but for the `special` ones."""
    given = {check.uuid: check for check in special}
    checks = []
    for gpu in snapshot.gpus:
        if gpu.failure is None and gpu.uuid is not None:
            checks.append(given.get(gpu.uuid, Check(gpu.uuid, uncorrectable_ecc=0, remapping_pending=False)))
            checks += [given.get(one.uuid, Check(one.uuid)) for one in gpu.mig_instances if one.failure is None]
    return Probe(tuple(checks), driver_load)


def xid(index: int, number: int, gi: int | None = None, ci: int | None = None) -> DriverEvent:
    """An Xid on a GPU, or on an instance of it."""
    return DriverEvent(Xid(number), uuid(index), gi, ci)


__all__ = ["LOST", "NO_RESPONSE", "HealthState", "Policy", "failing", "mig_uuid", "node", "probe", "uuid", "xid"]
