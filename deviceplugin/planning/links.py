"""What connects the GPUs of a resource -> the score of each pair, by the table of design 8."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from deviceplugin.model.links import NO_LINK_SCORES, LinkScores
from deviceplugin.model.node import Gpu, Link, PcieLevel, Snapshot

NVLINK: Final = 100
"""For each NVLink of a pair; any pair with one is better than any without."""

PCIE: Final[Mapping[PcieLevel, int]] = MappingProxyType(
    {
        PcieLevel.SAME_BOARD: 60,
        PcieLevel.ONE_SWITCH: 50,
        PcieLevel.SEVERAL_SWITCHES: 40,
        PcieLevel.HOST_BRIDGE: 30,
        PcieLevel.SAME_CPU: 20,
        PcieLevel.ACROSS_CPUS: 10,
    }
)


def link_scores(snapshot: Snapshot, uuids: Sequence[str]) -> LinkScores:
    """The scores among GPUs of a node.

    A GPU that the snapshot does not know, or a pair of which it says nothing, scores 0.

    Args:
        uuids: of the GPUs, in the order wanted.
    """
    if len(uuids) < 2:
        return NO_LINK_SCORES
    gpus = {gpu.uuid: gpu for gpu in snapshot.gpus if gpu.uuid}
    links = {(link.first, link.second): link for link in snapshot.links}

    def score(one: str, other: str) -> int:
        link = links.get((min(one, other), max(one, other)))
        return 0 if one == other else _score(gpus.get(one), gpus.get(other), link)

    return LinkScores(tuple(uuids), tuple(tuple(score(one, other) for other in uuids) for one in uuids))


def _score(one: Gpu | None, other: Gpu | None, link: Link | None) -> int:
    """Links of both to an NVSwitch fabric count as links between them: what the weaker end has can be used."""
    direct = link.nvlinks if link else 0
    switched = min(one.nvswitch_links, other.nvswitch_links) if one and other else 0
    return NVLINK * (direct + switched) + (PCIE[link.pcie] if link and link.pcie else 0)
