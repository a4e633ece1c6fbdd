"""What the reconciler has in force, as one frozen value that status and probes read."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from deviceplugin.app.holding import Holding
from deviceplugin.config.model import Config
from deviceplugin.health.state import HealthState
from deviceplugin.model.held import Held
from deviceplugin.model.mps import MpsDaemon
from deviceplugin.model.node import Snapshot
from deviceplugin.model.offer import Offer, Waiting
from deviceplugin.model.plan import Plan
from deviceplugin.mps.state import KeeperState
from deviceplugin.planning.rights import Lack


@dataclass(frozen=True, slots=True)
class Refused:
    """A config that was not taken.

    Attributes:
        problems: every finding.
        at: seconds since the epoch.
        holders: the held ids that it was refused for, under `sharing.transition: refuse`.
    """

    problems: tuple[str, ...]
    at: float
    holders: Held = field(default_factory=Held)


@dataclass(frozen=True, slots=True)
class State:
    """Replaced as a whole by the reconciler; never changed in place.

    Attributes:
        config: in force; None until the first good one.
        config_loaded_at: seconds since the epoch.
        refused: the newest file, if it is not in force.
        snapshot: the newest, with the identity of lost GPUs remembered; None until the driver first answered.
        driver_problem: why the driver as a whole does not answer; empty when it does.
        node_without_gpus: no driver, and no NVIDIA device that would need one.
        health: what is known of the health of each GPU and MIG instance.
        verdicts: UUID -> why it is unhealthy, as the plan in force has it.
        released: the driver has been let go of at an operator's request.
        plan: None until the first good one.
        plan_problems: why the newest snapshot could not be planned with the config in force; the plan is then the last
            good one carried on.
        cdi_problem: why the CDI specifications are not in place; empty when they are or nobody needs them.
        lacks: what the config in force needs that the container has not.
        mps_root_problem: why no pipe of an MPS control daemon can be reached; empty when the MPS root is there.
        offers: in force on the wire, by resource.
        waiting: what waits for what.
        without_daemon: MPS resources that are not registered since no daemon of theirs has ever answered.
        mps: what each MPS control daemon was last found to say; empty text: it serves.
        mps_keepers: what the MPS supervisor says that it does, by the GPU's UUID.
        mps_owned: UUIDs of the GPUs that the MPS supervisor has.
        retired_since: resource -> monotonic seconds since its list is empty and no plan has it.
    """

    config: Config | None = None
    config_loaded_at: float = 0.0
    refused: Refused | None = None
    snapshot: Snapshot | None = None
    driver_problem: str = ""
    node_without_gpus: bool = False
    health: HealthState = field(default_factory=HealthState)
    verdicts: Mapping[str, str] = field(default_factory=dict)
    released: bool = False
    plan: Plan | None = None
    plan_problems: tuple[str, ...] = ()
    cdi_problem: str = ""
    lacks: tuple[Lack, ...] = ()
    mps_root_problem: str = ""
    offers: Mapping[str, Offer] = field(default_factory=dict)
    waiting: tuple[Waiting, ...] = ()
    holding: Holding | None = None
    without_daemon: tuple[Waiting, ...] = ()
    mps: Mapping[MpsDaemon, str] = field(default_factory=dict)
    mps_keepers: Mapping[str, KeeperState] = field(default_factory=dict)
    mps_owned: frozenset[str] = frozenset()
    retired_since: Mapping[str, float] = field(default_factory=dict)
