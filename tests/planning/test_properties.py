"""What holds for every node, config and history of held devices."""

import random
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from deviceplugin.config.model import (
    Config,
    DeviceFilter,
    DeviceIdStrategy,
    MigStrategy,
    SelectAll,
    SelectCount,
    SelectIndex,
    SelectModel,
    Selector,
    SelectRest,
    SharingEntry,
)
from deviceplugin.errors import ConfigError
from deviceplugin.model.health import HealthReport
from deviceplugin.model.held import Held
from deviceplugin.model.ids import unit_of
from deviceplugin.model.node import Gpu, MigMode, Snapshot
from deviceplugin.model.offer import Offer, Withdrawn
from deviceplugin.model.plan import Health, Mode, Plan
from deviceplugin.planning.build import build
from deviceplugin.planning.explain import difference, explain
from deviceplugin.planning.identity import remember
from deviceplugin.planning.transition import transition
from tests.planning.nodes import A100, LOST, T4, V100, config, entry, gpu, hidden, node, uuid

PROFILES = ("1g.5gb", "1g.10gb+me", "3g.20gb", "1c.3g.20gb")
NAMES = ("nvidia.com/gpu", "nvidia.com/t4", "nvidia.com/mig-1g.5gb", "nvidia.com/mig-3g.20gb")

selectors: st.SearchStrategy[tuple[Selector, ...]] = st.one_of(
    st.just((SelectAll(),)),
    st.just((SelectRest(),)),
    st.builds(lambda count: (SelectCount(count),), st.integers(1, 3)),
    st.lists(
        st.one_of(
            st.builds(SelectIndex, st.integers(0, 4), st.none() | st.integers(0, 2)),
            st.sampled_from([SelectModel("*T4"), SelectModel("NVIDIA *")]),
        ),
        min_size=1,
        max_size=3,
    ).map(tuple),
)


@st.composite
def gpus(draw: st.DrawFn, index: int) -> Gpu:
    """A GPU of any kind, sometimes lost, sometimes without its identity."""
    product = draw(st.sampled_from([A100, A100, T4, V100, "NVIDIA DGX Display"]))
    if product != A100:
        found = gpu(index, product)
    else:
        profiles = draw(st.lists(st.sampled_from(PROFILES), max_size=3))
        mode = MigMode(current=bool(profiles) or draw(st.booleans()), pending=draw(st.booleans()))
        found = gpu(index, A100, *profiles, mig=mode)
    fate = draw(st.sampled_from(["well"] * 6 + ["lost", "hidden"]))
    if fate == "well":
        return found
    return hidden(index) if fate == "hidden" else replace(found, failure=LOST)


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    """A node of up to five GPUs."""
    return node(*(draw(gpus(index)) for index in range(draw(st.integers(0, 5)))))


@st.composite
def entries(draw: st.DrawFn) -> SharingEntry:
    """A sharing entry of either kind."""
    number = draw(st.integers(0, 3))
    mode = draw(st.sampled_from([Mode.TIME_SLICING, Mode.MPS]))
    rename = draw(st.none() | st.sampled_from(["nvidia.com/a", "nvidia.com/b"]))
    name = draw(st.sampled_from(NAMES))
    return entry(draw(st.integers(2, 4)), *draw(selectors), name=name, rename=rename, mode=mode, number=number)


@st.composite
def configs(draw: st.DrawFn) -> Config:
    """Any config; many are refused on a given node."""
    filters = st.lists(st.builds(SelectIndex, st.integers(0, 4), st.none() | st.integers(0, 1)), max_size=2).map(tuple)
    return config(
        *draw(st.lists(entries(), max_size=3)),
        strategy=draw(st.sampled_from(list(MigStrategy))),
        rename_by_default=draw(st.booleans()),
        refuse=draw(st.booleans()),
        ids=draw(st.sampled_from(list(DeviceIdStrategy))),
        gpus=draw(st.sampled_from([(), (("*T4", "nvidia.com/t4"),)])),
        devices=DeviceFilter(exclude=draw(filters)),
    )


def plan_or_none(snapshot: Snapshot, chosen: Config) -> Plan | None:
    """The plan; None when the config is refused on this node."""
    try:
        return build(snapshot, chosen)
    except ConfigError:
        return None


@given(snapshots(), configs())
def test_every_gpu_and_instance_is_in_one_resource_or_left_out_with_the_reason(
    snapshot: Snapshot, chosen: Config
) -> None:
    plan = plan_or_none(snapshot, chosen)
    if plan is None:
        return
    offered = Counter(unit.uuid for resource in plan.resources for unit in resource.units)
    left_out = {one.what for one in plan.left_out}
    reasons = {one.uuid for one in plan.left_out}
    assert all(count == 1 for count in offered.values())
    assert all(one.reason for one in plan.left_out)
    assert len(left_out) == len(plan.left_out)
    ids = Counter(device.id for resource in plan.resources for device in resource.devices)
    assert all(count == 1 for count in ids.values())
    for found in snapshot.gpus:
        whole = found.uuid in offered
        out = found.describe() in left_out
        instances = [(one.uuid in offered, one.uuid in reasons) for one in found.mig_instances]
        assert not (whole and out)
        if whole or out:
            assert not any(inside for inside, _ in instances)
        else:
            assert instances
            assert all(inside != outside for inside, outside in instances)


@given(snapshots(), configs(), st.randoms(use_true_random=False))
def test_the_order_of_a_snapshot_does_not_matter(snapshot: Snapshot, chosen: Config, chance: random.Random) -> None:
    shuffled = [
        replace(found, mig_instances=tuple(chance.sample(found.mig_instances, len(found.mig_instances))))
        for found in snapshot.gpus
    ]
    chance.shuffle(shuffled)
    assert plan_or_none(replace(snapshot, gpus=tuple(shuffled)), chosen) == plan_or_none(snapshot, chosen)


@given(snapshots(), configs(), st.sets(st.integers(0, 4)))
def test_health_changes_no_name_no_id_and_no_place(snapshot: Snapshot, chosen: Config, sick: set[int]) -> None:
    well = plan_or_none(snapshot, chosen)
    if well is None:
        return
    report = HealthReport({uuid(index): "Xid 79" for index in sick})
    ill = build(snapshot, chosen, report)
    assert {one.name: [device.id for device in one.devices] for one in ill.resources} == {
        one.name: [device.id for device in one.devices] for one in well.resources
    }
    bad = {unit.gpu_uuid for one in ill.resources for unit in one.units if unit.health is Health.UNHEALTHY}
    assert bad >= {uuid(index) for index in sick} & {unit.gpu_uuid for one in ill.resources for unit in one.units}


@given(snapshots(), configs(), st.integers(0, 4))
def test_losing_a_gpu_changes_no_name_and_no_id(snapshot: Snapshot, chosen: Config, lost: int) -> None:
    before = plan_or_none(snapshot, chosen)
    if before is None:
        return
    after = remember(snapshot, node(*(hidden(one.index) if one.index == lost else one for one in snapshot.gpus)))
    ids = [[device.id for device in one.devices] for one in before.resources]
    plan = build(after, chosen)
    assert [one.name for one in plan.resources] == [one.name for one in before.resources]
    assert [[device.id for device in one.devices] for one in plan.resources] == ids


@given(snapshots(), configs(), configs())
def test_two_plans_differ_by_lines_only_if_they_differ(snapshot: Snapshot, first: Config, second: Config) -> None:
    documents = [
        (plan, explain(snapshot, one, plan)) for one in (first, second) if (plan := plan_or_none(snapshot, one))
    ]
    if len(documents) == 2:
        (one, told), (two, retold) = documents
        same = (one.resources, one.left_out) == (two.resources, two.left_out)
        assert same <= (difference(told, retold) == [])


Claim = tuple[str, Mode]


def healthy_claims(in_force: Mapping[str, Offer]) -> dict[str, set[Claim]]:
    """GPU or MIG instance -> the names and modes that it can be had under now."""
    found: dict[str, set[Claim]] = defaultdict(set)
    for offer in in_force.values():
        for device in offer.devices:
            if device.health is Health.HEALTHY:
                mode = former.mode if (former := offer.former_terms.get(device.id)) else offer.resource.mode
                found[device.unit_uuid].add((offer.name, mode))
    return found


def assert_never_double(in_force: Mapping[str, Offer], snapshot: Snapshot) -> None:
    """No GPU or MIG instance can be had in two ways, and no GPU beside an instance on it."""
    claims = healthy_claims(in_force)
    assert all(len(ways) == 1 for ways in claims.values()), claims
    for found in snapshot.gpus:
        if found.uuid in claims:
            assert not any(one.uuid in claims for one in found.mig_instances)


# A history is telling when edits touch what is held, so it runs over few GPUs and configs that suit them.
NODES = (
    node(gpu(0), gpu(1)),
    node(gpu(0, A100, "3g.20gb", "3g.20gb"), gpu(1)),
    node(gpu(0, A100, "3g.20gb"), gpu(1, A100, "3g.20gb", "1g.5gb")),
    node(gpu(0, A100, "3g.20gb"), gpu(1, A100, "3g.20gb")),
    node(gpu(0), replace(gpu(1), failure=LOST)),
)
CONFIGS = tuple(
    config(*shared, strategy=strategy)
    for strategy in MigStrategy
    for shared in (
        (),
        (entry(2),),
        (entry(4),),
        (entry(2, mode=Mode.MPS),),
        (entry(2, SelectIndex(0)),),
        (entry(2, SelectIndex(1), mode=Mode.MPS),),
        (entry(2, SelectIndex(0), rename="nvidia.com/a"), entry(2, SelectIndex(1), rename="nvidia.com/b", number=1)),
        (entry(2, SelectIndex(1), rename="nvidia.com/a"), entry(2, SelectIndex(0), rename="nvidia.com/b", number=1)),
        (entry(3, name="nvidia.com/mig-3g.20gb"),),
    )
)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(NODES), st.sampled_from(CONFIGS)), min_size=2, max_size=5), st.data())
def test_any_history_of_edits_layouts_and_pods(edits: list[tuple[Snapshot, Config]], data: st.DataObject) -> None:
    in_force: dict[str, Offer] = {}
    held: dict[str, frozenset[str]] = {}
    plan = Plan()
    ever = node(*(found for snapshot, _ in edits for found in snapshot.gpus))
    for snapshot, edit in edits:
        plan = plan_or_none(snapshot, edit) or plan
        known = data.draw(st.sampled_from([True, True, False]), "known")
        now = Held(held, "" if known else "the kubelet does not answer")
        step = transition(in_force, plan, now, snapshot=snapshot)
        after = {offer.name: offer for offer in step.offers}
        on_the_wire = dict(in_force)
        part = step
        for last in (False, True):
            # Lists of several resources reach the kubelet in any order.
            order = data.draw(st.permutations(part.sequence), "order of lists")
            for offer in order:
                on_the_wire[offer.name] = offer
                assert_never_double(on_the_wire, ever)
            assert last or part.withdrawn.ids or on_the_wire == after
            part = transition(on_the_wire, plan, now, snapshot=snapshot)
        assert on_the_wire == after
        for name, ids in held.items():
            assert ids <= after[name].device_by_id.keys()
        if not known:
            assert_nothing_shrinks(in_force, after, snapshot)
        for offer in step.offers:
            assert offer.draining <= offer.refused.keys() <= offer.device_by_id.keys()
            assert all(offer.device_by_id[one].health is Health.UNHEALTHY for one in offer.draining)
        again = transition(after, plan, now, snapshot=snapshot)
        assert (again.offers, again.sequence, again.waiting) == (step.offers, (), step.waiting)
        in_force = after
        held = {name: data.draw(holders(offer, now.of(name)), f"held of {name}") for name, offer in after.items()}
    assert_converges(in_force, plan, edits[-1][0])


def holders(offer: Offer, so_far: frozenset[str]) -> st.SearchStrategy[frozenset[str]]:
    """What pods may hold next: some have ended, some were given a device that is Healthy and not refused."""
    free = [one.id for one in offer.devices if one.health is Health.HEALTHY and one.id not in offer.refused]
    takable = sorted({*free, *so_far})
    if not takable:
        return st.just(frozenset())
    return st.lists(st.sampled_from(takable), max_size=3).map(frozenset) | st.just(so_far)


def assert_nothing_shrinks(before: Mapping[str, Offer], after: Mapping[str, Offer], snapshot: Snapshot) -> None:
    """Every id stays, and what was given out goes on being given out, unless it is broken or gone."""
    broken = {uuid for found in snapshot.gpus if found.failure for uuid in (found.uuid, *_instances(found))}
    present = {uuid for found in snapshot.gpus for uuid in (found.uuid, *_instances(found))}
    for name, offer in before.items():
        for device in offer.devices:
            now = after[name].device_by_id[device.id]
            if device.health is Health.HEALTHY and device.unit_uuid in present - broken:
                assert now.health is Health.HEALTHY


def _instances(found: Gpu) -> list[str]:
    return [one.uuid for one in found.mig_instances]


def assert_converges(in_force: Mapping[str, Offer], plan: Plan, snapshot: Snapshot) -> None:
    """With nothing held the plan is in force at once, and nothing else."""
    step = transition(in_force, plan, Held(), snapshot=snapshot)
    assert step.waiting == ()
    offered = {offer.name: offer for offer in step.offers if offer.devices}
    assert {name: (one.resource, one.devices) for name, one in offered.items()} == {
        one.name: (one, one.devices) for one in plan.resources
    }
    assert all(not offer.refused and not offer.draining and not offer.former_terms for offer in step.offers)


@given(st.sampled_from(NODES), st.sampled_from(CONFIGS), st.sampled_from(CONFIGS), st.data())
def test_a_start_under_another_config_keeps_what_pods_hold(
    snapshot: Snapshot, earlier: Config, now: Config, data: st.DataObject
) -> None:
    before, plan = plan_or_none(snapshot, earlier), plan_or_none(snapshot, now)
    if before is None or plan is None or not before.resources:
        return
    ids = {
        one.name: frozenset(data.draw(st.sets(st.sampled_from([device.id for device in one.devices]), max_size=3)))
        for one in before.resources
    }
    step = transition({}, plan, Held(ids), snapshot=snapshot)
    after = {offer.name: offer for offer in step.offers}
    assert_never_double(after, snapshot)
    for name, own in ids.items():
        for one in own:
            device = after[name].device_by_id[one]
            assert device.unit_uuid == unit_of(one)
            assert device.numa_node == 0
    assert_converges(after, plan, snapshot)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_kubelet_that_lags_behind_never_has_a_gpu_in_two_ways(data: st.DataObject) -> None:
    """Edits come before lists of earlier ones have arrived. Those of one resource arrive in order, of several in any.

    What was withdrawn counts as shown until the kubelet has been asked, and neither has it nor will get it by a list
    from before the withdrawal.
    """
    in_force: dict[str, Offer] = {}
    on_its_way: dict[str, list[Offer]] = defaultdict(list)
    at_the_kubelet: dict[str, Offer] = {}
    vanishing: list[Withdrawn] = []
    snapshot, plan = NODES[0], Plan()
    ever = node(*(found for one in NODES for found in one.gpus))

    def shown(withdrawn: Withdrawn) -> bool:
        lists = [*at_the_kubelet.values(), *(one for late in on_its_way.values() for one in late)]
        return any(withdrawn.ids.get(one.name, frozenset()) & one.device_by_id.keys() for one in lists)

    def plan_anew() -> None:
        nonlocal snapshot, plan
        snapshot, settings = data.draw(st.sampled_from(NODES), "node"), data.draw(st.sampled_from(CONFIGS), "config")
        plan = plan_or_none(snapshot, settings) or plan
        apply()

    def apply() -> None:
        step = transition(in_force, plan, Held(), snapshot=snapshot, vanishing=vanishing)
        for offer in step.sequence:
            on_its_way[offer.name].append(offer)
        in_force.update(step.after)
        if step.withdrawn.ids:
            vanishing.append(step.withdrawn)

    def arrive() -> None:
        if waiting := sorted(name for name, lists in on_its_way.items() if lists):
            name = data.draw(st.sampled_from(waiting), "arrives")
            at_the_kubelet[name] = on_its_way[name].pop(0)
            assert_never_double(at_the_kubelet, ever)

    def ask() -> None:
        vanishing[:] = [one for one in vanishing if shown(one)]
        apply()

    for _ in range(12):
        data.draw(st.sampled_from([plan_anew, plan_anew, arrive, arrive, ask]), "next")()
    for _ in range(2):
        while any(on_its_way.values()):
            arrive()
        vanishing.clear()  # patience has an end, where a device has been listed again
        apply()
    assert not any(on_its_way.values())
    assert at_the_kubelet == in_force
    assert transition(in_force, plan, Held(), snapshot=snapshot).sequence == ()
