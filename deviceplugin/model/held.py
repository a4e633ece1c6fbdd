"""What pods hold, as far as anyone can know it (contract section 4)."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

KUBELET_SETTLING_S: Final = 60.0
"""After its start the kubelet's PodResources is empty, then grows pod by pod (contract P5): until this long after it,
an id that no read of the new kubelet has shown yet is not known to be free (P8)."""

NOTHING: Mapping[str, frozenset[str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Held:
    """Device ids that the kubelet has given to pods that have not ended.

    Attributes:
        ids: by resource name.
        unknown_because: empty when the answer can be trusted; else why neither PodResources nor the checkpoint
            could be read: a change that would withdraw anything then waits with this reason.
        ends_unseen_because: empty when PodResources answered; else why only the checkpoint tells, which keeps pods that
            have ended (C3): what is named here may be free for long.
        pods: device id -> `namespace/name` of the pod that holds it, where the source tells; for people only.
    """

    ids: Mapping[str, frozenset[str]] = field(default_factory=lambda: NOTHING)
    unknown_because: str = ""
    ends_unseen_because: str = ""
    pods: Mapping[str, str] = field(default_factory=dict, compare=False)

    def of(self, resource_name: str) -> frozenset[str]:
        """The held ids of one resource."""
        return self.ids.get(resource_name, frozenset())

    def with_handed_out(self, handed_out: "Held") -> "Held":
        """These and the ids that we handed out: more ids, but no more certainty about the rest."""
        names = {*self.ids, *handed_out.ids}
        return replace(self, ids={name: self.of(name) | handed_out.of(name) for name in names})
