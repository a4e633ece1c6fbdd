"""What must hold at every moment of a run, judged by what the stand-in saw and never by what the daemon says."""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from deviceplugin.simulator import Kubelet, ListRecord
from deviceplugin.simulator.journal import RegistrationRecord
from tests.serving.harness import Node

Healthy = Mapping[str, frozenset[str]]


def unit_of(device_id: str) -> str:
    """The GPU or MIG instance behind a device."""
    return device_id.partition("::")[0]


def never_offered_twice(kubelet: Kubelet, names: Iterable[str], gpu_of: Mapping[str, str]) -> None:
    """No GPU or MIG instance was Healthy under two resources, nor a GPU beside an instance on it (reports D7, L21).

    Args:
        names: every resource that a list came for.
        gpu_of: MIG instance -> the GPU it is on.
    """
    steps: list[ListRecord | RegistrationRecord] = [one for name in names for one in kubelet.resources[name].lists]
    steps += [one for one in kubelet.registrations if one.error is None]
    healthy: dict[str, frozenset[str]] = {}
    for record in sorted(steps, key=lambda step: step.at):
        if isinstance(record, RegistrationRecord):
            # Whoever registers has lost its stream before: what was listed does not count till the next list (L7).
            healthy.pop(record.resource, None)
            continue
        healthy[record.resource] = record.healthy
        doubles = _doubles(healthy, gpu_of)
        assert not doubles, f"at {record.at:.3f}: {doubles}"


def _doubles(healthy: Healthy, gpu_of: Mapping[str, str]) -> list[str]:
    on_unit: defaultdict[str, set[str]] = defaultdict(set)
    for name, ids in healthy.items():
        for unit in {unit_of(one) for one in ids}:
            on_unit[unit].add(name)
    found = [f"{unit} under {sorted(names)}" for unit, names in on_unit.items() if len(names) > 1]
    return found + [f"{unit} and its GPU {gpu_of[unit]}" for unit in on_unit if gpu_of.get(unit) in on_unit]


def never_dips(node: Node, resource: str, amount: tuple[int, int]) -> None:
    """Node status never showed other numbers for the resource, once it had shown these."""
    seen = [status.resources.get(resource) for status in node.kubelet.status_history]
    assert amount in seen, f"{resource} was never {amount}: {seen}"
    after = seen[seen.index(amount) :]
    assert set(after) == {amount}, f"{resource}: {after}"
