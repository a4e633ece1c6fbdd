"""The `health` section: what it says, and what is wrong with it (issue 4, statement 2; design 8)."""

from pathlib import Path

import pytest

from deviceplugin.config.load import load_config
from deviceplugin.config.model import HealthConfig
from deviceplugin.errors import ConfigError
from deviceplugin.model.health import Condition, Response
from tests.config.files import write

FULL = """\
version: v1
health:
  xids:
    ignore: [94, 63]
    warn: [74]
    untilRecovered: [109]
    untilReset: [13]
  conditions:
    uncorrectableEcc: untilReset
    remappingPending: warn
  pollInterval: 2s
  quietTime: 1m30s
  liveAfter: 1h
"""


def test_all_of_it(tmp_path: Path) -> None:
    health = load_config(write(tmp_path, FULL)).health
    assert health == HealthConfig(
        xids={
            94: Response.IGNORE,
            63: Response.IGNORE,
            74: Response.WARN,
            109: Response.UNTIL_RECOVERED,
            13: Response.UNTIL_RESET,
        },
        conditions={
            Condition.UNCORRECTABLE_ECC: Response.UNTIL_RESET,
            Condition.REMAPPING_PENDING: Response.WARN,
        },
        poll_s=2.0,
        quiet_s=90.0,
        live_after_s=3600.0,
    )


@pytest.mark.parametrize("text", ["", "health:\n", "health: {}\n", "health: {xids: {}, conditions: null}\n"])
def test_nothing_said_is_the_default(tmp_path: Path, text: str) -> None:
    assert load_config(write(tmp_path, "version: v1\n" + text)).health == HealthConfig()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{xids: {ignore: [94, x]}}", 'health.xids.ignore[1]: found the text "x", expected a whole number'),
        ('{xids: {ignore: ["94"]}}', 'health.xids.ignore[0]: found the text "94"'),
        ("{xids: {ignore: 94;79}}", 'health.xids.ignore: found the text "94;79", expected a list of'),
        ("{xids: {ignore: [-1]}}", "health.xids.ignore[0]: found the number -1"),
        ("{xids: {ignore: [94], warn: [94]}}", "found Xid 94 again (first at health.xids.ignore[0])"),
        ("{xids: {ignore: [94, 94]}}", "health.xids.ignore[1]: found Xid 94 again"),
        ("{xids: {recover: [94]}}", "health.xids.recover: found an unknown key"),
        ("{conditions: {uncorrectableEcc: recover}}", 'health.conditions.uncorrectableEcc: found the text "recover"'),
        ("{quietTime: 60}", "health.quietTime: found the number 60, expected a duration"),
        ("{quietTime: 0s}", 'health.quietTime: found the text "0s", expected a duration from 1s'),
        ("{pollInterval: 5 s}", 'health.pollInterval: found the text "5 s"'),
        ("{liveAfter: 1s}", 'health.liveAfter: found the text "1s", expected a duration from 5s'),
    ],
)
def test_what_is_wrong_is_an_error_in_the_file(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load_config(write(tmp_path, f"version: v1\nhealth: {text}\n"))
    (problem,) = refused.value.problems
    assert said in problem
