"""Which devices each sharing entry claims, under which name: the heart of a mode per GPU."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from deviceplugin.config.model import (
    Config,
    SelectAll,
    SelectCount,
    Selector,
    SelectRest,
    SelectUuid,
    Sharing,
    SharingEntry,
)
from deviceplugin.model.node import Gpu
from deviceplugin.planning.candidate import Candidate
from deviceplugin.planning.naming import shared_name
from deviceplugin.planning.select import describe_selector, matches


@dataclass(frozen=True, slots=True)
class Claim:
    """What one entry shares on this node.

    Attributes:
        devices: in order; none when nothing on this node matches.
        name: what the shares are offered under.
    """

    entry: SharingEntry
    sharing: Sharing
    devices: tuple[Candidate, ...]
    name: str


@dataclass(frozen=True, slots=True)
class Claims:
    """Every entry's claim, in the order of the file, time-slicing first.

    Attributes:
        errors: devices that two entries claim.
        warnings: selectors and resources that match nothing on this node (a warning, never a refusal: design 8).
    """

    claims: tuple[Claim, ...]
    errors: tuple[str, ...]
    warnings: tuple[str, ...]


@dataclass(slots=True)
class _Entry:
    """An entry while devices are dealt out.

    Attributes:
        own: every device of the resource that it shares.
        taken: those that are its, by `Candidate.order`.
    """

    sharing: Sharing
    entry: SharingEntry
    own: list[Candidate]
    taken: set[tuple[int, int]]


def claim(candidates: Sequence[Candidate], gpus: Sequence[Gpu], config: Config) -> Claims:
    """Gives each entry its devices: first those named, then counts in the order of the file, then `rest`.

    GPUs that hide their UUID take part, so that a loss moves nothing: counts count them and a whole is judged with
    them. They are not offered in the end.

    Args:
        candidates: every device of the node before sharing, in order.
        gpus: every GPU of the node, left out or not.
    """
    by_name: defaultdict[str, list[Candidate]] = defaultdict(list)
    for candidate in candidates:
        by_name[candidate.name].append(candidate)
    entries = [
        _Entry(sharing, entry, own := by_name.get(entry.name, []), _named(entry, own))
        for sharing in (config.time_slicing, config.mps)
        if sharing is not None
        for entry in sharing.entries
    ]
    warnings: list[str] = []
    for one in entries:
        if one.own:
            warnings += _unmatched(one)
            warnings += _count(one, entries)
        else:
            names = ", ".join(sorted(by_name)) or "none"
            warnings.append(
                f"{one.entry.origin}: no device of this node is {one.entry.name} (before sharing it has: {names})"
            )
    rests = [one for one in entries if SelectRest() in one.entry.selectors]
    rest = [{device.order for device in _untaken(one, entries)} for one in rests]
    for one, orders in zip(rests, rest, strict=True):
        one.taken |= orders
    present = {gpu.uuid for gpu in gpus if gpu.uuid}
    claims = tuple(_close(one, present, config) for one in entries)
    return Claims(claims, tuple(_conflicts(claims)), tuple(warnings))


def _named(entry: SharingEntry, own: Sequence[Candidate]) -> set[tuple[int, int]]:
    return {one.order for one in own if any(matches(chosen, one.gpu, one.instance) for chosen in entry.selectors)}


def _untaken(one: _Entry, entries: Sequence[_Entry]) -> list[Candidate]:
    return [device for device in one.own if not any(device.order in other.taken for other in entries)]


def _count(one: _Entry, entries: Sequence[_Entry]) -> Iterator[str]:
    """Takes what an entry asks for by number, and warns when the node has less."""
    asked = sum(chosen.count for chosen in one.entry.selectors if isinstance(chosen, SelectCount))
    free = _untaken(one, entries) if asked else []
    one.taken |= {device.order for device in free[:asked]}
    if len(free) < asked:
        yield f"{one.entry.origin}.devices: {asked} devices asked for, this node has {len(free)} that no entry names"


def _close(one: _Entry, present: AbstractSet[str], config: Config) -> Claim:
    devices = tuple(device for device in one.own if device.order in one.taken)
    uncovered = [device for device in one.own if device.order not in one.taken]
    named = (*one.entry.selectors, *config.devices.exclude)
    name = shared_name(one.entry, one.sharing, covers_all=_may_all_be(uncovered, named, present))
    return Claim(one.entry, one.sharing, devices, name)


def _unmatched(one: _Entry) -> Iterator[str]:
    for chosen in one.entry.selectors:
        by_itself = not isinstance(chosen, SelectAll | SelectCount | SelectRest)
        if by_itself and not any(matches(chosen, device.gpu, device.instance) for device in one.own):
            yield f"{one.entry.origin}.devices: {describe_selector(chosen)} matches no {one.entry.name} of this node"


def _may_all_be(uncovered: Sequence[Candidate], named: Sequence[Selector], present: AbstractSet[str]) -> bool:
    """Whether what an entry leaves may after all be its own: nothing, or only lost GPUs that hide their UUID.

    Such a GPU may be one that the entry, or `devices.exclude`, names by a UUID which nobody answers to. Else a start
    while a GPU is lost would change the name of the entry's shares (design 8: a name never changes through loss).
    """
    absent = {chosen.uuid for chosen in named if isinstance(chosen, SelectUuid)} - present
    gpus = [uuid for uuid in absent if not uuid.startswith("MIG-")]
    return all(one.uuid is None for one in uncovered) and len(uncovered) <= len(gpus)


def _conflicts(claims: Sequence[Claim]) -> Iterator[str]:
    first: dict[tuple[int, int], Claim] = {}
    for one in claims:
        for device in one.devices:
            earlier = first.setdefault(device.order, one)
            if earlier is not one:
                yield (
                    f"{one.entry.origin}: {device.describe()} is claimed by {earlier.entry.origin} as well; a device "
                    f"is shared in one way only: give the two entries disjoint `devices` (`rest` in one of them)"
                )
