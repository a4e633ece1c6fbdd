"""`migrate`: what becomes of a values file of NVIDIA's chart, and of its config file, under this plugin."""

import argparse
from collections.abc import Iterator
from pathlib import Path

from deviceplugin.config.chart_values import ChartValues, Fate, Verdict, read_chart_values
from deviceplugin.config.load import parse_config, read_config_file
from deviceplugin.config.overrides import Overrides
from deviceplugin.errors import ConfigError
from deviceplugin.planning.nvidia import otherwise

HEADINGS = {
    Fate.REFUSED: "Refused: must be changed first",
    Fate.CHANGES: "Changes its meaning",
    Fate.STAYS: "Stays as it is",
}
EXIT_STATUS = {Fate.STAYS: 0, Fate.CHANGES: 3, Fate.REFUSED: 4}


def run(words: list[str]) -> int:
    """The command.

    Returns:
        0: everything stays; 3: something changes its meaning; 4: something is refused. 1: a file can't be read.
    """
    parser = argparse.ArgumentParser(
        prog="gpu-device-plugin migrate",
        description=f"{__doc__} Exit status: 0: all stays, 3: something changes its meaning, 4: something is refused.",
    )
    parser.add_argument("values", metavar="VALUES", help="the values file of NVIDIA's chart")
    parser.add_argument("config", metavar="CONFIG", nargs="?", help="the config file, where the values don't hold it")
    options = parser.parse_args(words)
    values = read_chart_values(read_config_file(options.values), Path(options.values).name)
    verdicts = _verdicts(values, options.config)
    print("\n".join(render(verdicts)))
    return EXIT_STATUS[max((verdict.fate for verdict in verdicts), default=Fate.STAYS)]


def _verdicts(values: ChartValues, config: str | None) -> list[Verdict]:
    """What becomes of the values, of what they say above any file, and of each file."""
    files = [(f"config.map.{name}", str(text).encode()) for name, text in values.files.items()]
    if config is not None:
        files.append((Path(config).name, read_config_file(config)))
    above = list(_judge_file(None, b"", values.overrides))
    refused = {verdict.key for verdict in above if verdict.fate is Fate.REFUSED}
    found = [verdict for verdict in values.verdicts if verdict.key not in refused] + above
    for source, data in files:
        found += _judge_file(source, data, Overrides())
    return found


def _judge_file(source: str | None, data: bytes, overrides: Overrides) -> Iterator[Verdict]:
    try:
        config = parse_config(data, source, overrides, lenient=True)
    except ConfigError as error:
        yield from (_refused(problem) for problem in error.problems)
        return
    for warning in config.warnings:
        yield _refused(f"{warning}; NVIDIA's plugin ignores it; remove it, or set configStrictness: lenient meanwhile")
    for one in otherwise(config):
        yield Verdict(Fate.CHANGES, one.key, f"NVIDIA's plugin {one.nvidia}; here it takes effect")
    if source is not None:
        yield Verdict(Fate.STAYS, source, "every other key: same key, same meaning")


def _refused(problem: str) -> Verdict:
    key, found, text = problem.partition(": found ")
    return Verdict(Fate.REFUSED, key, f"found {text}") if found else Verdict(Fate.REFUSED, key, "")


def render(verdicts: list[Verdict]) -> Iterator[str]:
    """Lines for people: the worst first."""
    for fate, heading in HEADINGS.items():
        of_fate = [verdict for verdict in verdicts if verdict.fate is fate]
        if of_fate:
            yield f"{heading}:"
            yield from (
                f"  {verdict.key}: {verdict.text}" if verdict.text else f"  {verdict.key}" for verdict in of_fate
            )
    if not verdicts:
        yield "Nothing is set: NVIDIA's defaults, and ours where docs/install.md says so."
