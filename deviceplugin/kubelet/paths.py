"""Where the kubelet's sockets and files are (contract R1, C1, P1; design 8, kubelet paths)."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

DEFAULT_KUBELET_SOCKET: Final = Path("/var/lib/kubelet/device-plugins/kubelet.sock")
DEFAULT_KUBELET_ROOT: Final = Path("/var/lib/kubelet")
CHECKPOINT_NAME: Final = "kubelet_internal_checkpoint"


@dataclass(frozen=True, slots=True)
class KubeletPaths:
    """The kubelet's paths from the two settings that move them.

    Attributes:
        kubelet_socket: `--kubelet-socket`; its directory is where plugins put their sockets. The kubelet's own
            constant: `--root-dir` does not move it (R1).
        root: `--kubelet-root-dir`; moves PodResources only.
    """

    kubelet_socket: Path = DEFAULT_KUBELET_SOCKET
    root: Path = DEFAULT_KUBELET_ROOT

    @property
    def device_plugins(self) -> Path:
        """The directory of plugin sockets."""
        return self.kubelet_socket.parent

    @property
    def checkpoint(self) -> Path:
        """The device manager's checkpoint."""
        return self.device_plugins / CHECKPOINT_NAME

    @property
    def pod_resources(self) -> Path:
        """The PodResources socket."""
        return self.root / "pod-resources" / "kubelet.sock"
