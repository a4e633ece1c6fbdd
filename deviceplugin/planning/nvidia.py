"""What NVIDIA's plugin makes of a config otherwise: for people who bring their file, or take it back (drop-in.md 4)."""

from collections.abc import Iterator
from dataclasses import dataclass

from deviceplugin.config.model import Config, MigStrategy, Origin, SelectAll, Sharing, SharingEntry
from deviceplugin.model.plan import AllocationPolicy, Mode
from deviceplugin.planning.naming import shared_name


@dataclass(frozen=True, slots=True)
class Otherwise:
    """A key that NVIDIA's plugin (v0.20.0) reads otherwise.

    Attributes:
        key: with file and line where it is known.
        nvidia: what NVIDIA's plugin does with it.
        here: what becomes of it here.
    """

    key: str
    nvidia: str
    here: str = "it takes effect"


def otherwise(config: Config) -> tuple[Otherwise, ...]:
    """Every key of a config that NVIDIA's plugin ignores or reads otherwise, in the order of its sections."""
    return tuple(_differences(config))


def _differences(config: Config) -> Iterator[Otherwise]:
    if config.flags.shared_devices_allocation_policy is AllocationPolicy.SPREAD:
        yield Otherwise("sharedDevicesAllocationPolicy", "refuses `spread` and ends")
    if config.devices.include or config.devices.exclude:
        yield Otherwise("devices", "ignores the key: it offers every GPU")
    for pattern in (*config.gpu_patterns, *config.mig_patterns):
        yield Otherwise(
            str(pattern.origin), "ignores it with a warning: GPUs and MIG instances keep their default names"
        )
    if config.time_slicing is not None and config.mps is not None:
        yield Otherwise(
            str(config.time_slicing.origin),
            "ignores time-slicing without a word where sharing.mps stands as well",
            "both take effect, each on its own GPUs",
        )
    if config.mps is not None:
        yield from _mps_differences(config, config.mps)
    for sharing in (config.time_slicing, config.mps):
        if sharing is not None:
            yield from _entry_differences(sharing)


def _mps_differences(config: Config, mps: Sharing) -> Iterator[Otherwise]:
    if config.flags.mig_strategy is MigStrategy.MIXED:
        yield Otherwise(
            str(mps.origin),
            "ends at start: it refuses MPS with migStrategy mixed on any node",
            "whole GPUs are shared by MPS beside MIG instances",
        )
    yield Otherwise(
        str(mps.origin),
        "gives the MPS pipe and /dev/shm to containers with unshared GPUs too",
        "only containers with MPS shares get them",
    )


def _entry_differences(sharing: Sharing) -> Iterator[Otherwise]:
    seen: dict[str, Origin] = {}
    for entry in sharing.entries:
        origin = str(entry.origin)
        if entry.name in seen:
            yield Otherwise(
                origin,
                f"lets it replace {seen[entry.name].path}, which names {entry.name} as well",
                "both take effect, each on its own devices",
            )
        seen[entry.name] = entry.origin
        if entry.selectors != (SelectAll(),):
            shares = shared_name(entry, sharing, covers_all=False)
            yield Otherwise(
                f"{origin}.devices",
                f"ignores it with a warning: every {entry.name} is shared",
                f"it takes effect: the shares are {shares}, and the other {entry.name} stay whole",
            )
        if entry.rename is not None:
            name = f"{entry.name}.shared" if sharing.rename_by_default else entry.name
            yield Otherwise(f"{origin}.rename", f"ignores it with a warning: the shares are {name}")
        if entry.mode is Mode.MPS and entry.replicas == 1:
            yield Otherwise(f"{origin}.replicas", "refuses the file: it wants at least 2")
        for key in _own_keys(entry):
            yield Otherwise(f"{origin}.{key}", "ignores the key")


def _own_keys(entry: SharingEntry) -> Iterator[str]:
    if entry.allocation_policy is not None:
        yield "allocationPolicy"
    if entry.memory_limit_mib is not None or entry.memory_limit_percent is not None:
        yield "memoryLimit"
    if entry.active_thread_percentage is not None:
        yield "activeThreadPercentage"
