"""What the node has. The only code that knows pynvml, /sys and /proc/driver; a description can stand in for a node."""

from pathlib import Path
from typing import Protocol

from deviceplugin.errors import UsageError
from deviceplugin.model.health import DriverEvent, Probe
from deviceplugin.model.node import Snapshot

SPECS = "expected nvml, or simulated:FILE with a node description as in config/nodes/"


class Driver(Protocol):
    """A node, real or simulated.

    Any method but `close` and `nvidia_device_present` can hang for as long as the driver does, without keeping those
    two from answering: call them from a thread that nothing waits for (design 8, Who may block).
    """

    def snapshot(self) -> Snapshot:
        """What the driver says exists now. One at a time.

        Raises:
            DriverError: the driver as a whole does not answer; the next call tries afresh.
        """

    def probe(self, snapshot: Snapshot) -> Probe:
        """Look closely at each GPU and MIG instance of the newest snapshot. Never raises, but as `snapshot` does when
        another call has not come back.
        """

    def wait_events(self) -> tuple[DriverEvent, ...] | None:
        """What the driver reported since the last call; waits about half a second for something. One thread calls it.

        Returns:
            In order. None when the driver is not open: no snapshot has opened it yet, or it is closed.

        Raises:
            DriverError: events can't be waited for now. Pause before the next call.
        """

    def fresh_start_helps(self) -> bool:
        """Whether a new process can open a driver that this one can't, as it was upgraded. Takes up to a minute."""

    def close(self) -> bool:
        """Let go of the driver; a later snapshot takes hold of it again. Never raises, hangs at most for seconds.

        False: a call that hangs in the driver keeps hold of it.
        """

    def nvidia_device_present(self) -> bool:
        """Whether the node has an NVIDIA GPU, known without the driver: a node without GPUs, or a dead driver?"""


def open_driver(spec: str, *, container_driver_root: str, root: Path = Path("/")) -> Driver:
    """The driver that `--driver` names. Nothing is opened before the first snapshot.

    Args:
        spec: `nvml`; `simulated:FILE`; `nvml:ROOT` looks for /sys, /proc and /dev below ROOT (tests).
        container_driver_root: where the host's driver root is mounted; searched for the driver's files.
        root: as ROOT.

    Raises:
        UsageError: it names none.
    """
    # Only the one that is used is imported: the other's modules would cost each node a mebibyte or two.
    kind, colon, argument = spec.partition(":")
    if kind == "nvml" and (argument or not colon):
        from deviceplugin.driver.nvml import NvmlDriver  # noqa: PLC0415

        return NvmlDriver(Path(container_driver_root), Path(argument) if argument else root)
    if kind == "simulated" and argument:
        from deviceplugin.driver.simulated import SimulatedDriver  # noqa: PLC0415

        return SimulatedDriver(Path(argument))
    raise UsageError(f"--driver {spec}: {SPECS}")
