"""`serve`: the daemon."""

import os
import sys

from deviceplugin.config.settings import help_text, parse_settings


def run(words: list[str]) -> int:
    """Serve until a signal comes; does not return then, but ends the process with 0 (signal) or 1 (could not start)."""
    if any(word in ("-h", "--help", "-help") for word in words):
        print(help_text())
        return 0
    settings = parse_settings(words, os.environ)
    # Imported only now: a wrong flag should not cost what gRPC costs.
    from deviceplugin.app.daemon import run_and_exit  # noqa: PLC0415
    from deviceplugin.observe.logs import configure  # noqa: PLC0415

    configure(settings.log_format, settings.log_level)
    sys.stdout.flush()
    run_and_exit(settings)
    return 0
