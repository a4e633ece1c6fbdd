"""`python3 tests/project/flock.py FILE COMMAND...`: becomes a command; one at a time of those with the same file.

What flock(1) does, for the Makefile, which asks for nothing but python3. The command inherits the lock, and so does
what it starts: the kernel frees it when the last of them has ended, in whatever way.
"""

import fcntl
import os
import sys
from collections.abc import Sequence


def become(file: str, command: Sequence[str]) -> None:
    """Replace this process by the command, found in PATH, once the lock of the file, which exists, is free."""
    lock = os.open(file, os.O_RDWR)  # NFS locks only what is open for writing
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print(f"waiting for another process, which has locked {file}", flush=True)
        fcntl.flock(lock, fcntl.LOCK_EX)
    os.set_inheritable(lock, True)
    os.execvp(command[0], list(command))  # noqa: S606 -- no shell is wanted


if __name__ == "__main__":
    become(sys.argv[1], sys.argv[2:])
