"""Which GPUs and MIG instances a selector means, and which GPUs the plugin manages at all."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from deviceplugin.config.model import (
    DeviceFilter,
    SelectAll,
    SelectCount,
    SelectIndex,
    SelectModel,
    Selector,
    SelectPci,
    SelectRest,
    SelectUuid,
)
from deviceplugin.model.node import Gpu, MigInstance
from deviceplugin.model.plan import LeftOut
from deviceplugin.planning.candidate import describe

DISPLAY_CARDS = frozenset({"DGX Display", "NVIDIA DGX Display"})
"""Product names that NVIDIA's plugin leaves out by default: the display card of a DGX station."""


def glob_matches(glob: str, text: str) -> bool:
    """Whether the whole text matches, case and all (reports E1): `*` is any run of characters, `?` is any one."""
    return _compiled(glob).fullmatch(text) is not None


@lru_cache(maxsize=256)
def _compiled(glob: str) -> re.Pattern[str]:
    wild = {"*": ".*", "?": "."}
    return re.compile("".join(wild.get(character, re.escape(character)) for character in glob), re.DOTALL)


def matches(selector: Selector, gpu: Gpu, instance: MigInstance | None) -> bool:
    """Whether a selector names this GPU, or this MIG instance itself or by its GPU.

    A count and `rest` name nothing by themselves: what they mean depends on the other entries.
    """
    match selector:
        case SelectAll():
            return True
        case SelectIndex(gpu_index, slot):
            return gpu.index == gpu_index and (slot is None or (instance is not None and instance.slot == slot))
        case SelectUuid(uuid):
            return uuid == gpu.uuid or (instance is not None and uuid == instance.uuid)
        case SelectPci(address):
            return gpu.pci_address == address
        case SelectModel(glob):
            return gpu.product_name is not None and glob_matches(glob, gpu.product_name)
        case SelectCount() | SelectRest():
            return False


def describe_selector(selector: Selector) -> str:
    """A selector as people write it."""
    match selector:
        case SelectAll():
            text = "all"
        case SelectRest():
            text = "rest"
        case SelectCount(count):
            text = f"{count} devices"
        case SelectIndex(gpu_index, slot):
            text = f"index {gpu_index}" if slot is None else f"MIG index {gpu_index}:{slot}"
        case SelectUuid(uuid):
            text = uuid
        case SelectPci(address):
            text = f"PCI address {address}"
        case SelectModel(glob):
            text = f"model:{glob}"
    return text


@dataclass(frozen=True, slots=True)
class Managed:
    """What `devices` and the display rule leave.

    Attributes:
        gpus: by index; a GPU of which only some MIG instances are managed has only those.
    """

    gpus: tuple[Gpu, ...]
    left_out: tuple[LeftOut, ...]
    warnings: tuple[str, ...]


def manage(gpus: Iterable[Gpu], devices: DeviceFilter, *, split: bool) -> Managed:
    """Applies `devices.include` and `devices.exclude` before anything else (reports E2); indices stay NVML's.

    Args:
        split: whether migStrategy splits GPUs: a selector of one MIG instance then takes in or out that instance
            alone, else it says nothing about its GPU.
    """
    everything = sorted(gpus, key=lambda gpu: gpu.index)
    kept: list[Gpu] = []
    left_out: list[LeftOut] = []
    for gpu in everything:
        reason = _unmanaged(gpu, None, devices)
        instances = [(one, _unmanaged(gpu, one, devices)) for one in gpu.mig_instances] if split else []
        managed = tuple(one for one, why in instances if not why)
        if gpu.product_name in DISPLAY_CARDS:
            left_out.append(LeftOut(gpu.describe(), gpu.uuid, "a display card: NVIDIA's plugin leaves it out as well"))
        elif not managed and (reason or instances):
            left_out.append(LeftOut(gpu.describe(), gpu.uuid, reason or instances[0][1]))
        else:
            # A GPU that only instance selectors include counts as included through them.
            kept.append(gpu if len(managed) == len(instances) else replace(gpu, mig_instances=managed))
            left_out += [LeftOut(describe(gpu, one), one.uuid, why) for one, why in instances if why]
    return Managed(tuple(kept), tuple(left_out), tuple(_unmatched(everything, devices)))


def _unmanaged(gpu: Gpu, instance: MigInstance | None, devices: DeviceFilter) -> str:
    """Why `devices` leaves it out; empty when it doesn't."""
    for selector in devices.exclude:
        if matches(selector, gpu, instance):
            return f"devices.exclude names it ({describe_selector(selector)})"
    if devices.include and not any(matches(selector, gpu, instance) for selector in devices.include):
        return "devices.include does not name it"
    return ""


def _unmatched(gpus: Sequence[Gpu], devices: DeviceFilter) -> Iterable[str]:
    for key, selectors in (("devices.include", devices.include), ("devices.exclude", devices.exclude)):
        for selector in selectors:
            if not any(matches(selector, gpu, one) for gpu in gpus for one in (None, *gpu.mig_instances)):
                yield f"{key}: {describe_selector(selector)} matches nothing on this node"
