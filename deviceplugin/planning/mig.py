"""What migStrategy makes of each GPU: itself, its MIG instances, or a layout that can't be offered (design 8, MIG)."""

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from deviceplugin.config.model import Config, MigStrategy
from deviceplugin.model.node import Gpu, MigInstance
from deviceplugin.model.plan import LeftOut
from deviceplugin.planning.candidate import Candidate
from deviceplugin.planning.naming import DEFAULT_NAME, gpu_name, mig_name

MIXED_PROFILES = "more than one MIG device type present on node"
MIXED_MODES = "all devices on the node must be configured with the same migEnabled value"
"""Both are NVIDIA's words, which people search for (golden 042, 043, 065)."""

_PARTIAL_COMPUTE = re.compile(r"\d+c\.")


@dataclass(slots=True)
class Layout:
    """The devices of a node before sharing, and what was found on the way."""

    candidates: list[Candidate] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def leave_out(self, gpu: Gpu, reason: str) -> None:
        """Leaves out a GPU with everything on it."""
        self.left_out.append(LeftOut(gpu.describe(), gpu.uuid, reason))


def lay_out(gpus: Sequence[Gpu], config: Config) -> Layout:
    """Splits managed GPUs into devices.

    Args:
        gpus: in order of index.

    Returns:
        Candidates with their unshared names, in order; every other GPU and instance is in `left_out`.
    """
    layout = Layout()
    strategy = config.flags.mig_strategy
    for gpu in gpus:
        _note_modes(gpu, strategy, layout)
    if strategy is MigStrategy.NONE:
        layout.candidates = [_whole(gpu, config) for gpu in gpus]
    elif strategy is MigStrategy.MIXED:
        for gpu in gpus:
            if gpu.mig_enabled:
                _split(gpu, config, layout)
            else:
                layout.candidates.append(_whole(gpu, config))
    else:
        _lay_out_single(gpus, config, layout)
    return layout


def _note_modes(gpu: Gpu, strategy: MigStrategy, layout: Layout) -> None:
    mode = gpu.mig_mode
    if mode is None:
        return
    if mode.current != mode.pending:
        layout.warnings.append(
            f"{gpu.describe()}: MIG is {_on(mode.current)} now and will be {_on(mode.pending)} after its next reset; "
            f"it is planned as it is now"
        )
    if mode.current and strategy is MigStrategy.NONE:
        layout.warnings.append(
            f"{gpu.describe()}: MIG is on, with {len(gpu.mig_instances)} instances, but migStrategy is none: it is "
            f"offered as one whole GPU; set migStrategy to single or mixed to offer the instances"
        )


def _on(enabled: bool) -> str:
    return "on" if enabled else "off"


def _whole(gpu: Gpu, config: Config) -> Candidate:
    return Candidate(gpu, None, *gpu_name(gpu, config))


def _split(gpu: Gpu, config: Config, layout: Layout) -> None:
    """Takes the instances of a MIG-enabled GPU; those that can't be offered are left out one by one."""
    if gpu.mig_hidden is not None or not gpu.mig_instances:
        layout.leave_out(gpu, _without_instances(gpu))
    for instance in gpu.mig_instances:
        if instance.profile is None:
            reason = f"its MIG profile is not known: {instance.failure or gpu.failure or 'the driver does not say it'}"
            layout.left_out.append(Candidate(gpu, instance, "", "").left_out(reason))
            continue
        candidate = Candidate(gpu, instance, *mig_name(instance.profile, config))
        if _partial(instance):
            layout.left_out.append(
                candidate.left_out(
                    f"a compute instance ({instance.profile}) that does not fill its GPU instance is never offered"
                )
            )
        else:
            layout.candidates.append(candidate)


def _mode_unknown(candidate: Candidate) -> bool:
    return candidate.instance is None and candidate.gpu.mig_mode is None and candidate.gpu.failure is not None


def _partial(instance: MigInstance) -> bool:
    return instance.profile is not None and _PARTIAL_COMPUTE.match(instance.profile) is not None


def _without_instances(gpu: Gpu) -> str:
    if unknown := gpu.mig_hidden or gpu.failure:
        return f"its MIG instances are not known: {unknown}"
    return f"MIG is on, but device {gpu.index} has no MIG devices configured"


def _lay_out_single(gpus: Sequence[Gpu], config: Config, layout: Layout) -> None:
    """`single`: one kind of device under each name, as NVIDIA asks it of the whole node.

    NVIDIA judges the node, since with it every device has one name; a pattern that names some devices apart takes
    them out of the judgement.
    """
    found = Layout()
    profiles: defaultdict[str, set[str]] = defaultdict(set)
    split: set[str] = set()
    for gpu in gpus:
        if not gpu.mig_enabled:
            found.candidates.append(_whole(gpu, config))
            continue
        _split(gpu, config, found)
        named = [(mig_name(one.profile, config)[0], one.profile) for one in gpu.mig_instances if one.profile]
        for name, profile in named:
            profiles[name].add(profile)
        split |= {name for name, _ in named} or {DEFAULT_NAME}
        if not gpu.mig_instances and gpu.failure is None and gpu.mig_hidden is None:
            found.problems.append(f"{gpu.describe()}: {_without_instances(gpu)}; create some or turn MIG off")
    # A failed GPU may be one more that is split: it can't be judged, and must not take the others with it.
    unknown = [one for one in found.candidates if one.name in split and _mode_unknown(one)]
    found.left_out += [one.left_out(f"whether MIG is on is not known: {one.gpu.failure}") for one in unknown]
    found.candidates = [one for one in found.candidates if one not in unknown]
    whole = {candidate.name for candidate in found.candidates if candidate.instance is None}
    refused: dict[str, str] = {}
    for name in sorted(split | whole):
        if name in split and name in whole:
            refused[name] = f"migStrategy single: {MIXED_MODES}"
        elif len(profiles[name]) > 1:
            refused[name] = f"migStrategy single: {MIXED_PROFILES}: {', '.join(sorted(profiles[name]))}"
    for candidate in found.candidates:
        if candidate.name in refused:
            found.left_out.append(candidate.left_out(f"{refused[candidate.name]}; set migStrategy to mixed"))
        else:
            layout.candidates.append(candidate)
    layout.left_out += found.left_out
    layout.problems += [
        f"{name}: {why}; make the node uniform or set migStrategy to mixed" for name, why in refused.items()
    ]
    layout.problems += found.problems
