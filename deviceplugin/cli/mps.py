"""`mps`: the supervisor of MPS control daemons."""

import os

from deviceplugin.cli.serve import end_at_once_on_signals


def run(words: list[str]) -> int:
    """Supervise until a signal comes; does not return then, but ends the process with 0 (signal) or 1 (could not)."""
    end_at_once_on_signals()
    from deviceplugin.config.settings import help_text, parse_settings  # noqa: PLC0415

    if any(word in ("-h", "--help", "-help") for word in words):
        print(help_text("gpu-device-plugin mps"))
        return 0
    settings = parse_settings(words, os.environ)
    from deviceplugin.app.supervisor import run_and_exit  # noqa: PLC0415
    from deviceplugin.observe.logs import configure  # noqa: PLC0415

    configure(settings.log_format, settings.log_level)
    run_and_exit(settings)
    return 0
