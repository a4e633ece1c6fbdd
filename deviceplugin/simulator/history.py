"""The records of one resource, picked from the journal."""

from __future__ import annotations

from dataclasses import dataclass

from deviceplugin.simulator.journal import Journal, ListRecord, RegistrationRecord, RpcRecord


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
