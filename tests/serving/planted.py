"""Runs a command of ours that is killed by SIGKILL in the middle of a step: between two calls of the system.

    python -m tests.serving.planted EVENT PART SKIP mps --flag ...

EVENT is one of Python's audit events (`os.rename`), PART a part of what it is about, as text; the process is killed
right before the call that raises the event for the (SKIP + 1)th time.
"""

import os
import signal
import sys

from deviceplugin.cli.main import main


def plant(event: str, part: str, skip: int) -> None:
    """From now on the process dies there."""
    left = skip

    def hook(name: str, about: tuple[object, ...]) -> None:
        nonlocal left
        if name == event and part in str(about):
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left -= 1

    sys.addaudithook(hook)


if __name__ == "__main__":
    _, of_event, of_part, skipped, *words = sys.argv
    plant(of_event, of_part, int(skipped))
    sys.argv = ["gpu-device-plugin", *words]
    sys.exit(main())
