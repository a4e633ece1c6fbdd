"""`validate FILE`: every error of a config file at once, without looking at the node."""

import argparse
import sys

from deviceplugin.config.load import load_config
from deviceplugin.config.overrides import Overrides
from deviceplugin.errors import ConfigError


def run(words: list[str]) -> int:
    """The command; 0 when the file would be taken, 1 with every finding when it would not."""
    parser = argparse.ArgumentParser(prog="gpu-device-plugin validate", description=__doc__)
    parser.add_argument("file")
    parser.add_argument(
        "--config-strictness",
        choices=("strict", "lenient"),
        default="strict",
        help="lenient: unknown and duplicate keys are warnings, as for `serve`",
    )
    options = parser.parse_args(words)
    try:
        config = load_config(options.file, Overrides(), lenient=options.config_strictness == "lenient")
    except ConfigError as error:
        print("\n".join(error.problems), file=sys.stderr)
        count = len(error.problems)
        print(f"{options.file}: refused, {count} {'error' if count == 1 else 'errors'}", file=sys.stderr)
        return 1
    for warning in config.warnings:
        print(f"warning: {warning}")
    print(f"{options.file}: good")
    return 0
