"""The chart and the process take the same words: neither can begin or cease to offer one without the other.

Every word of every setting that a value of the chart is handed on to, and one that there is not, is put to both: the
chart must render exactly what the process starts with. `migrate` judges the words of NVIDIA's values the same.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from deviceplugin.config.chart_values import read_chart_values
from deviceplugin.config.chart_verdicts import Fate
from deviceplugin.config.document import dump_document
from deviceplugin.config.load import parse_config
from deviceplugin.config.notoffered import words_not_offered
from deviceplugin.config.options import PLUGIN_SETTINGS, PROCESS_SETTINGS, Setting
from deviceplugin.config.overrides import Overrides
from deviceplugin.config.settings import parse_settings
from deviceplugin.config.types import Choice, ListOf
from deviceplugin.errors import DevicePluginError
from tests.deploy.chart import CHART, RenderingRefused, Values, plugin_env
from tests.deploy.test_values import CHANGES, NVIDIAS, REFUSED

SCHEMA = json.loads((CHART / "values.schema.json").read_text())
NO_WORD = "nonsense"

# Value of the chart -> variable that hands it on.
HANDED_ON = {
    "migStrategy": "MIG_STRATEGY",
    "deviceListStrategy": "DEVICE_LIST_STRATEGY",
    "deviceIDStrategy": "DEVICE_ID_STRATEGY",
    "deviceDiscoveryStrategy": "DEVICE_DISCOVERY_STRATEGY",
    "cdi.featureFlags": "CDI_FEATURE_FLAGS",
    "configStrictness": "CONFIG_STRICTNESS",
    "log.format": "LOG_FORMAT",
    "log.level": "LOG_LEVEL",
}


def words_of(setting: Setting) -> tuple[str, ...]:
    """The words of its type; none where it takes anything else."""
    kind = setting.type.item if isinstance(setting.type, ListOf) else setting.type
    return kind.options if isinstance(kind, Choice) else ()


# Variable -> the setting that has words.
WORDY = {
    variable: setting
    for setting in (*PLUGIN_SETTINGS, *PROCESS_SETTINGS)
    for variable in setting.variables
    if words_of(setting)
}


def values_of(path: str, value: object) -> Values:
    """A values file that sets one value."""
    for key in reversed(path.split(".")):
        value = {key: value}
    assert isinstance(value, dict)
    return value


def named_in(schema: Any) -> Iterator[str]:
    """The words that a part of the schema names."""
    if isinstance(schema, dict):
        yield from (word for word in schema.get("enum", ()) if word)
        yield from re.findall(r"[a-z]+(?:-[a-z]+)*", schema.get("pattern", ""))
        for below in schema.values():
            yield from named_in(below)
    elif isinstance(schema, list):
        for below in schema:
            yield from named_in(below)


def named_by_the_chart(path: str) -> set[str]:
    part = SCHEMA
    for key in path.split("."):
        part = part["properties"][key]
    return set(named_in(part))


CASES = [
    (path, word)
    for path, variable in HANDED_ON.items()
    for word in sorted({*words_of(WORDY[variable]), *named_by_the_chart(path), NO_WORD})
]


def the_chart_renders(path: str, value: object) -> bool:
    env: dict[str, str] = {}
    reason = ""
    try:
        env = plugin_env(values_of(path, value))
    except RenderingRefused as refused:
        reason = str(refused)
    if reason:
        assert path.rpartition(".")[2] in reason, "it is refused by its name"
        return False
    assert env[HANDED_ON[path]] == (",".join(value) if isinstance(value, list) else value)
    return True


def is_good(overrides: Overrides) -> bool:
    try:
        parse_config(b"version: v1", "config.yaml", overrides)
    except DevicePluginError:
        return False
    return True


def the_process_starts(variable: str, word: str) -> bool:
    try:
        return is_good(parse_settings([], {variable: word}).overrides)
    except DevicePluginError:
        return False


def migrate_takes(values: Values) -> bool:
    judged = read_chart_values(dump_document(values).encode(), "values.yaml")
    return all(one.fate is not Fate.REFUSED for one in judged.verdicts) and is_good(judged.overrides)


@pytest.mark.parametrize(("path", "word"), CASES)
def test_the_chart_renders_what_the_process_starts_with_and_nothing_else(path: str, word: str) -> None:
    variable = HANDED_ON[path]
    taken = the_process_starts(variable, word)
    assert the_chart_renders(path, word) is taken
    assert taken is (word in words_of(WORDY[variable]) and word not in words_not_offered(WORDY[variable].id))
    if isinstance(WORDY[variable].type, ListOf):
        assert the_chart_renders(path, [word]) is taken
    if path in NVIDIAS:
        assert migrate_takes(values_of(path, word)) is taken


@pytest.mark.parametrize("path", [path for path in HANDED_ON if isinstance(WORDY[HANDED_ON[path]].type, ListOf)])
def test_one_word_that_is_not_taken_is_enough(path: str) -> None:
    words = words_of(WORDY[HANDED_ON[path]])
    later = words_not_offered(WORDY[HANDED_ON[path]].id)
    good = [word for word in words if word not in later]
    assert the_chart_renders(path, good)
    for bad in (NO_WORD, *later):
        assert not the_chart_renders(path, [*good, bad])
        assert not the_chart_renders(path, ",".join([*good, bad]))


def test_no_value_with_words_is_left_out() -> None:
    """A value that a later chart hands on, or a word that a later version does not offer, must come here."""
    handed_on = {variable for values, _ in CHANGES.values() for variable in plugin_env_or_none(values)}
    assert handed_on & WORDY.keys() <= set(HANDED_ON.values())
    assert set(HANDED_ON) <= CHANGES.keys() | REFUSED.keys()
    here = {WORDY[variable].id for variable in HANDED_ON.values()}
    assert {setting.id for setting in PLUGIN_SETTINGS if words_not_offered(setting.id)} <= here


def plugin_env_or_none(values: Values) -> dict[str, str]:
    enabled = values.get("devicePlugin", {}).get("enabled", True)
    return plugin_env({key: value for key, value in values.items() if key != "extraEnv"}) if enabled else {}
