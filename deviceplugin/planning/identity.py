"""Who a GPU is when the driver no longer says so: names, ids and layouts must not change through a loss."""

from collections import Counter
from dataclasses import replace

from deviceplugin.model.node import Failure, Gpu, MigInstance, MigMode, Snapshot

NO_MIG = MigMode(current=False, pending=False)


def remember(previous: Snapshot | None, current: Snapshot) -> Snapshot:
    """Gives failed GPUs of a new snapshot back what their failure hides and the previous snapshot knew.

    A GPU without a UUID is taken to be the one of the same index and PCI address, or of the same index where the
    address is hidden as well, unless that one shows up under another index. A GPU or MIG instance that still has its
    UUID is found by it. Facts that the driver states now win; the failure stays.

    Args:
        previous: the newest before, itself remembered; None at the start.
        current: as the driver gave it.
    """
    if previous is None:
        return current
    by_uuid = {gpu.uuid: gpu for gpu in previous.gpus if gpu.uuid}
    by_index = Counter(gpu.index for gpu in previous.gpus)
    unique = {gpu.index: gpu for gpu in previous.gpus if by_index[gpu.index] == 1}
    shown = {gpu.uuid for gpu in current.gpus if gpu.uuid}
    gpus = []
    for gpu in current.gpus:
        known = by_uuid.get(gpu.uuid) if gpu.uuid else unique.get(gpu.index)
        if known is not None and (gpu.uuid or _may_be(gpu, known, shown)):
            gpus.append(_with_memory(gpu, known))
        else:
            gpus.append(gpu)
    return replace(current, gpus=tuple(gpus))


def all_failed(previous: Snapshot, reason: str) -> Snapshot:
    """The node as last seen, every GPU failed: the driver as a whole is gone (reports H5).

    Args:
        reason: what the driver said, e.g. `nvmlInit_v2: Driver Not Loaded`.
    """
    failure = Failure("driver", reason)
    return replace(
        previous, gpus=tuple(replace(gpu, failure=failure, mig_mode=_known_mode(gpu)) for gpu in previous.gpus)
    )


def _may_be(gpu: Gpu, known: Gpu, shown: set[str]) -> bool:
    """Whether a GPU that hides its UUID may be the one that had its index."""
    if known.uuid is None or known.uuid in shown:
        return False
    return gpu.pci_address is None or known.pci_address is None or gpu.pci_address == known.pci_address


def _with_memory(gpu: Gpu, known: Gpu) -> Gpu:
    instances = {one.uuid: one for one in known.mig_instances}
    remembered = tuple(_instance_with_memory(one, instances.get(one.uuid)) for one in gpu.mig_instances)
    if gpu.failure is None:
        return replace(gpu, mig_instances=remembered)
    mode = _known_mode(known) if gpu.mig_mode is None else gpu.mig_mode
    may_hide_instances = not remembered and mode is not None and mode.current
    return replace(
        gpu,
        uuid=gpu.uuid or known.uuid,
        minor=known.minor if gpu.minor is None else gpu.minor,
        pci_address=gpu.pci_address or known.pci_address,
        product_name=gpu.product_name or known.product_name,
        memory_mib=known.memory_mib if gpu.memory_mib is None else gpu.memory_mib,
        compute_capability=gpu.compute_capability or known.compute_capability,
        numa_node=known.numa_node if gpu.numa_node is None else gpu.numa_node,
        mig_mode=mode,
        mig_instances=known.mig_instances if may_hide_instances else remembered,
        nvswitch_links=gpu.nvswitch_links or known.nvswitch_links,
    )


def _known_mode(gpu: Gpu) -> MigMode | None:
    """What is known of its MIG mode: off, once it showed without a failure that its product doesn't do MIG.

    Beside a failure None would mean unknown, and planning would not count the GPU as one without MIG.
    """
    return NO_MIG if gpu.mig_mode is None and gpu.failure is None else gpu.mig_mode


def _instance_with_memory(instance: MigInstance, known: MigInstance | None) -> MigInstance:
    if instance.failure is None or known is None:
        return instance
    own, past = instance, known
    return replace(
        instance,
        gpu_instance_id=past.gpu_instance_id if own.gpu_instance_id is None else own.gpu_instance_id,
        compute_instance_id=past.compute_instance_id if own.compute_instance_id is None else own.compute_instance_id,
        profile=own.profile or past.profile,
        memory_mib=past.memory_mib if own.memory_mib is None else own.memory_mib,
        capabilities=own.capabilities or past.capabilities,
    )
