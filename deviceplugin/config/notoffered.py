"""What this version understands and does not offer yet: refused by name, never ignored (drop-in.md 8.8).

To offer something, delete its line here.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from deviceplugin.config.options import PLUGIN_SETTINGS
from deviceplugin.config.overrides import Given


@dataclass(frozen=True, slots=True)
class _NotOffered:
    """A setting with the value, or one word of the list, that is not offered."""

    setting: str
    value: object

    def asked_by(self, value: object) -> bool:
        """Whether a value of the setting asks for what is not offered."""
        return self.value in value if isinstance(value, list | tuple) else value == self.value


_NOT_OFFERED = (
    _NotOffered("device_discovery_strategy", "tegra"),
    _NotOffered("device_discovery_strategy", "wsl"),
    _NotOffered("cdi_feature_flags", "enable-coherent-annotations"),
    _NotOffered("cdi_feature_flags", "enable-explicit-driver-libraries"),
)


def not_offered(values: Mapping[str, Given]) -> list[tuple[int, str]]:
    """One finding, as (line, text), for each value that asks for something that is not offered yet.

    Takes the effective values by setting. The line is 0 where a flag or variable asks.
    """
    return [
        (
            given.origin.line or 0,
            f"{given.origin}: found {_show(rule.value)}, which this version does not offer yet, expected "
            f"{_EXPECTED[rule.setting]}",
        )
        for rule in _NOT_OFFERED
        if (given := values.get(rule.setting)) and rule.asked_by(given.value)
    ]


def words_not_offered(setting: str) -> list[str]:
    """The values of a setting that this version does not offer, as help texts name them."""
    return [_show(rule.value) for rule in _NOT_OFFERED if rule.setting == setting]


def _show(value: object) -> str:
    """A value as the file would write it."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(_show(item) for item in value)}]"
    return str(value).lower() if isinstance(value, bool) else str(value)


_EXPECTED = {setting.id: _show(setting.default) for setting in PLUGIN_SETTINGS}
