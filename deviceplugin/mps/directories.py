"""Makes a daemon's directories, and sees to it that processes of any user can reach its pipes (reports F5)."""

import os
import stat
from pathlib import Path

from deviceplugin.errors import MpsError
from deviceplugin.mps.paths import DaemonPaths, shm

ENTERED_BY_ALL = 0o755
# As /dev/shm itself: everybody may make files, nobody may remove another's.
SHARED = 0o1777


def prepare(paths: DaemonPaths) -> None:
    """Makes pipe, log and shared memory directories and checks every parent.

    Raises MpsError that names the path: it is too long for a socket, can't be made, or "other" can't enter it.
    """
    if problem := paths.too_long():
        raise MpsError(problem)
    for path in (paths.pipe, paths.log):
        _make(path)
    memory = shm(paths.root)
    _make(memory)
    try:
        if stat.S_IMODE(memory.stat().st_mode) != SHARED:
            memory.chmod(SHARED)
    except OSError as error:
        raise MpsError(f"{memory} can't be opened to every user: {error.strerror}") from error
    if closed := first_closed(paths.pipe):
        raise MpsError(
            f"permission denied for pods that don't run as root: {closed} can't be entered by others (mode "
            f"{stat.S_IMODE(closed.stat().st_mode):04o}); chmod o+x it"
        )


def _make(path: Path) -> None:
    missing = [one for one in (path, *path.parents) if not one.exists()]
    try:
        path.mkdir(parents=True, exist_ok=True)
        # Whatever the umask is. What was there before is somebody's choice: it is checked, not changed.
        for one in missing:
            one.chmod(ENTERED_BY_ALL)
    except OSError as error:
        raise MpsError(f"{path} can't be made: {error.strerror}") from error


def first_closed(path: Path) -> Path | None:
    """The outermost directory on the way to `path`, itself included, that "other" can't enter; None when all can."""
    for one in (*reversed(path.parents), path):
        if not one.stat().st_mode & stat.S_IXOTH:
            return one
    return None


def clear_stale(paths: DaemonPaths) -> None:
    """Removes what a dead daemon left in its pipe directory, so that nobody takes it for a live one."""
    for name in os.listdir(paths.pipe) if paths.pipe.is_dir() else ():
        path = paths.pipe / name
        if not path.is_dir():
            path.unlink(missing_ok=True)
