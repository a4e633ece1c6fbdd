"""The two places where the kubelet tells what pods hold (contract section 4)."""

from deviceplugin.errors import KubeletError
from deviceplugin.kubelet.checkpoint import read_checkpoint
from deviceplugin.kubelet.paths import KubeletPaths
from deviceplugin.kubelet.podresources import PodResources
from deviceplugin.kubelet.unix import Identity, identity
from deviceplugin.model.held import Held


class HeldSources:
    """Both sources of one kubelet; safe from any thread."""

    def __init__(self, paths: KubeletPaths) -> None:
        self._checkpoint = paths.checkpoint
        self._socket = paths.pod_resources
        self._pod_resources = PodResources(self._socket)

    def kubelet(self) -> Identity | None:
        """The PodResources socket that is there. A kubelet replaces its predecessor's at its start (P1), seconds before
        it knows anything and takes registrations (S1, P5).
        """
        return identity(self._socket)

    def list_pods(self, timeout_s: float) -> Held:
        """What active pods hold, without plain init containers (P2), and too little after a kubelet start (P5).

        Raises KubeletError.
        """
        return self._pod_resources.list(timeout_s)

    def allocatable(self, timeout_s: float) -> Held:
        """The ids that the kubelet counts as healthy now, by resource (P4): the only echo of our lists (R15).

        Raises KubeletError.
        """
        return self._pod_resources.allocatable(timeout_s)

    def checkpoint(self) -> Held:
        """What the kubelet had written down last, ended pods included until it writes again (C3).

        Raises KubeletError, also when there is no file: that proves nothing about what is held (A31).
        """
        checkpoint = read_checkpoint(self._checkpoint)
        if checkpoint is None:
            raise KubeletError(f"{self._checkpoint}: the kubelet has written no checkpoint")
        return checkpoint.held
