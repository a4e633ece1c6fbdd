"""`validate FILE`: every error of a config file at once, without looking at the node."""

import argparse
import os
import sys
from collections.abc import Iterator, Mapping

from deviceplugin.config.document import quote
from deviceplugin.config.load import load_config
from deviceplugin.config.model import Config
from deviceplugin.config.overrides import Overrides
from deviceplugin.errors import ConfigError, UsageError

STRICTNESS = ("strict", "lenient")


def run(words: list[str]) -> int:
    """The command; 0 when the file would be taken, 1 with every finding when it would not."""
    parser = argparse.ArgumentParser(prog="gpu-device-plugin validate", description=__doc__)
    parser.add_argument("file", help="- is standard input")
    parser.add_argument(
        "--config-strictness",
        choices=STRICTNESS,
        help="lenient: unknown and duplicate keys are warnings, as for `serve` (env CONFIG_STRICTNESS, default strict)",
    )
    options = parser.parse_args(words)
    lenient = (options.config_strictness or _strictness(os.environ)) == "lenient"
    try:
        config = load_config(options.file, Overrides(), lenient=lenient)
    except ConfigError as error:
        print("\n".join(error.problems), file=sys.stderr)
        count = len(error.problems)
        print(f"{options.file}: refused, {count} {'error' if count == 1 else 'errors'}", file=sys.stderr)
        return 1
    for warning in (*config.warnings, *_left_to_others(config, os.environ)):
        print(f"warning: {warning}")
    print(f"{options.file}: good")
    return 0


def _left_to_others(config: Config, environment: Mapping[str, str]) -> Iterator[str]:
    """What the file needs and does not say: a flag or variable of `serve` may, which only the node knows."""
    if config.mps and not (config.flags.mps_root or environment.get("MPS_ROOT")):
        yield (
            f"{config.mps.origin}: found no flags.mpsRoot in the file, expected it there, or --mps-root or MPS_ROOT "
            "where the plugin runs (the chart and the static manifest for MPS set the variable)"
        )


def _strictness(environment: Mapping[str, str]) -> str:
    """What the variable says, which `serve` heeds too: both must judge the file alike."""
    said = environment.get("CONFIG_STRICTNESS") or "strict"
    if said not in STRICTNESS:
        raise UsageError(
            f"environment variable CONFIG_STRICTNESS: found {quote(said)}, expected one of: {', '.join(STRICTNESS)}", 1
        )
    return said
