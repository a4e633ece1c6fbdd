"""What the supervisor does for a GPU, in a file that the plugin reads: one says it, the other shows it, neither asks.

The file is news for people. What a share is worth is judged by the daemon's pipe alone.
"""

import json
import os
import stat
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

STALE_S: Final = 60.0
"""A keeper renews its file every few seconds; its longest step takes 20."""
MOST_BYTES: Final = 16 * 1024
MOST_CHARACTERS: Final = 1000
MOST_CLIENTS: Final = 16


@dataclass(frozen=True, slots=True)
class ClientState:
    """A process that waits for an MPS server.

    Attributes:
        pid: 0: the daemon does not know it.
        uid: its user.
        since: UTC, ISO 8601.
    """

    pid: int
    uid: int
    since: str


@dataclass(frozen=True, slots=True)
class KeeperState:
    """What the supervisor does for one GPU.

    Attributes:
        daemon: which one it is, for people: `GPU 3 (nvidia.com/gpu.mps)`.
        pid: of the control daemon; 0: none runs.
        since: when it began; UTC, ISO 8601; empty without one.
        limits: what it gives each client, for people; empty without one.
        serves: whether it was found to answer with these limits.
        restarts: daemons that this supervisor has started after the first.
        problem: what is not as wanted, or for whom a change waits; empty when all is well.
        waiting: clients that wait for a server, the longest wait first, at most MOST_CLIENTS.
        advice: what can be done for them; empty when none waits.
    """

    daemon: str
    pid: int = 0
    since: str = ""
    limits: str = ""
    serves: bool = False
    restarts: int = 0
    problem: str = ""
    waiting: tuple[ClientState, ...] = ()
    advice: str = ""


def when(seconds: float) -> str:
    """Seconds since the epoch as UTC, ISO 8601."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def write(path: Path, state: KeeperState) -> None:
    """Say it, whole or not at all. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.new")
    temporary.write_text(json.dumps(asdict(state)))
    temporary.replace(path)


def read_all(directory: Path, known: Mapping[str, tuple[int, KeeperState]]) -> dict[str, tuple[int, KeeperState]]:
    """What the supervisor says, by file name (the GPU's UUID), with the file's time of change in ns.

    Files that are no such thing, or that nobody has renewed for STALE_S, are left out.

    Args:
        known: the last answer, whose files need not be read again.
    """
    found = {}
    oldest_ns = time.time_ns() - int(STALE_S * 1e9)
    try:
        names = [name for name in os.listdir(directory) if not name.endswith(".new")]
    except OSError:
        return {}
    for name in sorted(names)[: MOST_CLIENTS * 4]:
        try:
            changed_ns = (directory / name).lstat().st_mtime_ns
        except OSError:
            continue
        if changed_ns < oldest_ns:
            continue
        state = known[name][1] if name in known and known[name][0] == changed_ns else read(directory / name)
        if state is not None:
            found[name] = changed_ns, state
    return found


def read(path: Path) -> KeeperState | None:
    """What one file says; None for one that is too long, no plain file, or says anything else than a KeeperState."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        plain = stat.S_ISREG(os.fstat(descriptor).st_mode)
        data = os.read(descriptor, MOST_BYTES + 1) if plain else b""
    except OSError:
        return None
    finally:
        os.close(descriptor)
    try:
        return _state(json.loads(data)) if len(data) <= MOST_BYTES else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _state(found: Mapping[str, Any]) -> KeeperState:
    return KeeperState(
        daemon=_text(found["daemon"]),
        pid=_number(found["pid"]),
        since=_text(found["since"]),
        limits=_text(found["limits"]),
        serves=found["serves"] is True,
        restarts=_number(found["restarts"]),
        problem=_text(found["problem"]),
        waiting=tuple(
            ClientState(_number(one["pid"]), _number(one["uid"]), _text(one["since"]))
            for one in found["waiting"][:MOST_CLIENTS]
        ),
        advice=_text(found["advice"]),
    )


def _text(found: object) -> str:
    if not isinstance(found, str):
        raise TypeError(found)
    return "".join(one if one.isprintable() else " " for one in found[:MOST_CHARACTERS])


def _number(found: object) -> int:
    if type(found) is not int or not 0 <= found < 1 << 32:
        raise ValueError(found)
    return found
