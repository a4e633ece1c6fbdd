"""`python -m tests.serving.quick SPEED serve ...`: the daemon by a clock that runs SPEED times as fast.

What takes the daemon half a minute on purpose (a drained device turns Unhealthy 30 s after a registration, a retired
resource closes after 30 s, a young kubelet is believed after 60 s) is then over in seconds, in the same order.
"""

import os
import sys
import time

from deviceplugin.app.daemon import run_and_exit
from deviceplugin.config.settings import parse_settings
from deviceplugin.observe.logs import configure


def main(speed: float, words: list[str]) -> None:
    """Serve until a signal comes; takes the flags of `serve`."""
    settings = parse_settings(words, os.environ)
    configure(settings.log_format, settings.log_level)
    run_and_exit(settings, monotonic=lambda: time.monotonic() * speed)


if __name__ == "__main__":
    main(float(sys.argv[1]), sys.argv[3:])
