"""What a reload and a change of instances cost: the resource that changes, and those that must not notice."""

import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from benchmarks.bench import Bench
from benchmarks.figures import Figure, percentile
from benchmarks.nodes import FIVE_NAMES, GPU, Node, five_names, time_sliced
from deviceplugin.simulator.history import ResourceHistory
from deviceplugin.simulator.journal import RpcRecord
from deviceplugin.simulator.nodestatus import Amounts

MILLISECONDS = 1e3
CHANGING = FIVE_NAMES[-1]
UNCHANGED = FIVE_NAMES[:-1]


def measure(*, quick: bool) -> list[Figure]:
    """Edits of the only resource, edits of one of five, hand-overs between two instances."""
    edits = 10 if quick else 60
    return [*_edits(edits), *_edits_of_one_of_five(edits), *_hand_overs(3 if quick else 20)]


def _edits(times: int) -> list[Figure]:
    """From a new config file to the list that it leads to, the wait for more edits included."""
    waits = []
    with Bench(Node(), time_sliced(2)) as bench:
        bench.start([GPU])
        for edit in range(times):
            replicas = 3 + edit % 2
            lists = len(bench.lists(GPU))
            edited = bench.edit(time_sliced(replicas))
            applied = bench.wait_for_lists(GPU, lists + 1)
            assert len(applied.devices) == 8 * replicas, f"{len(applied.devices)} devices after an edit to {replicas}"
            waits.append((applied.at - edited) * MILLISECONDS)
    note = f"{times} edits"
    return [
        Figure("edit to list: p50", percentile(waits, 50), "ms", note=note),
        Figure("edit to list: p95", percentile(waits, 95), "ms", at_most=250, note=note),
    ]


def _edits_of_one_of_five(times: int) -> list[Figure]:
    """What the kubelet sees of the four resources that an edit does not change. It reports after every edit."""
    with Bench(Node(), five_names()) as bench:
        bench.start(FIVE_NAMES)
        bench.kubelet.tick()
        full = _amounts(bench)
        reports = len(bench.kubelet.status_history)
        before = {name: bench.kubelet.resources[name] for name in FIVE_NAMES}
        for edit in range(times):
            lists = len(bench.lists(CHANGING))
            bench.edit(five_names(11 - edit % 2))
            bench.wait_for_lists(CHANGING, lists + 1)
            bench.kubelet.tick()
        since = [_since(before[name], bench.kubelet.resources[name]) for name in FIVE_NAMES]
        changing, unchanged = since[-1], since[:-1]
        seen = bench.kubelet.status_history[reports:]
        assert len(seen) >= times, f"{len(seen)} node statuses in {times} edits that each change one"
        dips = sum({name: status.resources[name] for name in UNCHANGED} != full for status in seen)
    note = f"{len(UNCHANGED)} resources, {times} edits of a fifth"
    return [
        Figure("lists per edit: the changed resource", changing.lists / times, "", at_most=1, note=f"{times} edits"),
        Figure("lists: unchanged resources", sum(one.lists for one in unchanged), "", at_most=0, note=note),
        Figure("registrations: unchanged resources", sum(one.registrations for one in unchanged), "", 0, note),
        Figure("streams ended: unchanged resources", sum(one.streams_ended for one in unchanged), "", 0, note),
        Figure("node statuses short of them", dips, "", at_most=0, note=f"of {len(seen)} reported"),
    ]


def _amounts(bench: Bench) -> dict[str, Amounts]:
    status = bench.kubelet.node_status()
    return {name: status[name] for name in UNCHANGED}


@dataclass(frozen=True, slots=True)
class _Happened:
    """How much happened to one resource in a time."""

    lists: int
    registrations: int
    streams_ended: int


def _since(before: ResourceHistory, now: ResourceHistory) -> _Happened:
    return _Happened(
        lists=len(now.lists) - len(before.lists),
        registrations=len(now.registrations) - len(before.registrations),
        streams_ended=len(now.finished("ListAndWatch")) - len(before.finished("ListAndWatch")),
    )


def _hand_overs(times: int) -> list[Figure]:
    """Two instances for a moment, then the older one goes: how long the kubelet has no stream, by its own records."""
    registered: list[float] = []
    without: list[float] = []
    with Bench(Node(), time_sliced(2)) as bench:
        bench.start([GPU])
        (first,) = bench.kubelet.resources[GPU].registrations
        for _ in range(times):
            ended = bench.hand_over(GPU)
            bench.wait_for(partial(_handed_over, bench, ended, first.endpoint))
            history = bench.kubelet.resources[GPU]
            lost = _lost_streams(history, ended)
            registered.append((_first_after(lost[0].at, history.registrations).at - lost[0].at) * MILLISECONDS)
            gaps = [_first_after(end.at, history.lists).at - end.at for end in lost]
            without.append(sum(gaps) * MILLISECONDS)
    note = f"{times} hand-overs"
    return [
        Figure("hand-over, stream lost to Register: p50", statistics.median(registered), "ms", note=note),
        Figure("hand-over, stream lost to Register: max", max(registered), "ms", at_most=50, note=note),
        Figure("hand-over, without a stream: p50", statistics.median(without), "ms", note=note),
        Figure("hand-over, without a stream: max", max(without), "ms", note=note),
    ]


def _handed_over(bench: Bench, since: float, name: str) -> bool:
    """Whether the survivor, dropped with the other, is back and has taken over the socket's first name.

    Where it registered too early for that name, it does so once more.
    """
    history = bench.kubelet.resources[GPU]
    lost, last = _lost_streams(history, since), history.registrations[-1]
    return bool(lost) and last.endpoint == name and history.lists[-1].at > max(last.at, lost[-1].at)


def _lost_streams(history: ResourceHistory, since: float) -> list[RpcRecord]:
    """The ends of streams, after `since`, that left the kubelet without one: no list had come on a newer stream."""
    ends = [call for call in history.finished("ListAndWatch") if call.at >= since]
    return [end for end in ends if end.connection == max(one.connection for one in history.lists if one.at <= end.at)]


class _Dated(Protocol):
    @property
    def at(self) -> float: ...


def _first_after(moment: float, records: Iterable[_Dated]) -> _Dated:
    return next(record for record in records if record.at > moment)
