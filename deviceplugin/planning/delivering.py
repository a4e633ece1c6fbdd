"""How the config's strategies deliver a node's devices to containers, and what the node lacks for that."""

from collections.abc import Iterable, Iterator, Sequence

from deviceplugin.config.model import DeviceIdStrategy, Flags
from deviceplugin.model.cdi import is_device_name
from deviceplugin.model.delivery import Delivery
from deviceplugin.model.devicefiles import CONTROL, GDRCOPY, GDS_PREFIX, MOFED_PREFIXES, files_of, imex_file
from deviceplugin.model.health import HealthReport
from deviceplugin.model.node import Snapshot
from deviceplugin.planning.candidate import Candidate, describe
from deviceplugin.planning.devroot import host_devices
from deviceplugin.planning.verdict import unhealthy

ENVVAR, VOLUME_MOUNTS, CDI_ANNOTATIONS, CDI_CRI = "envvar", "volume-mounts", "cdi-annotations", "cdi-cri"
"""The words of deviceListStrategy."""


def by_cdi(flags: Flags) -> bool:
    """Whether containers are told CDI names."""
    return CDI_ANNOTATIONS in flags.device_list_strategies or CDI_CRI in flags.device_list_strategies


def delivery(snapshot: Snapshot, flags: Flags) -> Delivery:
    """What every device of the node comes with and how.

    Only files that the node has are passed on, of control files and IMEX channels; and only CDI names whose files it
    has, so that they resolve.
    """
    strategies = frozenset(flags.device_list_strategies)
    files = host_devices(snapshot, flags)
    channels = tuple(one for one in flags.imex_channel_ids if imex_file(one) in files.names)
    asked = {"gdrcopy": flags.gdrcopy_enabled, "gds": flags.gds_enabled, "mofed": flags.mofed_enabled}
    extras = tuple(name for name, wanted in asked.items() if wanted)
    passed = [*(name for name in CONTROL if name in files.names), *(imex_file(one) for one in channels)]
    return Delivery(
        envvar=ENVVAR in strategies,
        volume_mounts=VOLUME_MOUNTS in strategies,
        cdi_annotation_prefix=flags.cdi_annotation_prefix if CDI_ANNOTATIONS in strategies else None,
        cdi_field=CDI_CRI in strategies,
        device_root=(files.root or "/") if flags.pass_device_specs else None,
        common_files=tuple(passed),
        imex_channels=channels,
        extras=extras,
        cdi_extras=tuple(name for name in extras if extra_files(name, files.names)),
    )


def extra_files(extra: str, names: Iterable[str]) -> tuple[str, ...]:
    """Of device files those of `gdrcopy`, `gds` or `mofed`, in order of name."""
    prefixes = {"gdrcopy": GDRCOPY, "gds": (GDS_PREFIX,), "mofed": MOFED_PREFIXES}[extra]
    return tuple(sorted(name for name in names if name.startswith(prefixes)))


def not_to_be_given(
    devices: Iterable[Candidate], snapshot: Snapshot, flags: Flags, health: HealthReport, cdi_problem: str
) -> dict[str, str]:
    """Why GPUs and MIG instances can't be given out: what ails them, or what a container would lack.

    Args:
        health, cdi_problem: as for `build`.

    Returns:
        UUID -> reason; those that can be given out are absent.
    """
    reasons = unhealthy(snapshot, health)
    for device in devices:
        reason = _ailing_part(device, health) or undeliverable(device, snapshot, flags, cdi_problem)
        if device.uuid and reason:
            reasons.setdefault(device.uuid, reason)
    return reasons


def _ailing_part(device: Candidate, health: HealthReport) -> str:
    """What ails an instance of a GPU that is offered whole (migStrategy none): a container gets them all."""
    if device.instance is not None:
        return ""
    parts = ((describe(device.gpu, one), health.unhealthy.get(one.uuid)) for one in device.gpu.mig_instances)
    return next((f"{what}: {reason}" for what, reason in parts if reason), "")


def undeliverable(device: Candidate, snapshot: Snapshot, flags: Flags, cdi_problem: str) -> str:
    """Why a container could not use a GPU or MIG instance that itself works; empty when it could.

    Args:
        cdi_problem: why the CDI specifications are not in place; empty when they are.
    """
    return (
        _channel_problem(snapshot, flags)
        or _capability_problem(device)
        or _missing_files(device, snapshot, flags)
        or _name_problem(device, flags)
        or (f"its CDI name would not resolve: {cdi_problem}" if cdi_problem and by_cdi(flags) else "")
    )


def start_problems(devices: Sequence[Candidate], snapshot: Snapshot, flags: Flags) -> Iterator[str]:
    """What ends the start of NVIDIA's plugin, in its recognisable words (golden 057, 103)."""
    yield from filter(None, (_channel_problem(snapshot, flags), *map(_capability_problem, devices)))


def warnings(devices: Sequence[Candidate], snapshot: Snapshot, flags: Flags) -> Iterator[str]:
    """What the config asks for that the node does not have, and that refuses nothing."""
    planned = delivery(snapshot, flags)
    if not flags.imex_required:
        for channel in _absent_channels(snapshot, flags):
            yield f"imex.channelIDs: /dev/{imex_file(channel)} does not exist: containers get no channel {channel}"
    if planned.cdi and not snapshot.driver_files:
        yield (
            f"no file of the driver is found below {flags.container_driver_root} in this container, so CDI gives "
            f"containers device files but no libraries: mount the host's driver root there"
        )
    for name in planned.extras:
        if planned.cdi and name not in planned.cdi_extras:
            yield f"{name}Enabled: this node has no device file of it, so containers get no CDI name for it"
    if planned.device_root is not None and not planned.cdi:
        for device in devices:
            if device.instance is None and (missing := _missing(device, snapshot, flags)):
                yield f"{device.describe()}: {missing} in this container; it is passed on all the same"


def _channel_problem(snapshot: Snapshot, flags: Flags) -> str:
    absent = _absent_channels(snapshot, flags) if flags.imex_required else ()
    return f"requested IMEX channel channel{absent[0]} does not exist, and imex.required is true" if absent else ""


def _absent_channels(snapshot: Snapshot, flags: Flags) -> list[int]:
    names = host_devices(snapshot, flags).names
    return [one for one in flags.imex_channel_ids if imex_file(one) not in names]


def _capability_problem(device: Candidate) -> str:
    gpu, instance = device.gpu, device.instance
    if instance is None or instance.capabilities is not None or gpu.failure is not None or instance.failure is not None:
        return ""
    path = f"/proc/driver/nvidia/capabilities/gpu{gpu.minor}/mig/gi{instance.gpu_instance_id}/access"
    return f"missing MIG GPU instance capability path: {path}; the driver's mig-minors file does not name it either"


def _missing_files(device: Candidate, snapshot: Snapshot, flags: Flags) -> str:
    """A CDI name must resolve to files that exist; and who gets a MIG instance by its files needs both capabilities
    (reports G2, L1). A whole GPU's own file is passed on unseen, as NVIDIA's plugin does (golden 098): the host may
    have what this container does not see.
    """
    if by_cdi(flags) and device.gpu.failure is None and not files_of(device.gpu, device.instance):
        return "the driver does not say its minor number, so no CDI name of it can resolve"
    by_files = flags.pass_device_specs and device.instance is not None
    missing = _missing(device, snapshot, flags) if by_files or by_cdi(flags) else ""
    return missing or (host_devices(snapshot, flags).unseen if by_cdi(flags) else "")


def _name_problem(device: Candidate, flags: Flags) -> str:
    by_uuid = by_cdi(flags) and flags.device_id_strategy is DeviceIdStrategy.UUID
    if by_uuid and device.uuid and not is_device_name(device.uuid):
        return (
            f"CDI allows no device to be called {device.uuid}, as MIG instances are by drivers before 470: set "
            f"deviceIDStrategy to index, or deviceListStrategy to envvar"
        )
    return ""


def _missing(device: Candidate, snapshot: Snapshot, flags: Flags) -> str:
    names = host_devices(snapshot, flags).names
    missing = [name for name in files_of(device.gpu, device.instance) if name not in names]
    paths = ", ".join(f"/dev/{name}" for name in missing)
    return f"{paths} does not exist" if missing else ""
