"""What must outlive the supervisor: which GPUs MPS has, what their compute mode was, and which daemon serves them.

One file a GPU. It is written before the mode is changed and removed after it has been put back, so that the next
supervisor can do that after a SIGKILL of this one (reports F8).
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from deviceplugin.errors import MpsError
from deviceplugin.model.computemode import ComputeMode
from deviceplugin.model.mps import MpsDaemon, MpsShare
from deviceplugin.mps.paths import compute_modes
from deviceplugin.mps.servers import Server


@dataclass(frozen=True, slots=True)
class Record:
    """One GPU that MPS has.

    Attributes:
        previous_mode: the compute mode to put back.
        daemon: what was started last.
        pid, started_at: of its process; the time in clock ticks since boot (field 22 of /proc/PID/stat), which tells a
            process from a later one of the same number. 0: none was started yet, or none is known to be.
        token: what the daemon that is started next, or was last, has in its environment (process.TOKEN).
        limited: whether it has been given its limits.
        servers: those of this GPU that were last seen, of any daemon.
    """

    previous_mode: ComputeMode
    daemon: MpsDaemon
    pid: int = 0
    started_at: int = 0
    token: str = ""
    limited: bool = False
    servers: tuple[Server, ...] = ()


def read(root: Path, gpu_uuid: str) -> Record | None:
    """The record of a GPU; None without one. Raises MpsError for one that can't be understood."""
    path = compute_modes(root) / gpu_uuid
    try:
        found: dict[str, Any] = json.loads(path.read_text())
        daemon = found["daemon"]
        return Record(
            ComputeMode(found["previous_mode"]),
            MpsDaemon(**{**daemon, "share": MpsShare(**daemon["share"])}),
            found["pid"],
            found["started_at"],
            found.get("token", ""),
            found.get("limited", found["pid"] != 0),  # an earlier version kept none of these
            tuple(_server(one) for one in found.get("servers", ())),
        )
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise MpsError(
            f"{path} can't be read ({error}), so it is unknown what the compute mode of {gpu_uuid} was: set the mode "
            f"with nvidia-smi -c, then remove the file"
        ) from error


def _server(found: dict[str, Any]) -> Server:
    share = found["share"]
    return Server(found["pid"], found["started_at"], share and MpsShare(**share))


def write(root: Path, record: Record) -> None:
    """Keeps a record, whatever happens during that. Raises MpsError."""
    path = compute_modes(root) / record.daemon.gpu_uuid
    temporary = path.with_name(f"{path.name}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(json.dumps(asdict(record)))
        temporary.replace(path)
    except OSError as error:
        raise MpsError(f"{path} can't be written: {error.strerror}") from error


def remove(root: Path, gpu_uuid: str) -> None:
    """Forgets a GPU: MPS does not have it any more."""
    (compute_modes(root) / gpu_uuid).unlink(missing_ok=True)
