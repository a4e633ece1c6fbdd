"""The codec of device ids: a GPU's or MIG instance's UUID, or `UUID::n` for its n-th replica.

The form is NVIDIA's plugin's, byte for byte: the kubelet's checkpoint and dcgm-exporter parse it, and pods that run
keep their ids when one plugin replaces the other.
"""

SEPARATOR = "::"
LONGEST_SHOWN = 128


def replica_id(unit_uuid: str, replica: int) -> str:
    """The id of replica `replica` (from 0) of a GPU or MIG instance."""
    return f"{unit_uuid}{SEPARATOR}{replica}"


def unit_of(device_id: str) -> str:
    """The UUID of the GPU or MIG instance that a device id, replicated or not, belongs to."""
    return device_id.partition(SEPARATOR)[0]


def is_replica(device_id: str) -> bool:
    """Whether the id names a replica rather than a whole GPU or MIG instance."""
    return SEPARATOR in device_id


def in_words(device_id: str) -> str:
    """A device id from outside as messages show it: as it is, or escaped and cut if it can't be one of ours."""
    if len(device_id) <= LONGEST_SHOWN and device_id.isprintable():
        return device_id
    return repr(device_id[:LONGEST_SHOWN]) + ("..." if len(device_id) > LONGEST_SHOWN else "")
