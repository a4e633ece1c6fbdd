"""The part of a `Kubelet` that reads what happened, and waits for it to happen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from deviceplugin.simulator.journal import (
    Fault,
    Journal,
    ListRecord,
    PodEvent,
    RegistrationRecord,
    RpcRecord,
    StatusSnapshot,
)


@dataclass(frozen=True, slots=True)
class ResourceHistory:
    """Everything that happened to one resource name so far, oldest first, over all kubelet processes."""

    name: str
    registrations: tuple[RegistrationRecord, ...]
    lists: tuple[ListRecord, ...]
    rpcs: tuple[RpcRecord, ...]

    def calls(self, method: str) -> tuple[RpcRecord, ...]:
        """The calls of `method` that were begun."""
        return tuple(r for r in self.rpcs if r.method == method and r.phase == "begin")

    def finished(self, method: str) -> tuple[RpcRecord, ...]:
        """The calls of `method` that ended, with their error."""
        return tuple(r for r in self.rpcs if r.method == method and r.phase == "end")


class Resources:
    """`resources[name]` is the history of that resource, an empty one for a name that nobody has used."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def __getitem__(self, name: str) -> ResourceHistory:
        with self._journal.changed:
            return ResourceHistory(
                name,
                tuple(r for r in self._journal.registrations if r.resource == name),
                tuple(r for r in self._journal.lists if r.resource == name),
                tuple(r for r in self._journal.rpcs if r.resource == name),
            )


class Readings:
    """Reads a journal; `resources[name]` gives the history of one resource."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.resources = Resources(journal)

    @property
    def status_history(self) -> tuple[StatusSnapshot, ...]:
        """Every node status that was PATCHed, oldest first."""
        with self._journal.changed:
            return tuple(self._journal.statuses)

    @property
    def registrations(self) -> tuple[RegistrationRecord, ...]:
        """Every Register that was answered, refusals included, for any name."""
        with self._journal.changed:
            return tuple(self._journal.registrations)

    @property
    def rpcs(self) -> tuple[RpcRecord, ...]:
        """Begin and end of every call to a plugin, over all resources, in order."""
        with self._journal.changed:
            return tuple(self._journal.rpcs)

    @property
    def events(self) -> tuple[PodEvent, ...]:
        """Warning events on pods (A20, A23)."""
        with self._journal.changed:
            return tuple(self._journal.events)

    @property
    def faults(self) -> tuple[Fault, ...]:
        """What plugins did against the contract (F18)."""
        with self._journal.changed:
            return tuple(self._journal.faults)

    @property
    def health_refreshes(self) -> tuple[str, ...]:
        """Uids of pods whose status a health change refreshed; found by id alone, so maybe the wrong one (H4, H5)."""
        with self._journal.changed:
            return tuple(self._journal.health_refreshes)

    @property
    def checkpoint_writes(self) -> int:
        """How often the checkpoint was written (L13, C3)."""
        return self._journal.checkpoint_writes

    def wait_for(self, predicate: Callable[[], object], timeout: float = 10.0) -> None:
        """Wait until `predicate` is true, looking again at every change on the node; `timeout` in REAL seconds.

        The predicate runs under the node's lock: it may read this object, and must not wait for another thread.
        Raises TimeoutError, or the panic that happened meanwhile.
        """
        changed = self._journal.changed

        def over() -> bool:
            return self._journal.panic is not None or bool(predicate())

        with changed:
            in_time = changed.wait_for(over, timeout)
        self._journal.check()
        if not in_time:
            raise TimeoutError(f"not within {timeout} s: {predicate}")
