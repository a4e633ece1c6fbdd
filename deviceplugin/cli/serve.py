"""`serve`: the daemon."""

import os
import signal


def run(words: list[str]) -> int:
    """Serve until a signal comes; does not return then, but ends the process with 0 (signal) or 1 (could not start)."""
    # Imported step by step: a wrong flag should not cost what gRPC costs, and a signal is heard from the start.
    end_at_once_on_signals()
    from deviceplugin.config.settings import help_text, parse_settings  # noqa: PLC0415

    if any(word in ("-h", "--help", "-help") for word in words):
        print(help_text())
        return 0
    settings = parse_settings(words, os.environ)
    from deviceplugin.app.daemon import run_and_exit  # noqa: PLC0415
    from deviceplugin.observe.logs import configure  # noqa: PLC0415

    configure(settings.log_format, settings.log_level)
    run_and_exit(settings)
    return 0


def end_at_once_on_signals() -> None:
    """Until the daemon listens itself there is nothing to stop or to reload.

    Without handlers the kernel would not deliver these signals at all to the first process of a container, which then
    would run on until it is killed at the end of its grace period.
    """
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, lambda *_: os._exit(0))
    signal.signal(signal.SIGHUP, lambda *_: None)
