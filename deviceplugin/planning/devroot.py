"""Where on the host the device files lie, and which of them exist there, as far as this container can tell."""

from dataclasses import dataclass

from deviceplugin.config.model import Flags
from deviceplugin.model.node import Snapshot


@dataclass(frozen=True, slots=True)
class HostDevices:
    """The host's device files.

    Attributes:
        root: the directory on the host whose `dev` has them, without a slash at its end.
        names: those that exist, below that `dev`.
        unseen: why it can't be told whether they exist on the host at all, with what to set; empty when it can.
    """

    root: str
    names: frozenset[str]
    unseen: str = ""

    def path(self, name: str) -> str:
        """A device file as the host names it."""
        return f"{self.root}/dev/{name}"


def host_devices(snapshot: Snapshot, flags: Flags) -> HostDevices:
    """The host's device files by the roots that a config names.

    Two places here show some of the host's: the mounted driver root, and our own /dev, which the runtime has filled
    from the host's /dev or from the driver root's. Where the driver root is seen and has none, ours come from the
    host's /dev, so that is what containers get even if no dev root is set (GKE's layout, in which NVIDIA's plugin
    names files that do not exist).
    """
    own, mounted = snapshot.device_files, snapshot.driver_root_device_files
    driver_root = flags.nvidia_driver_root.rstrip("/")
    dev_root = driver_root if flags.nvidia_dev_root is None else flags.nvidia_dev_root.rstrip("/")
    if dev_root == driver_root and mounted is not None:
        return HostDevices(driver_root, mounted)
    if not dev_root:
        return HostDevices("", own)
    if dev_root != driver_root:
        why = f"of nvidiaDevRoot, {dev_root}, nothing is seen in this container: set it to / or to the driver root"
    elif any(one.is_library for one in snapshot.driver_files):
        return HostDevices("", own)
    else:
        why = (
            f"of nvidiaDriverRoot, {dev_root}, nothing is seen below {flags.container_driver_root} in this container: "
            f"mount it there, or set nvidiaDevRoot to / if the host's own /dev has the files"
        )
    return HostDevices(dev_root, own, f"whether its device files exist on the host cannot be told: {why}")
