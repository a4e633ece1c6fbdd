"""What flags and variables say about settings that the file may set too, and which of the three counts."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from deviceplugin.config.model import Origin
from deviceplugin.config.options import PLUGIN_SETTINGS


@dataclass(frozen=True, slots=True)
class Given:
    """A value with the place that gives it: file, flag, variable or `default`."""

    value: object
    origin: Origin


@dataclass(frozen=True, slots=True)
class Overrides:
    """Values that flags and variables set, by Setting.id; they beat the file even where they say the default."""

    given: Mapping[str, Given] = field(default_factory=dict)


def effective(overrides: Overrides, from_file: Mapping[str, Given]) -> dict[str, Given]:
    """One value for every plugin setting: flag or variable, else file, else default.

    Takes the values that the file sets by their path in it.
    """
    return {
        setting.id: overrides.given.get(setting.id)
        or from_file.get(setting.path)
        or Given(setting.default, Origin("default"))
        for setting in PLUGIN_SETTINGS
    }
