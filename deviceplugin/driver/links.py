"""What connects the GPUs of a node, read from NVML: NVLinks, and the closest common PCIe ancestor of each pair."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import pynvml

from deviceplugin.driver.calls import NOT_SUPPORTED, Inquiry
from deviceplugin.driver.sysfs import pci_address
from deviceplugin.model.node import Link, PcieLevel

LEVELS = {
    pynvml.NVML_TOPOLOGY_INTERNAL: PcieLevel.SAME_BOARD,
    pynvml.NVML_TOPOLOGY_SINGLE: PcieLevel.ONE_SWITCH,
    pynvml.NVML_TOPOLOGY_MULTIPLE: PcieLevel.SEVERAL_SWITCHES,
    pynvml.NVML_TOPOLOGY_HOSTBRIDGE: PcieLevel.HOST_BRIDGE,
    pynvml.NVML_TOPOLOGY_NODE: PcieLevel.SAME_CPU,
    pynvml.NVML_TOPOLOGY_SYSTEM: PcieLevel.ACROSS_CPUS,
}

NO_SUCH_LINK = NOT_SUPPORTED | {pynvml.NVML_ERROR_INVALID_ARGUMENT}
"""A GPU says one or the other for a link beyond its last: which one differs by product."""


@dataclass(frozen=True, slots=True)
class NvLinks:
    """Where the active NVLinks of one GPU lead.

    Attributes:
        to_gpus: number of links by UUID of the GPU at the other end.
        to_switches: links that end in an NVSwitch.
    """

    to_gpus: Mapping[str, int] = field(default_factory=dict)
    to_switches: int = 0


def nvlinks(inquiry: Inquiry, gpu: Any, uuid_at: Mapping[str, str]) -> NvLinks:
    """The active NVLinks of a GPU.

    Args:
        inquiry: the GPU's.
        gpu: its NVML handle.
        uuid_at: UUID by PCI address in sysfs form, of the GPUs that links can lead to.
    """
    to_gpus: Counter[str] = Counter()
    to_switches = 0
    for link in _active_links(inquiry, gpu):
        kind = inquiry.ask(pynvml.nvmlDeviceGetNvLinkRemoteDeviceType, gpu, link)
        if kind == pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH:
            to_switches += 1
            continue
        # Drivers before 470 have no device type: a switch is then known only by not being one of the GPUs.
        remote = inquiry.ask(pynvml.nvmlDeviceGetNvLinkRemotePciInfo, gpu, link)
        if remote is None:
            continue
        uuid = uuid_at.get(pci_address(remote.domain, remote.bus, remote.device))
        if uuid is not None:
            to_gpus[uuid] += 1
        elif kind is None:
            to_switches += 1
    return NvLinks(to_gpus, to_switches)


def _active_links(inquiry: Inquiry, gpu: Any) -> Iterator[int]:
    for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
        state = inquiry.ask(pynvml.nvmlDeviceGetNvLinkState, gpu, link, absent=NO_SUCH_LINK)
        if state is None:
            return
        if state == pynvml.NVML_FEATURE_ENABLED:
            yield link


def pcie_level(first: Any, second: Any) -> PcieLevel | None:
    """The closest common PCIe ancestor of two GPUs by their handles; None when the driver would not say.

    A refusal is nobody's failure: the call names two GPUs and does not tell which of them it failed on.
    """
    try:
        return LEVELS.get(pynvml.nvmlDeviceGetTopologyCommonAncestor(first, second))
    except pynvml.NVMLError:
        return None


def links(handles: Mapping[str, Any], nvlinks_of: Mapping[str, NvLinks]) -> tuple[Link, ...]:
    """What connects each pair of GPUs, in order of UUIDs; pairs of which nothing is known are absent.

    Args:
        handles: NVML handle by UUID, of the GPUs that can be asked.
        nvlinks_of: by UUID; a link that only one side reports counts all the same.
    """
    pairs: Sequence[tuple[str, str]] = list(combinations(sorted(handles), 2))
    found = (
        Link(
            first,
            second,
            max(nvlinks_of[first].to_gpus.get(second, 0), nvlinks_of[second].to_gpus.get(first, 0)),
            pcie_level(handles[first], handles[second]),
        )
        for first, second in pairs
    )
    return tuple(link for link in found if link.nvlinks or link.pcie)
