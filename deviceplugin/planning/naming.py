"""Which resource name a device gets, before and after sharing."""

from collections.abc import Iterator, Sequence

from deviceplugin.config.model import Config, MigStrategy, ResourcePattern, Sharing, SharingEntry
from deviceplugin.model.node import Gpu
from deviceplugin.model.plan import Mode
from deviceplugin.planning.select import glob_matches

DOMAIN = "nvidia.com"
DEFAULT_NAME = f"{DOMAIN}/gpu"
DEFAULT_ORIGIN = "default"
SHARED_SUFFIX = ".shared"
"""NVIDIA's suffix for `renameByDefault`, whatever the mode (drop-in.md 1)."""
SUFFIX_OF_PART = {Mode.TIME_SLICING: SHARED_SUFFIX, Mode.MPS: ".mps"}
"""The suffix of an entry that covers only part of a resource, so that the whole devices keep the plain name."""


def gpu_name(gpu: Gpu, config: Config) -> tuple[str, str]:
    """The unshared resource of a whole GPU and the config key that says so: first matching pattern, else the default.

    A GPU that hides its product name keeps the default.
    """
    return _first_match(config.gpu_patterns, gpu.product_name) or (DEFAULT_NAME, DEFAULT_ORIGIN)


def mig_name(profile: str, config: Config) -> tuple[str, str]:
    """The unshared resource of a MIG instance and the config key that says so.

    Without a pattern: `nvidia.com/gpu` under `single`, else `nvidia.com/mig-<profile>`, in which `+`, which no
    resource name may contain (contract R4), becomes `.` as in NVIDIA's plugin.
    """
    by_pattern = _first_match(config.mig_patterns, profile)
    if by_pattern:
        return by_pattern
    if config.flags.mig_strategy is MigStrategy.SINGLE:
        return DEFAULT_NAME, DEFAULT_ORIGIN
    return f"{DOMAIN}/mig-{profile.replace('+', '.')}", DEFAULT_ORIGIN


def shared_name(entry: SharingEntry, sharing: Sharing, *, covers_all: bool) -> str:
    """The name that an entry's shares are offered under (design 4).

    Args:
        covers_all: whether the entry has every device of its resource, lost ones included (design 8).
    """
    if entry.rename is not None:
        return entry.rename
    if sharing.rename_by_default:
        return entry.name + SHARED_SUFFIX
    return entry.name if covers_all else entry.name + SUFFIX_OF_PART[entry.mode]


def _first_match(patterns: tuple[ResourcePattern, ...], text: str | None) -> tuple[str, str] | None:
    if text is None:
        return None
    return next(((one.name, one.origin.path) for one in patterns if glob_matches(one.pattern, text)), None)


def idle_patterns(gpus: Sequence[Gpu], config: Config) -> Iterator[str]:
    """A warning for each pattern that matches nothing of this node (one file serves many nodes)."""
    products = {gpu.product_name for gpu in gpus if gpu.product_name}
    profiles = {one.profile for gpu in gpus for one in gpu.mig_instances if one.profile}
    for patterns, names, what in (
        (config.gpu_patterns, products, "GPU"),
        (config.mig_patterns, profiles, "MIG profile"),
    ):
        for one in patterns:
            if not any(glob_matches(one.pattern, name) for name in names):
                yield f"{one.origin}: pattern {one.pattern!r} matches no {what} of this node"
