"""The link scores of a plan: the table of design 8, what counts as a link, and when a plan is another one."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations

import pytest

from deviceplugin.config.model import MigStrategy
from deviceplugin.model.links import NO_LINK_SCORES, LinkScores
from deviceplugin.model.node import Link, PcieLevel, Snapshot
from deviceplugin.model.plan import Resource
from deviceplugin.planning.build import build
from deviceplugin.planning.identity import all_failed
from tests.goldens.case import read_case
from tests.goldens.links import pair_score
from tests.nvml_standin import NodeDescription
from tests.planning.nodes import A100, LOST, config, entry, gpu, indices, node, plain, uuid

WHOLE = config()
LEVELS = {level.value: level for level in PcieLevel}


def linked(snapshot: Snapshot, links: Mapping[tuple[int, int], Link]) -> Snapshot:
    """The node with what connects these pairs of GPUs; the UUIDs of each Link are filled in."""
    return replace(
        snapshot,
        links=tuple(replace(link, first=uuid(min(pair)), second=uuid(max(pair))) for pair, link in links.items()),
    )


def link(nvlinks: int = 0, pcie: PcieLevel | None = None) -> Link:
    return Link("", "", nvlinks, pcie)


def only(snapshot: Snapshot) -> Resource:
    (resource,) = build(snapshot, WHOLE).resources
    return resource


def scores(snapshot: Snapshot) -> dict[tuple[int, int], int]:
    """By pair of indices, of a node of whole GPUs."""
    resource = only(snapshot)
    rows = resource.link_scores.among([unit.uuid for unit in resource.units])
    return {(i, j): rows[i][j] for i, j in combinations(range(len(rows)), 2)}


@pytest.mark.parametrize(
    ("level", "score"),
    [
        (PcieLevel.SAME_BOARD, 60),
        (PcieLevel.ONE_SWITCH, 50),
        (PcieLevel.SEVERAL_SWITCHES, 40),
        (PcieLevel.HOST_BRIDGE, 30),
        (PcieLevel.SAME_CPU, 20),
        (PcieLevel.ACROSS_CPUS, 10),
        (None, 0),
    ],
)
@pytest.mark.parametrize("nvlinks", [0, 1, 4])
def test_a_pair_scores_by_the_table(level: PcieLevel | None, score: int, nvlinks: int) -> None:
    assert scores(linked(plain(2), {(0, 1): link(nvlinks, level)})) == {(0, 1): 100 * nvlinks + score}


def test_a_pair_of_which_nothing_is_known_scores_least() -> None:
    found = scores(linked(plain(3), {(0, 1): link(pcie=PcieLevel.ACROSS_CPUS)}))
    assert found == {(0, 1): 10, (0, 2): 0, (1, 2): 0}


def test_links_to_an_nvswitch_fabric_count_as_far_as_both_are_on_it() -> None:
    switched = [replace(gpu(index), nvswitch_links=links) for index, links in enumerate((12, 12, 6, 0))]
    found = scores(linked(node(*switched), {(0, 1): link(1, PcieLevel.SAME_CPU)}))
    assert found == {(0, 1): 1320, (0, 2): 600, (0, 3): 0, (1, 2): 600, (1, 3): 0, (2, 3): 0}


def as_snapshot(described: NodeDescription) -> Snapshot:
    """A recorded node's links, as the drivers would report them."""
    gpus = [replace(gpu(one.index), uuid=one.uuid, nvswitch_links=one.nvswitch_links) for one in described.gpus]
    pairs = {
        (a, b): link(described.nvlinks.get((a, b), 0), LEVELS[described.level(a, b)])
        for a, b in combinations(range(len(gpus)), 2)
    }
    return linked(node(*gpus), pairs)


@pytest.mark.parametrize("case", ["003-hgx-h100", "110-preferred-dgx1v", "112-preferred-bridges"])
def test_recorded_nodes_score_as_the_golden_cases_are_judged(case: str) -> None:
    """The judge works on the node's text; a mistake would have to be made twice."""
    described = read_case(case).node()
    found = scores(as_snapshot(described))
    assert found == {(a, b): pair_score(described, a, b) for a, b in found}
    assert max(found.values()) > 100


def test_only_whole_gpus_have_scores_and_only_among_those_of_their_resource() -> None:
    switched = [replace(gpu(index, A100), nvswitch_links=12) for index in range(3)]
    mixed = node(*switched, gpu(3, A100, "1g.5gb", "1g.5gb"))
    plan = build(mixed, config(entry(4, *indices(1), rename="nvidia.com/shared"), strategy=MigStrategy.MIXED))
    by_name = {resource.name.partition("/")[2]: resource.link_scores for resource in plan.resources}
    assert by_name == {
        "gpu": LinkScores((uuid(0), uuid(2)), ((0, 1200), (1200, 0))),
        "shared": NO_LINK_SCORES,
        "mig-1g.5gb": NO_LINK_SCORES,
    }


def test_a_single_gpu_has_none() -> None:
    assert only(plain(1)).link_scores == NO_LINK_SCORES


def test_the_order_in_which_links_and_gpus_are_reported_means_nothing() -> None:
    pairs = {pair: link(sum(pair), PcieLevel.SAME_CPU) for pair in combinations(range(4), 2)}
    straight = linked(plain(4), pairs)
    turned = replace(straight, gpus=straight.gpus[::-1], links=straight.links[::-1])
    assert build(straight, WHOLE) == build(turned, WHOLE)


def test_a_lost_gpu_harms_no_other_pair() -> None:
    """NVIDIA's plugin asks for the links of all GPUs in every call, and fails with the lost one (reports H5)."""
    pairs = {pair: link(4) for pair in combinations(range(3), 2)}
    healthy = linked(plain(3), pairs)
    lost = replace(healthy, gpus=(*healthy.gpus[:2], replace(healthy.gpus[2], failure=LOST)), links=healthy.links[:1])
    assert scores(lost) == {(0, 1): 400, (0, 2): 0, (1, 2): 0}
    assert scores(all_failed(healthy, "gone")) == scores(healthy)


def test_scores_of_gpus_that_it_does_not_know_are_zero() -> None:
    known = LinkScores(("a", "b"), ((0, 7), (7, 0)))
    assert known.among(["b", "x", "a"]) == [[0, 0, 7], [0, 0, 0], [7, 0, 0]]
    assert NO_LINK_SCORES.among(["a"]) == [[0]]
