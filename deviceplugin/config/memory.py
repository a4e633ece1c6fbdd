"""Quantities of memory as Kubernetes writes them, and percentages."""

import re

MIB = 1024 * 1024
_UNITS: dict[str, int] = {
    **{f"{letter}i": 1024**power for power, letter in enumerate("KMGT", 1)},
    **{letter: 1000**power for power, letter in enumerate("kMGT", 1)},
}
_QUANTITY = re.compile(r"([0-9]{1,12})(?:\.([0-9]{1,9}))?(Ki|Mi|Gi|Ti|k|M|G|T)")
_PERCENTAGE = re.compile(r"([0-9]{1,3})%")


def parse_memory_mib(text: str) -> int:
    """Whole MiB of a quantity such as `8Gi`, `1.5G`, `4096Mi`, rounded down. Raises ValueError, also below 1 MiB."""
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise ValueError("a number with a unit: Ki, Mi, Gi, Ti, k, M, G or T")
    whole, fraction, unit = match[1], match[2] or "", match[3]
    size_mib: int = int(whole + fraction) * _UNITS[unit] // (10 ** len(fraction) * MIB)
    if size_mib < 1:
        raise ValueError("at least 1Mi")
    return size_mib


def parse_percentage(text: str) -> int | None:
    """The number of a percentage such as `25%`; None for text without `%`. Raises ValueError outside 1 to 100."""
    if not text.endswith("%"):
        return None
    match = _PERCENTAGE.fullmatch(text)
    if match is None or not 1 <= int(match[1]) <= 100:
        raise ValueError("a whole percentage from 1% to 100%")
    return int(match[1])
