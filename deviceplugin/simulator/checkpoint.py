"""The kubelet's internal checkpoint file (C1 to C5)."""

from __future__ import annotations

import base64
import binascii
import json
import os
import tempfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

FILE_NAME: Final = "kubelet_internal_checkpoint"
NO_NUMA: Final = -1  # C1: the key of ids without topology


@dataclass(frozen=True, slots=True)
class Record:
    """What one container was given of one resource: ids by NUMA node (-1: none) and the serialised response (A16)."""

    ids: Mapping[int, tuple[str, ...]]
    response: bytes

    @property
    def all_ids(self) -> frozenset[str]:
        """The ids, each once."""
        return frozenset(device_id for ids in self.ids.values() for device_id in ids)


PodRecords = dict[str, dict[str, dict[str, Record]]]
"""pod uid -> container name -> resource -> record."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The content of the file: the records and, per registered resource, its healthy ids."""

    pods: PodRecords = field(default_factory=dict)
    registered: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def write(directory: Path, checkpoint: Checkpoint) -> None:
    """Write the file into `directory` through a temporary file and a rename, mode 0600 (C1, L13).

    Raises OSError when the directory can't be written.
    """
    entries: list[dict[str, Any]] = [
        {
            "PodUID": uid,
            "ContainerName": container,
            "ResourceName": resource,
            "DeviceIDs": {str(node): list(ids) for node, ids in record.ids.items()},
            "AllocResp": base64.b64encode(record.response).decode("ascii"),
        }
        for uid, containers in checkpoint.pods.items()
        for container, resources in containers.items()
        for resource, record in resources.items()
    ]
    data = {
        "PodDeviceEntries": entries or None,
        "RegisteredDevices": {resource: list(ids) for resource, ids in checkpoint.registered.items()},
    }
    text = json.dumps({"Data": data, "Checksum": _checksum(data)}, separators=(",", ":"))
    handle, temporary = tempfile.mkstemp(prefix=".", dir=directory)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.rename(temporary, directory / FILE_NAME)
    except BaseException:
        os.unlink(temporary)
        raise


def read(directory: Path) -> Checkpoint | None:
    """The checkpoint in `directory`; None when it is missing or corrupt, a foreign checksum included (A31, C4)."""
    try:
        document = json.loads((directory / FILE_NAME).read_text(encoding="utf-8"))
        data = document["Data"]
        if document["Checksum"] != _checksum(data):
            return None
        pods: PodRecords = {}
        for entry in data["PodDeviceEntries"] or ():
            record = Record(
                {int(node): tuple(ids) for node, ids in entry["DeviceIDs"].items()},
                base64.b64decode(entry["AllocResp"], validate=True),
            )
            pods.setdefault(entry["PodUID"], {}).setdefault(entry["ContainerName"], {})[entry["ResourceName"]] = record
        return Checkpoint(pods, {name: tuple(ids) for name, ids in data["RegisteredDevices"].items()})
    except (OSError, ValueError, KeyError, TypeError, AttributeError, binascii.Error):
        return None


def _checksum(data: object) -> int:
    return zlib.crc32(json.dumps(data, sort_keys=True).encode())
