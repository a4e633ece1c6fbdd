"""The link score of a set of GPUs by the table of design 8: what preferred answers are measured by."""

from collections.abc import Iterable
from itertools import combinations
from types import MappingProxyType
from typing import Final

from tests.nvml_standin import NodeDescription

NVLINK: Final = 100
PCIE: Final = MappingProxyType(
    {"internal": 60, "single": 50, "multiple": 40, "hostbridge": 30, "node": 20, "system": 10}
)


def pair_score(node: NodeDescription, a: int, b: int) -> int:
    """The score of two GPUs, given by index. Links of both to an NVSwitch fabric count as links between them."""
    direct = node.nvlinks.get((min(a, b), max(a, b)), 0)
    switched = min(node.gpus[a].nvswitch_links, node.gpus[b].nvswitch_links)
    return NVLINK * (direct + switched) + PCIE[node.level(a, b)]


def set_score(node: NodeDescription, uuids: Iterable[str]) -> int:
    """The sum over the pairs of a set of GPUs.

    Raises:
        KeyError: a UUID that is no GPU's.
    """
    index = {gpu.uuid: gpu.index for gpu in node.gpus}
    return sum(pair_score(node, a, b) for a, b in combinations([index[uuid] for uuid in uuids], 2))
