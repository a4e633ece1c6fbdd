"""What a config needs that the container has not, with the value of the chart that gives it (design 8, Privileges)."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from deviceplugin.config.model import Config, MigStrategy
from deviceplugin.model.node import Snapshot
from deviceplugin.model.plan import Plan
from deviceplugin.planning.delivering import by_cdi
from deviceplugin.planning.mps import daemons
from deviceplugin.planning.select import manage


@dataclass(frozen=True, slots=True)
class Container:
    """What the plugin's own container was found to lack; texts for people, empty where nothing is lacking.

    Attributes:
        mps_root: why no pipe of an MPS control daemon can be reached: the MPS root is not mounted.
        cdi: why no CDI specification can be written where runtimes read them.
    """

    mps_root: str = ""
    cdi: str = ""


@dataclass(frozen=True, slots=True, order=True)
class Lack:
    """One thing that a config needs and the container has not. Two are the same if value and need are.

    Attributes:
        value: of the chart, that gives the right: `privileges.mig`.
        need: the UUID of the GPU that needs it; empty where the config as a whole does.
        what: the need, for people.
        reason: what was found, and what to set.
    """

    value: str
    need: str
    what: str = field(compare=False)
    reason: str = field(compare=False)


def lacking(snapshot: Snapshot, config: Config, plan: Plan, container: Container) -> tuple[Lack, ...]:
    """What a config needs on this node that the container lacks.

    The driver's own answer counts for MIG, not a look at capabilities: with CDI's management devices its instances can
    be listed without SYS_ADMIN. A control daemon that merely does not answer is no right that is lacking.

    Args:
        snapshot: the node.
        plan: what the config makes of it.
    """
    return tuple(sorted({*_mig(snapshot, config), *_mps(plan, container), *_cdi(config, plan, container)}))


def in_words(lacks: Iterable[Lack]) -> tuple[str, ...]:
    """One line for each reason, with all that it concerns."""
    by_reason: defaultdict[str, list[str]] = defaultdict(list)
    for lack in sorted(lacks):
        by_reason[lack.reason].append(lack.what)
    return tuple(f"{', '.join(what)}: {reason}" for reason, what in by_reason.items())


def _mig(snapshot: Snapshot, config: Config) -> Iterator[Lack]:
    if config.flags.mig_strategy is MigStrategy.NONE:
        return
    for gpu in manage(snapshot.gpus, config.devices, split=True).gpus:
        if gpu.mig_hidden is not None:
            what = f"migStrategy {config.flags.mig_strategy} on {gpu.describe()}"
            yield Lack("privileges.mig", gpu.uuid or str(gpu.index), what, str(gpu.mig_hidden))


def _mps(plan: Plan, container: Container) -> Iterator[Lack]:
    if container.mps_root:
        for one in daemons(plan):
            yield Lack("mps.enabled", one.gpu_uuid, f"MPS on {one.describe()}", container.mps_root)


def _cdi(config: Config, plan: Plan, container: Container) -> Iterator[Lack]:
    if container.cdi and by_cdi(config.flags) and plan.resources:
        what = f"deviceListStrategy {','.join(config.flags.device_list_strategies)}"
        yield Lack("cdi.enabled", "", what, container.cdi)
