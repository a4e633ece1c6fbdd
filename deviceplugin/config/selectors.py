"""How a config names devices: the words, indices and patterns of `devices`, `devices.include` and `devices.exclude`."""

import re

from deviceplugin.config.document import Scalar
from deviceplugin.config.model import (
    SelectAll,
    SelectCount,
    SelectIndex,
    SelectModel,
    Selector,
    SelectPci,
    SelectRest,
    SelectUuid,
)

# More than any node has; it also keeps a mistyped number from being taken for an index.
MAX_GPU_INDEX = 1023
MODEL_PREFIX = "model:"
ONE_DEVICE = "an index, a UUID, a PCI address or model:<pattern>"

_UUID = "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"
_GPU_UUID = re.compile(f"GPU-{_UUID}")
# The second form is that of drivers before 470: parent, GPU instance, compute instance.
_MIG_UUID = re.compile(f"MIG-{_UUID}|MIG-GPU-{_UUID}/[0-9]+/[0-9]+")
_INDEX = re.compile(r"([0-9]{1,4})(?::([0-9]{1,4}))?")
# nvidia-smi writes the PCI domain with eight digits, sysfs with four, lspci may leave it out.
_PCI = re.compile(r"(?:([0-9a-fA-F]{4,8}):)?([0-9a-fA-F]{2}):([0-9a-fA-F]{2})\.([0-7])")
_ASSIGNABLE_UUID = re.compile("(GPU|MIG)-", re.IGNORECASE)


def read_selector(item: Scalar) -> Selector:
    """One item of a list of devices. Raises ValueError with what was expected instead.

    A quoted number is an index too, as in NVIDIA's file. UUIDs and PCI addresses are brought into NVML's and sysfs'
    spelling.
    """
    if not isinstance(item.value, int | str) or isinstance(item.value, bool):
        hint = "; a MIG index is written gpu:mig, such as 1:0" if isinstance(item.value, float) else ""
        raise ValueError(ONE_DEVICE + hint)
    text = str(item.value)
    if match := _INDEX.fullmatch(text):
        return _index(int(match[1]), match[2])
    if _ASSIGNABLE_UUID.match(text):
        if not (_GPU_UUID.fullmatch(text) or _MIG_UUID.fullmatch(text)):
            raise ValueError("a whole UUID as nvidia-smi -L shows it, such as GPU-8a56a4bc-e184-a047-2620-be19fdf913d5")
        return SelectUuid(_canonical_uuid(text))
    if match := _PCI.fullmatch(text):
        return _pci_address(match)
    if text.startswith(MODEL_PREFIX):
        glob = text.removeprefix(MODEL_PREFIX).strip()
        if not glob:
            raise ValueError("a pattern after model:, such as model:*T4*")
        return SelectModel(glob)
    if text in {"all", "rest"}:
        raise ValueError(f"`{text}` alone, not in a list: devices: {text}")
    if isinstance(item.value, int):
        raise ValueError(f"a GPU index from 0 to {MAX_GPU_INDEX}")
    raise ValueError(f"{ONE_DEVICE} (a product name needs the model:)")


def read_alone(item: Scalar) -> Selector:
    """A scalar in place of the list of a sharing entry: `all`, `rest`, a count or one selector. Raises ValueError."""
    if item.value == "all":
        return SelectAll()
    if item.value == "rest":
        return SelectRest()
    if isinstance(item.value, int) and not isinstance(item.value, bool):
        if not 1 <= item.value <= MAX_GPU_INDEX:
            raise ValueError("a count of devices of at least 1; an index stands in a list: [0]")
        return SelectCount(item.value)
    if isinstance(item.value, str) and item.value.isdecimal():
        raise ValueError(f"a count without quotes, or a list with an index: [{item.value}]")
    try:
        return read_selector(item)
    except ValueError as error:
        raise ValueError(str(error).replace(ONE_DEVICE, f"all, rest, a count, {ONE_DEVICE}")) from None


def _index(gpu_index: int, slot: str | None) -> SelectIndex:
    if gpu_index > MAX_GPU_INDEX:
        raise ValueError(f"a GPU index from 0 to {MAX_GPU_INDEX}")
    return SelectIndex(gpu_index, None if slot is None else int(slot))


def _pci_address(match: re.Match[str]) -> SelectPci:
    domain, bus, device, function = match.groups()
    return SelectPci(f"{int(domain or '0', 16):04x}:{bus}:{device}.{function}".lower())


def _canonical_uuid(text: str) -> str:
    """The prefix stays upper case, the digits are NVML's lower case."""
    prefix = "MIG-GPU-" if text.startswith("MIG-GPU-") else text[:4]
    return prefix + text[len(prefix) :].lower()
