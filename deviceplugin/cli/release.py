"""`release`: the running plugin closes the driver, so that a GPU can be reset or the driver be unloaded.

It stays registered, its devices are Unhealthy meanwhile, and pods that run keep what they have: drain the node first.
The driver is taken up again after --for, or at once by `release --end`.
"""

import argparse
import os
import sys
from pathlib import Path

from deviceplugin.config.settings import DEFAULT_STATUS_SOCKET
from deviceplugin.observe.control_socket import LONGEST_RELEASE_S, ControlUnavailable, ask, control_path

# The plugin waits this long at most before it answers, and some more.
PATIENCE_S = 15.0
DEFAULT_FOR_S = 600


def run(words: list[str]) -> int:
    """The command.

    Returns:
        0: done. 1: no plugin answers, or it could not be done (yet); the message says which.
    """
    parser = argparse.ArgumentParser(prog="gpu-device-plugin release", description=__doc__)
    parser.add_argument(
        "--status-socket",
        default=os.environ.get("STATUS_SOCKET") or DEFAULT_STATUS_SOCKET,
        help="the running plugin's status socket (env STATUS_SOCKET, default %(default)s); control is beside it",
    )
    parser.add_argument(
        "--for",
        dest="seconds",
        type=_seconds,
        default=DEFAULT_FOR_S,
        metavar="SECONDS",
        help="take the driver up again by itself after so many seconds (default %(default)s)",
    )
    parser.add_argument("--end", action="store_true", help="take the driver up again now")
    parser.add_argument(
        "--reset-done",
        action="store_true",
        help="with --end: every GPU of the node was reset, so those that waited for a reset may recover",
    )
    options = parser.parse_args(words)
    if options.reset_done and not options.end:
        parser.error("--reset-done: found it without --end, expected both: it says what was done meanwhile")
    request = f"release {options.seconds}"
    if options.end:
        request = "take-up reset" if options.reset_done else "take-up"
    try:
        answer = ask(control_path(Path(options.status_socket)), request, PATIENCE_S)
    except ControlUnavailable as error:
        print(error, file=sys.stderr)
        return 1
    print(answer.message, file=sys.stdout if answer.ok else sys.stderr)
    return 0 if answer.ok else 1


def _seconds(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) <= LONGEST_RELEASE_S:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected whole seconds from 1 to {LONGEST_RELEASE_S}")
    return int(text)
