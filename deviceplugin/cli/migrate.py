"""`migrate`: what becomes of a values file of NVIDIA's chart, and of its config file, under this plugin."""

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from deviceplugin.config.chart_files import refuse_values
from deviceplugin.config.chart_values import KEYS, ChartValues, read_chart_values
from deviceplugin.config.chart_verdicts import Fate, Verdict
from deviceplugin.config.document import quote_key
from deviceplugin.config.load import PIPES, STANDARD_INPUT, parse_config, read_input, settings_in
from deviceplugin.config.model import Config
from deviceplugin.config.overrides import Overrides
from deviceplugin.errors import ConfigError, UsageError
from deviceplugin.planning.migration import ConfigFile, of_both, of_the_file

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
        description=f"{__doc__} Exit status: 0: all stays, 3: something changes its meaning, 4: something is refused, "
        "1: a file can't be read. With MPS, `devices`, `rename` or `config.name` 3 is what remains.",
    )
    parser.add_argument("values", metavar="VALUES", help="the values file of NVIDIA's chart; - is standard input")
    parser.add_argument(
        "config",
        metavar="CONFIG",
        nargs="?",
        help="the config file, where the values don't hold it; - is standard input",
    )
    options = parser.parse_args(words)
    if options.values == options.config == STANDARD_INPUT:
        raise UsageError("found - for both files, expected it once: standard input is one file", 2)
    source, data = read_input(options.values, "the values file of NVIDIA's chart")
    verdicts = list(_verdicts(read_chart_values(data, _short(source)), options.config))
    print("\n".join(render(verdicts)))
    return EXIT_STATUS[max(verdict.fate for verdict in verdicts)]


def _verdicts(values: ChartValues, config: str | None) -> Iterator[Verdict]:
    """What becomes of the values, of what they say above any file, of each file, and of the ones by the others."""
    files = [(f"config.map.{quote_key(name)}", text.encode()) for name, text in values.files.items()]
    if config is not None:
        source, data = read_input(config, "the config file")
        files.append((_short(source), data))
    alone, above = _parse(None, b"", values.overrides)
    # What they may not set has been said: a file is judged without it.
    overrides = values.overrides if alone else Overrides()
    judged = [_judge_file(source, data, overrides) for source, data in files]
    good = [file for file, _ in judged if file is not None]
    file = good[-1] if good else None
    both = list(of_both(values, file, file.config if file else alone or Config()))
    said = {verdict.key for verdict in (*above, *both)}
    yield from (verdict for verdict in values.verdicts if verdict.key not in said or verdict.fate is not Fate.STAYS)
    yield from above
    for one, found in judged:
        yield from found
        if one is not None:
            yield from of_the_file(one)
    yield from both


def _short(source: str) -> str:
    """A file's name without its directories; a pipe's has nothing else that tells what it is."""
    return source if source.startswith(PIPES) else Path(source).name


def _judge_file(source: str, data: bytes, overrides: Overrides) -> tuple[ConfigFile | None, list[Verdict]]:
    """What a file makes, None when nothing can be made of it, and what is wrong with it."""
    try:
        refuse_values(data, source, KEYS)
    except ConfigError as error:
        return None, [_refused(problem) for problem in error.problems]
    good, wrong = _parse(source, data, overrides)
    lenient = good or _parse(source, data, overrides, lenient=True)[0]
    if lenient is None:
        return None, [*wrong, Verdict(Fate.REFUSED, source, "what else becomes of it is told when this is mended")]
    if good is None:
        ignored = "NVIDIA's plugin ignores it; remove it, or set configStrictness: lenient meanwhile"
        wrong = [replace(one, text=f"{one.text}; {ignored}") for one in wrong]
    warned = [Verdict(Fate.STAYS, *_split(warning)) for warning in (good.warnings if good else ())]
    return ConfigFile(source, lenient, settings_in(data, source)), wrong + warned


def _parse(
    source: str | None, data: bytes, overrides: Overrides, *, lenient: bool = False
) -> tuple[Config | None, list[Verdict]]:
    """What a file and what is set above it make, None when they are refused, and everything for which they are."""
    try:
        return parse_config(data, source, overrides, lenient=lenient), []
    except ConfigError as error:
        return None, [_refused(problem) for problem in error.problems]


def _refused(problem: str) -> Verdict:
    return Verdict(Fate.REFUSED, *_split(problem))


def _split(finding: str) -> tuple[str, str]:
    """Where, and what was found there."""
    key, found, text = finding.partition(": found ")
    return (key, f"found {text}") if found else (key, "")


def render(verdicts: list[Verdict]) -> Iterator[str]:
    """Lines for people: the worst first."""
    for fate, heading in HEADINGS.items():
        of_fate = [verdict for verdict in verdicts if verdict.fate is fate]
        if of_fate:
            yield f"{heading}:"
            yield from (
                f"  {verdict.key}: {verdict.text}" if verdict.text else f"  {verdict.key}" for verdict in of_fate
            )
    yield "What is not set has our default: docs/install.md, With Helm, lists those that differ."
