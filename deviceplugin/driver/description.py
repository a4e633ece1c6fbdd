"""The node description: a node as a YAML file that the simulated driver replays, and any node written as one.

The format, `kind: NodeDescription`, `version: v1`. What is absent is not supported, as in the values of model.node:

    driver: {version: 570.133.20, cudaVersion: "12.8"}
    gpus:
    - index: 0
      uuid: GPU-...
      minor: 0                            # /dev/nvidia0
      pciAddress: "0000:3b:00.0"
      productName: NVIDIA A100-SXM4-40GB
      memoryMiB: 40960
      computeCapability: [8, 0]
      numaNode: 0
      migMode: {current: true, pending: true}
      migInstances:
      - {slot: 0, uuid: MIG-..., gpuInstanceId: 1, computeInstanceId: 0, profile: 3g.20gb, memoryMiB: 20096}
        # capabilities: [12, 13]         # of /dev/nvidia-caps; as drivers number them unless given, []: none
      # migHidden: {call: ..., message: ..., code: 4}   # the container may not list its instances
      nvswitchLinks: 0
    - index: 1                            # a GPU that the driver has lost
      failure: {call: nvmlDeviceGetHandleByIndex, message: GPU is lost, code: 15}
    links:
    - {gpus: [0, 2, 3], pcie: single}     # every pair of these, by index
    - {gpus: [0, 2], nvlinks: 4}          # a later entry adds to what an earlier one says of a pair
    deviceFiles: [nvidiactl, nvidia0]     # below /dev; unless given, what these GPUs have where nothing is missing
    driverRootDeviceFiles: [nvidiactl]    # below `dev` of the mounted driver root; unless given, it has none
    driverFiles:                          # of the driver's installation, with links to them in the same directory
    - {path: /usr/lib64/libcuda.so.570.133.20, links: [libcuda.so.1]}
    cdiHook: /usr/bin/nvidia-cdi-hook

What health looks like is in driver.described_health. `driver.failure` makes the driver as a whole fail with it; the
GPUs are then what the PCI bus shows all the same.
"""

from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import combinations

from deviceplugin.config.document import Plain, parse_document
from deviceplugin.driver.ambiguous import fail_shared_minors
from deviceplugin.driver.capabilities import usual_capabilities
from deviceplugin.driver.described_health import (
    DescribedHealth,
    plain_check,
    plain_events,
    plain_failure,
    present,
    read_check,
    read_events,
    read_failure,
)
from deviceplugin.driver.fields import Fields, Problems
from deviceplugin.model.devicefiles import files_of_all
from deviceplugin.model.health import Check
from deviceplugin.model.node import DriverFile, Failure, Gpu, Link, MigInstance, MigMode, PcieLevel, Snapshot

KIND = "NodeDescription"
VERSION = "v1"

ABSOLUTE = "/.+"
PCI_ADDRESS = r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]"


@dataclass(frozen=True, slots=True)
class NodeDescription:
    """What a file describes.

    Attributes:
        snapshot: the node.
        failure: the driver fails as a whole with this, instead of showing the node.
        health: what probes find, and events.
    """

    snapshot: Snapshot
    failure: Failure | None = None
    health: DescribedHealth = field(default_factory=DescribedHealth)


def parse_description(data: bytes, source: str) -> NodeDescription:
    """Read a node description.

    Args:
        data: the file's bytes.
        source: its name, for messages.

    Raises:
        ConfigError: with every problem at once, each as `file:line: path: found ..., expected ...`.
    """
    problems = Problems(source)
    top = Fields(parse_document(data, source), "", problems)
    kind = top.text("kind", required=True)
    version = top.text("version", required=True)
    if kind not in (None, KIND) or version not in (None, VERSION):
        problems.add(top.line, "kind", f"{kind} {version}", f"{KIND} {VERSION}: is it a node description?")
    driver = top.fields("driver") or top.nothing
    driver_version = driver.text("version")
    cuda_version = driver.text("cudaVersion")
    failure = read_failure(driver)
    described = [_gpu(fields) for fields in top.list_of_fields("gpus")]
    gpus = tuple(sorted((gpu for gpu, _ in described), key=lambda gpu: gpu.index))
    _refuse_repeats(gpus, top)
    uuid_of = {gpu.index: gpu.uuid for gpu in gpus}
    links = _links(top, uuid_of)
    device_files = top.texts("deviceFiles", "names of files below /dev")
    driver_root_device_files = top.texts("driverRootDeviceFiles", "names of files below dev of the driver root")
    health = DescribedHealth(
        checks={check.uuid: check for _, check in described if check is not None},
        events=read_events(top, uuid_of),
        wait_failure=read_failure(driver, "eventFailure"),
        driver_load=driver.whole("load"),
    )
    driver_files = tuple(sorted((_driver_file(one) for one in top.list_of_fields("driverFiles")), key=_path))
    cdi_hook = top.text("cdiHook", pattern=ABSOLUTE, like="/usr/bin/nvidia-cdi-hook")
    driver.refuse_others()
    top.refuse_others()
    problems.raise_if_any()
    snapshot = Snapshot(
        driver_version,
        cuda_version,
        fail_shared_minors(gpus),
        links,
        files_of_all(gpus) if device_files is None else frozenset(device_files),
        None if driver_root_device_files is None else frozenset(driver_root_device_files),
        driver_files,
        cdi_hook,
    )
    return NodeDescription(snapshot, failure, health)


def describe(description: NodeDescription) -> dict[str, Plain]:
    """A node as plain data, which `dump_document` writes and `parse_description` reads back to an equal value."""
    snapshot = description.snapshot
    health = description.health
    index_of = {gpu.uuid: gpu.index for gpu in snapshot.gpus}
    events = plain_events(health.events, index_of)
    driver = present(
        version=snapshot.driver_version,
        cudaVersion=snapshot.cuda_version,
        failure=plain_failure(description.failure),
        load=health.driver_load,
        eventFailure=plain_failure(health.wait_failure),
    )
    return {
        "kind": KIND,
        "version": VERSION,
        **({"driver": driver} if driver else {}),
        "gpus": [_gpu_to_plain(gpu, health.checks.get(gpu.uuid or "")) for gpu in snapshot.gpus],
        "links": [
            present(
                gpus=sorted((index_of[link.first], index_of[link.second])),
                nvlinks=link.nvlinks or None,
                pcie=link.pcie and link.pcie.value,
            )
            for link in snapshot.links
        ],
        **(
            {}
            if snapshot.device_files == files_of_all(snapshot.gpus)
            else {"deviceFiles": list[Plain](sorted(snapshot.device_files))}
        ),
        **({"events": events} if events else {}),
        **present(
            driverRootDeviceFiles=(
                None
                if snapshot.driver_root_device_files is None
                else list[Plain](sorted(snapshot.driver_root_device_files))
            ),
            driverFiles=[present(path=one.path, links=list(one.links) or None) for one in snapshot.driver_files]
            or None,
            cdiHook=snapshot.cdi_hook,
        ),
    }


def snapshot_to_description(snapshot: Snapshot) -> dict[str, Plain]:
    """`describe` for a node whose driver works."""
    return describe(NodeDescription(snapshot))


def _gpu(fields: Fields) -> tuple[Gpu, Check | None]:
    capability = fields.whole_numbers("computeCapability", "[major, minor]", count=2)
    minor = fields.whole("minor")
    instances = (_mig_instance(one, minor) for one in fields.list_of_fields("migInstances"))
    gpu = Gpu(
        index=fields.whole("index", required=True) or 0,
        uuid=fields.text("uuid"),
        minor=minor,
        pci_address=fields.text("pciAddress", pattern=PCI_ADDRESS, like="0000:3b:00.0"),
        product_name=fields.text("productName"),
        memory_mib=fields.whole("memoryMiB"),
        compute_capability=None if capability is None else (capability[0], capability[1]),
        numa_node=fields.whole("numaNode"),
        mig_mode=_mig_mode(fields),
        mig_instances=tuple(sorted(instances, key=lambda one: one.slot)),
        mig_hidden=read_failure(fields, "migHidden"),
        nvswitch_links=fields.whole("nvswitchLinks") or 0,
        failure=read_failure(fields),
    )
    if gpu.uuid is None and gpu.failure is None:
        fields.refuse("uuid", "none", "a UUID, or the failure that hides it")
    check = read_check(fields, gpu.uuid)
    fields.refuse_others()
    return gpu, check


def _mig_mode(parent: Fields) -> MigMode | None:
    fields = parent.fields("migMode")
    if fields is None:
        return None
    mode = MigMode(fields.flag("current", required=True), fields.flag("pending", required=True))
    fields.refuse_others()
    return mode


def _mig_instance(fields: Fields, gpu_minor: int | None) -> MigInstance:
    gpu_instance_id = fields.whole("gpuInstanceId")
    compute_instance_id = fields.whole("computeInstanceId")
    instance = MigInstance(
        uuid=fields.text("uuid", required=True) or "",
        slot=fields.whole("slot", required=True) or 0,
        gpu_instance_id=gpu_instance_id,
        compute_instance_id=compute_instance_id,
        profile=fields.text("profile"),
        memory_mib=fields.whole("memoryMiB"),
        capabilities=_capabilities(fields, usual_capabilities(gpu_minor, gpu_instance_id, compute_instance_id)),
        failure=read_failure(fields),
    )
    fields.refuse_others()
    return instance


def _driver_file(fields: Fields) -> DriverFile:
    path = fields.text("path", required=True, pattern=ABSOLUTE, like="/usr/bin/nvidia-smi")
    file = DriverFile(path or "", fields.texts("links", "names") or ())
    fields.refuse_others()
    return file


def _path(file: DriverFile) -> str:
    return file.path


def _capabilities(fields: Fields, usual: tuple[int, int] | None) -> tuple[int, int] | None:
    given = fields.whole_numbers("capabilities", "[of the GPU instance, of the compute instance], or [] for none")
    match given:
        case None:
            return usual
        case ():
            return None
        case (of_gpu_instance, of_compute_instance):
            return of_gpu_instance, of_compute_instance
    fields.refuse("capabilities", str(list(given)), "two whole numbers, or [] for none")
    return None


def _links(top: Fields, uuid_of: dict[int, str | None]) -> tuple[Link, ...]:
    found: dict[tuple[str, str], Link] = {}
    levels = {level.value: level for level in PcieLevel}
    for fields in top.list_of_fields("links"):
        indices = fields.whole_numbers("gpus", "the indices of two or more GPUs", required=True) or ()
        nvlinks = fields.whole("nvlinks")
        pcie = fields.text("pcie", one_of=tuple(levels))
        fields.refuse_others()
        uuids = [uuid for index in indices if (uuid := uuid_of.get(index)) is not None]
        if len(uuids) != len(indices) or len(set(uuids)) < 2:
            fields.refuse("gpus", str(list(indices)), "indices of two or more different GPUs above that have a UUID")
        for pair in combinations(sorted(set(uuids)), 2):
            link = found.get(pair, Link(*pair))
            found[pair] = replace(
                link,
                nvlinks=link.nvlinks if nvlinks is None else nvlinks,
                pcie=link.pcie if pcie is None else levels[pcie],
            )
    return tuple(found[pair] for pair in sorted(found) if found[pair].nvlinks or found[pair].pcie)


def _refuse_repeats(gpus: tuple[Gpu, ...], top: Fields) -> None:
    named = [("index", str(gpu.index)) for gpu in gpus]
    named += [("uuid", gpu.uuid) for gpu in gpus if gpu.uuid]
    for gpu in gpus:
        named += [(f"migInstances[].slot of GPU {gpu.index}", str(one.slot)) for one in gpu.mig_instances]
        named += [("uuid", one.uuid) for one in gpu.mig_instances]
    for (key, value), times in Counter(named).items():
        if times > 1:
            top.refuse("gpus", f"{key} {value} more than once", "each once")


def _gpu_to_plain(gpu: Gpu, check: Check | None) -> dict[str, Plain]:
    mode = gpu.mig_mode
    return present(
        index=gpu.index,
        uuid=gpu.uuid,
        minor=gpu.minor,
        pciAddress=gpu.pci_address,
        productName=gpu.product_name,
        memoryMiB=gpu.memory_mib,
        computeCapability=gpu.compute_capability and list(gpu.compute_capability),
        numaNode=gpu.numa_node,
        migMode=None if mode is None else {"current": mode.current, "pending": mode.pending},
        migInstances=[_mig_instance_to_plain(instance, gpu.minor) for instance in gpu.mig_instances] or None,
        migHidden=plain_failure(gpu.mig_hidden),
        nvswitchLinks=gpu.nvswitch_links or None,
        failure=plain_failure(gpu.failure),
        health=plain_check(check),
    )


def _mig_instance_to_plain(instance: MigInstance, gpu_minor: int | None) -> dict[str, Plain]:
    usual = usual_capabilities(gpu_minor, instance.gpu_instance_id, instance.compute_instance_id)
    return present(
        slot=instance.slot,
        uuid=instance.uuid,
        gpuInstanceId=instance.gpu_instance_id,
        computeInstanceId=instance.compute_instance_id,
        profile=instance.profile,
        memoryMiB=instance.memory_mib,
        capabilities=None if instance.capabilities == usual else list(instance.capabilities or ()),
        failure=plain_failure(instance.failure),
    )
