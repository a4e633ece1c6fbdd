"""What a keeper is told, and what it needs of the driver."""

from dataclasses import dataclass
from typing import Protocol

from deviceplugin.model.computemode import ComputeMode
from deviceplugin.model.mps import MpsDaemon


class ComputeModes(Protocol):
    """Reads and sets compute modes (deviceplugin.driver.computemode); raises DriverError."""

    def get(self, gpu_uuid: str) -> ComputeMode:
        """A GPU's mode."""

    def set(self, gpu_uuid: str, mode: ComputeMode) -> None:
        """Sets it."""


@dataclass(frozen=True, slots=True)
class Order:
    """What the keeper of a GPU is to bring about.

    Attributes:
        wanted: the daemon that the plan needs; None: the GPU leaves MPS.
        held_by: why nothing may change that pods could notice: shares of the GPU are held, or may be; empty if none is.
    """

    wanted: MpsDaemon | None
    held_by: str

    @property
    def terms(self) -> str:
        """For messages: what shares give then."""
        return self.wanted.share.describe() if self.wanted else "no MPS"
