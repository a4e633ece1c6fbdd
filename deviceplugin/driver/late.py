"""When to open NVML anew for a GPU that is on the PCI bus but not listed: the driver takes a while to take one on."""

from dataclasses import dataclass
from typing import Final

# Opening NVML costs up to seconds, and what is missing may never come (a GPU that the driver refuses).
MOST_SNAPSHOTS_APART: Final = 64


@dataclass(slots=True)
class LateGpus:
    """Counts snapshots: NVML is opened anew after 1, 2, 4, ... of them, in the end after every 64th.

    Attributes:
        lacking: whether the last snapshot lacked a GPU; set by whoever takes it.
    """

    lacking: bool = False
    _pause: int = 1
    _waited: int = 0

    def open_anew(self) -> bool:
        """Whether the snapshot that begins now is to open NVML anew. Call it once for each."""
        if not self.lacking:
            self._pause, self._waited = 1, 0
            return False
        self._waited += 1
        if self._waited < self._pause:
            return False
        self._pause, self._waited = min(self._pause * 2, MOST_SNAPSHOTS_APART), 0
        return True
