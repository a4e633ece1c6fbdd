"""What a reload and a change of instances cost: the resource that changes, and those that must not notice."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.bench import Bench
from benchmarks.figures import Figure, percentile
from benchmarks.nodes import FIVE_NAMES, GPU, Node, five_names, time_sliced
from deviceplugin.simulator.history import ResourceHistory
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
    gaps = []
    registered = []
    with Bench(Node(), time_sliced(2)) as bench:
        bench.start([GPU])
        for _ in range(times):
            ended = bench.hand_over([GPU])
            bench.wait_for(lambda since=ended: _settled(bench, since))  # type: ignore[misc]
            history = bench.kubelet.resources[GPU]
            lost = min(call.at for call in history.finished("ListAndWatch") if call.at >= ended)
            gaps.append((_first_after(lost, [one.at for one in history.lists]) - lost) * MILLISECONDS)
            registered.append((_first_after(lost, [one.at for one in history.registrations]) - lost) * MILLISECONDS)
    note = f"{times} hand-overs"
    return [
        Figure("hand-over, stream lost to registered: p50", statistics.median(registered), "ms", note=note),
        Figure("hand-over, stream lost to registered: max", max(registered), "ms", at_most=50, note=note),
        Figure("hand-over, stream lost to list: p50", statistics.median(gaps), "ms", note=note),
        Figure("hand-over, stream lost to list: max", max(gaps), "ms", note=note),
    ]


def _settled(bench: Bench, since: float) -> bool:
    """Whether a stream has ended since then, and a list has come after it."""
    history = bench.kubelet.resources[GPU]
    lost = [call.at for call in history.finished("ListAndWatch") if call.at >= since]
    return bool(lost) and history.lists[-1].at > lost[0]


def _first_after(moment: float, times: Sequence[float]) -> float:
    return min(at for at in times if at > moment)
