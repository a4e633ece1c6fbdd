"""Reads the kubelet's device checkpoint, the lower bound of what pods hold (contract 4a).

The file is internal to the kubelet and unversioned (C4): anything unexpected is an error, never a guess.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from deviceplugin.errors import KubeletError
from deviceplugin.model.held import Held

MAX_BYTES: Final = 64 * 1024 * 1024  # one entry has a few hundred bytes


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What the kubelet had written down last.

    Attributes:
        held: ids of pods by resource. Entries of pods that have ended may remain (C3); what an Allocate in flight
            is about to hold is missing (C5).
        registered: the ids that were healthy, by registered resource.
    """

    held: Held
    registered: Held


def read_checkpoint(path: Path) -> Checkpoint | None:
    """The checkpoint at `path`; None when there is no file: the kubelet goes on without (A31), and so must we.

    Its checksum is not checked: it is taken over a dump that only Go can make (C4).

    Raises KubeletError when it can't be read, is larger than 64 MiB, or is not in the layout of C1.
    """
    try:
        with path.open("rb") as file:
            text = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise KubeletError(f"{path}: {error.strerror}; expected the kubelet's checkpoint") from None
    if len(text) > MAX_BYTES:
        raise KubeletError(f"{path}: larger than {MAX_BYTES // 2**20} MiB; this is no kubelet checkpoint")
    try:
        data = _of(dict, json.loads(text), "Data")
        held: dict[str, set[str]] = {}
        for entry in _of(list, data, "PodDeviceEntries", optional=True):
            resource = _of(str, entry, "ResourceName")
            for node in _of(dict, entry, "DeviceIDs").values():
                held.setdefault(resource, set()).update(_ids(node))
        registered = {
            resource: frozenset(_ids(ids))
            for resource, ids in _of(dict, data, "RegisteredDevices", optional=True).items()
        }
    except (ValueError, RecursionError) as error:
        raise KubeletError(f"{path}: not a kubelet checkpoint: {error}") from None
    return Checkpoint(Held({name: frozenset(ids) for name, ids in held.items()}), Held(registered))


def _of(kind: type[Any], parent: object, key: str, *, optional: bool = False) -> Any:
    """`parent[key]`, which must be of `kind`; with `optional`, null counts as empty. Raises ValueError."""
    value = parent.get(key) if isinstance(parent, dict) else None
    if value is None and optional:
        return kind()
    if not isinstance(value, kind):
        raise ValueError(f"{key}: expected a {kind.__name__}, found {type(value).__name__}")
    if isinstance(value, str):
        value.encode()
    return value


def _ids(value: object) -> list[str]:
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(device_id, str) for device_id in value):
        raise ValueError("device ids: expected a list of strings")
    for device_id in value:
        device_id.encode()  # half a surrogate pair would be a held id that no list can name: a ValueError too
    return value
