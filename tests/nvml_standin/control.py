"""Changes what the stand-in does while the program under test runs."""

import os
import tempfile
from pathlib import Path

_EVENTS = ("xid ", "ecc-single ", "ecc-double ")


class Control:
    """The file that NVML_STANDIN_CONTROL names (format: the comment at the top of core.c).

    Every change is atomic: the stand-in sees the file before or after it, never between. One writer at a time.
    """

    def __init__(self, path: Path) -> None:
        """The file need not exist; without it there are no faults."""
        self.path = path

    def append(self, *lines: str) -> None:
        """Adds fault lines; later lines prevail over earlier ones."""
        self._write([*self.lines(), *lines])

    def remove(self, *lines: str) -> None:
        """Takes lines out again, word for word, e.g. to end a block. Events stay: they have happened."""
        self._write([line for line in self.lines() if line not in lines or line.startswith(_EVENTS)])

    def clear(self) -> None:
        """Ends every fault. Event lines stay, so that later ones are recognised as new."""
        self._write([line for line in self.lines() if line.startswith(_EVENTS)])

    def lines(self) -> list[str]:
        """What the file says now."""
        return self.path.read_text().splitlines() if self.path.exists() else []

    def _write(self, lines: list[str]) -> None:
        handle, scratch = tempfile.mkstemp(dir=self.path.parent, prefix=f".{self.path.name}-")
        with os.fdopen(handle, "w") as file:
            file.writelines(f"{line}\n" for line in lines)
        os.replace(scratch, self.path)
