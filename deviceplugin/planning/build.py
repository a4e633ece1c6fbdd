"""snapshot + config + health -> plan. Pure: the same input, in any order, gives an equal plan."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from deviceplugin.config.model import Config, DeviceIdStrategy, MigStrategy, SharingEntry
from deviceplugin.errors import ConfigError
from deviceplugin.model.devicefiles import files_of
from deviceplugin.model.health import HealthReport
from deviceplugin.model.mps import MpsShare
from deviceplugin.model.node import Gpu, Snapshot
from deviceplugin.model.plan import AllocationPolicy, Health, LeftOut, Mode, Plan, Resource, Unit
from deviceplugin.planning import mps
from deviceplugin.planning.candidate import Candidate, describe
from deviceplugin.planning.delivering import delivery, not_to_be_given, start_problems, warnings
from deviceplugin.planning.links import link_scores
from deviceplugin.planning.message import LIST_LIMIT_BYTES, largest_replicas, list_bytes
from deviceplugin.planning.mig import lay_out
from deviceplugin.planning.naming import idle_patterns
from deviceplugin.planning.select import manage
from deviceplugin.planning.sharing import Claim, claim

MPS_WITH_MIXED = "using --mig-strategy=mixed is not supported with MPS"
MPS_ON_MIG = "sharing using MPS is not supported for MIG devices"
"""Both are NVIDIA's words (golden 075, 077)."""

NO_REPORT = HealthReport()


@dataclass(frozen=True, slots=True)
class _Part:
    """Devices that come under a final name in one way: the shares of one entry, or what one key leaves unshared.

    Attributes:
        replicas: as in Unit: 0 for whole devices.
        origin: the config key that made it.
        place: the same with file and line, for messages.
        entry: the sharing entry; None for what is left unshared.
    """

    mode: Mode
    devices: tuple[Candidate, ...]
    replicas: int
    policy: AllocationPolicy
    refuse_more_than_one: bool
    origin: str
    place: str
    entry: SharingEntry | None = None

    def describe(self) -> str:
        """For messages."""
        first, more = self.devices[0].describe(), len(self.devices) - 1
        how = "" if self.mode is Mode.EXCLUSIVE else f"{self.mode} shares of "
        return f"{how}{first}{f' and {more} more' if more else ''} ({self.place})"


def build(snapshot: Snapshot, config: Config, health: HealthReport = NO_REPORT, *, cdi_problem: str = "") -> Plan:
    """What a config makes of a node.

    Args:
        snapshot: in any order; a GPU with a failure is planned with what is known of it.
        health: verdicts beyond what the snapshot shows.
        cdi_problem: why CDI names would not resolve, though the node has the files; empty when they do.

    Returns:
        A plan in which every GPU and MIG instance is in one resource or left out with the reason, itself or with its
        GPU. Under migStrategy none an instance is part of its GPU.

    Raises:
        ConfigError: with every problem at once: a device claimed twice, devices of different kinds under one name,
            a list longer than the kubelet receives.
    """
    gpus = _in_order(snapshot)
    managed = manage(gpus, config.devices, split=config.flags.mig_strategy is not MigStrategy.NONE)
    layout = lay_out(managed.gpus, config)
    claims = claim(layout.candidates, gpus, config)
    left_out = [*managed.left_out, *layout.left_out]
    by_name: defaultdict[str, list[_Part]] = defaultdict(list)
    for name, part in (*_shared(claims.claims, config), *_unshared(layout.candidates, claims.claims, config)):
        refused = {
            device.order: reason for device in part.devices if (reason := _unofferable(name, device, part, config))
        }
        left_out += [device.left_out(refused[device.order]) for device in part.devices if device.order in refused]
        offered = tuple(device for device in part.devices if device.order not in refused)
        if offered:
            by_name[name].append(replace(part, devices=offered))

    errors = list(claims.errors)
    if not config.flags.mps_root:
        errors += [f"{one.origin}: {mps.NO_ROOT}" for one in _shared_by_mps(claims.claims)]
    verdicts = not_to_be_given(layout.candidates, snapshot, config.flags, health, cdi_problem)
    resources = []
    for name, parts in sorted(by_name.items()):
        resource = _resource(name, parts, snapshot, verdicts, config)
        errors += list(_clashes(name, parts)) or list(_too_long(resource, parts))
        resources.append(resource)
    if errors:
        raise ConfigError(tuple(errors))
    return Plan(
        resources=tuple(resources),
        left_out=_sorted(left_out, gpus),
        warnings=(
            *managed.warnings,
            *layout.warnings,
            *idle_patterns(managed.gpus, config),
            *claims.warnings,
            *_mps_warnings(claims.claims),
            *warnings(layout.candidates, snapshot, config.flags),
        ),
        layout_problems=(
            *layout.problems,
            *_mps_problems(claims.claims, managed.gpus, config),
            *start_problems(layout.candidates, snapshot, config.flags),
        ),
    )


def _in_order(snapshot: Snapshot) -> tuple[Gpu, ...]:
    return tuple(
        replace(gpu, mig_instances=tuple(sorted(gpu.mig_instances, key=lambda one: one.slot)))
        for gpu in sorted(snapshot.gpus, key=lambda gpu: gpu.index)
    )


def _sorted(left_out: Sequence[LeftOut], gpus: Sequence[Gpu]) -> tuple[LeftOut, ...]:
    everything = [describe(gpu, instance) for gpu in gpus for instance in (None, *gpu.mig_instances)]
    place = {what: number for number, what in enumerate(everything)}
    return tuple(sorted(left_out, key=lambda one: place[one.what]))


def _shared(claims: Sequence[Claim], config: Config) -> Iterator[tuple[str, _Part]]:
    for one in claims:
        entry = one.entry
        yield (
            one.name,
            _Part(
                mode=entry.mode,
                devices=one.devices,
                replicas=entry.replicas,
                policy=entry.allocation_policy or config.flags.shared_devices_allocation_policy,
                refuse_more_than_one=one.sharing.refuse_more_than_one,
                origin=entry.origin.path,
                place=str(entry.origin),
                entry=entry,
            ),
        )


def _unshared(candidates: Sequence[Candidate], claims: Sequence[Claim], config: Config) -> Iterator[tuple[str, _Part]]:
    """What no entry claims, split by name, config key and kind, so that a clash can name each."""
    claimed = {device.order for one in claims for device in one.devices}
    groups: defaultdict[tuple[str, str, str | None], list[Candidate]] = defaultdict(list)
    for device in candidates:
        if device.order not in claimed:
            groups[device.name, device.origin, device.profile].append(device)
    for (name, origin, _), devices in groups.items():
        policy = config.flags.shared_devices_allocation_policy
        yield name, _Part(Mode.EXCLUSIVE, tuple(devices), 0, policy, False, origin, _place(origin, config))


def _place(origin: str, config: Config) -> str:
    """An origin path with its file and line, if a pattern has it."""
    patterns = (*config.gpu_patterns, *config.mig_patterns)
    return next((str(one.origin) for one in patterns if one.origin.path == origin), f"{origin} name")


def _unofferable(name: str, device: Candidate, part: _Part, config: Config) -> str:
    """Why a device that has a name can't be offered under it; empty when it can."""
    if device.uuid is None:
        return f"the driver does not say its UUID: {device.gpu.failure or 'no reason given'}"
    if part.mode is not Mode.MPS:
        return ""
    if device.instance is not None:
        return _mps_refusal(config)
    return mps.pipe_refusal(name, device.uuid) or mps.refusal(device.gpu, part.replicas)


def _shared_by_mps(claims: Sequence[Claim]) -> Iterator[SharingEntry]:
    """The MPS entries that claim a GPU of this node."""
    for one in claims:
        if one.entry.mode is Mode.MPS and any(device.instance is None for device in one.devices):
            yield one.entry


def _mps_warnings(claims: Sequence[Claim]) -> Iterator[str]:
    for one in claims:
        yield from mps.beyond_memory(one.entry, (device.gpu for device in one.devices))


def _mps_refusal(config: Config) -> str:
    return MPS_WITH_MIXED if config.flags.mig_strategy is MigStrategy.MIXED else MPS_ON_MIG


def _mps_problems(claims: Sequence[Claim], gpus: Sequence[Gpu], config: Config) -> Iterator[str]:
    """MPS on MIG instances, which NVIDIA's plugin refuses and we don't serve yet (design 8).

    Under `mixed` it refuses MPS on any node; ours shares the GPUs without MIG, and only an entry that finds nothing
    but MIG-enabled GPUs is refused (golden 075).
    """
    mixed = config.flags.mig_strategy is MigStrategy.MIXED
    for one in claims:
        on_mig = any(device.instance for device in one.devices)
        only_mig = mixed and not one.devices and any(gpu.mig_enabled for gpu in gpus)
        if one.entry.mode is Mode.MPS and (on_mig or only_mig):
            yield f"{one.entry.origin}: {_mps_refusal(config)}; share GPUs without MIG, or use timeSlicing"


def _resource(
    name: str, parts: Sequence[_Part], snapshot: Snapshot, verdicts: Mapping[str, str], config: Config
) -> Resource:
    devices = sorted(((device, part) for part in parts for device in part.devices), key=lambda one: one[0].order)
    origins = dict.fromkeys(part.origin for part in parts)
    mode = parts[0].mode
    whole = [device.uuid or "" for device, _ in devices if mode is Mode.EXCLUSIVE and device.instance is None]
    return Resource(
        name=name,
        mode=mode,
        units=tuple(
            planned_unit(device, part.replicas, verdicts, config, _share(device, part, config))
            for device, part in devices
        ),
        allocation_policy=parts[0].policy,
        refuse_more_than_one=parts[0].refuse_more_than_one,
        origin=", ".join(origins),
        link_scores=link_scores(snapshot, whole),
        delivery=delivery(snapshot, config.flags),
    )


def _share(device: Candidate, part: _Part, config: Config) -> MpsShare | None:
    if part.mode is not Mode.MPS or part.entry is None:
        return None
    return mps.share_of(device.gpu, part.entry, enforced=part.refuse_more_than_one, config=config)


def planned_unit(
    device: Candidate, replicas: int, verdicts: Mapping[str, str], config: Config, share: MpsShare | None = None
) -> Unit:
    """A GPU or MIG instance as its resource offers it.

    Args:
        device: of known UUID.
        replicas: as in Unit.
        verdicts: UUID -> why it is unhealthy.
        share: what a share by MPS gives.
    """
    gpu, instance = device.gpu, device.instance
    uuid = device.uuid or ""  # _unofferable left the others out
    index = str(gpu.index) if instance is None else f"{gpu.index}:{instance.slot}"
    reason = verdicts.get(uuid, "")
    return Unit(
        uuid=uuid,
        gpu_uuid=gpu.uuid or uuid,
        gpu_index=gpu.index,
        visible_id=index if config.flags.device_id_strategy is DeviceIdStrategy.INDEX else uuid,
        replicas=replicas,
        profile=device.profile,
        product_name=gpu.product_name,
        memory_mib=instance.memory_mib if instance else gpu.memory_mib,
        device_files=files_of(gpu, instance),
        numa_node=gpu.numa_node,
        mps=share,
        health=Health.UNHEALTHY if reason else Health.HEALTHY,
        reason=reason,
    )


def _clashes(name: str, parts: Sequence[_Part]) -> Iterator[str]:
    """Devices of different kinds under one name: a pod that asks for it could not know what it gets."""
    kinds = {(part.mode, device.profile) for part in parts for device in part.devices}
    differences = []
    if len({mode for mode, _ in kinds}) > 1:
        differences.append("modes")
    if len({profile for _, profile in kinds}) > 1:
        differences.append("MIG profiles")
    if not differences and len({part.policy for part in parts}) > 1:
        differences.append("allocation policies")
    if differences:
        who = "; ".join(part.describe() for part in parts)
        yield (
            f"{name} would hold devices of different {' and '.join(differences)}: {who}; set `rename` in all but one "
            f"of the sharing entries, or give one of them another name by a pattern under `resources`"
        )


def _too_long(resource: Resource, parts: Sequence[_Part]) -> Iterator[str]:
    size = list_bytes(resource.units)
    if size > LIST_LIMIT_BYTES:
        shares = ", ".join(f"{part.place}: {part.replicas} replicas" for part in parts)
        yield (
            f"{shares}: the list of {resource.name} would take {size} bytes, the kubelet receives at most "
            f"{LIST_LIMIT_BYTES} (4 MiB less what held devices may need); with {len(resource.units)} devices here "
            f"`replicas` may be at most {largest_replicas(resource.units)}"
        )
