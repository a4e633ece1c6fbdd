"""The size on the wire of the list that a resource sends, by arithmetic: no id is expanded, no message is made.

The kubelet receives at most 4 MiB per message (contract R10); a longer list ends the stream, and with it every device
of the resource (L7). So a plan that would send one is refused before anything is built.
"""

from collections.abc import Iterator, Sequence

from deviceplugin.model.ids import SEPARATOR
from deviceplugin.model.plan import Health, Unit

KUBELET_LIMIT_BYTES = 4 * 1024 * 1024
RETAINED_RESERVE_BYTES = 64 * 1024
"""Kept free for held ids that the plan no longer has but the list must (L16): about 1000 of them."""
LIST_LIMIT_BYTES = KUBELET_LIMIT_BYTES - RETAINED_RESERVE_BYTES

_TAG_BYTES = 1
"""Every field number here is below 16, so each tag takes one byte."""


def list_bytes(units: Sequence[Unit]) -> int:
    """The serialised size of a ListAndWatchResponse with every device of these units Unhealthy, the longer word."""
    return sum(
        _replicated_bytes(unit, unit.replicas) if unit.replicas else _entry_bytes(len(unit.uuid), unit.numa_node)
        for unit in units
    )


def largest_replicas(units: Sequence[Unit]) -> int:
    """The largest number of replicas, the same for each of these units, whose list fits the kubelet's limit."""
    fits, too_many = 0, LIST_LIMIT_BYTES
    while too_many - fits > 1:
        middle = (fits + too_many) // 2
        if sum(_replicated_bytes(unit, middle) for unit in units) <= LIST_LIMIT_BYTES:
            fits = middle
        else:
            too_many = middle
    return fits


def _replicated_bytes(unit: Unit, replicas: int) -> int:
    stem = len(unit.uuid) + len(SEPARATOR)
    return sum(count * _entry_bytes(stem + digits, unit.numa_node) for digits, count in _by_digits(replicas))


def _by_digits(count: int) -> Iterator[tuple[int, int]]:
    """How many of the numbers 0 to count-1 have one digit, two, ...: (digits, how many)."""
    start, digits = 0, 1
    while start < count:
        end = min(10**digits, count)
        yield digits, end - start
        start, digits = end, digits + 1


def _entry_bytes(id_length: int, numa_node: int | None) -> int:
    """One `devices` field: Device{ID, health, topology} (protos/deviceplugin_v1beta1.proto)."""
    device = _field_bytes(id_length) + _field_bytes(len(Health.UNHEALTHY))
    if numa_node is not None:
        # Zero is proto3's default and is not sent: NUMANode{} for node 0.
        node = _TAG_BYTES + _varint_bytes(numa_node) if numa_node else 0
        device += _field_bytes(_field_bytes(node))
    return _field_bytes(device)


def _field_bytes(length: int) -> int:
    """A length-delimited field: tag, length, content."""
    return _TAG_BYTES + _varint_bytes(length) + length


def _varint_bytes(value: int) -> int:
    return max(1, (value.bit_length() + 6) // 7)
