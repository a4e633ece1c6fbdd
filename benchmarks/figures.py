"""What a measurement gives, and how it is shown."""

import json
import os
import platform
import statistics
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured number.

    Attributes:
        name: what was measured.
        value: in `unit`.
        at_most: the aim; None where there is none.
        note: how many samples, of what.
    """

    name: str
    value: float
    unit: str
    at_most: float | None = None
    note: str = ""

    @property
    def verdict(self) -> str:
        """Whether the aim is met; empty without one."""
        if self.at_most is None:
            return ""
        return "ok" if self.value <= self.at_most else "MISSED"


def percentile(samples: Sequence[float], percent: int) -> float:
    """The value that `percent` of the samples do not exceed, interpolated; at least two samples."""
    return statistics.quantiles(samples, n=100, method="inclusive")[percent - 1]


def table(figures: Iterable[Figure]) -> str:
    """The figures as columns of text."""
    rows = [("figure", "value", "", "aim", "", "note")]
    for figure in figures:
        aim = "" if figure.at_most is None else f"<= {figure.at_most:g}"
        rows.append((figure.name, f"{figure.value:.3f}", figure.unit, aim, figure.verdict, figure.note))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    numeric = {1, 3}
    return "\n".join(
        "  ".join(
            cell.rjust(width) if column in numeric else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def write_json(figures: Iterable[Figure], path: Path, *, quick: bool) -> None:
    """Write the figures and what they were measured on; folders are made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {
        "version": 1,
        "finished_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "quick": quick,
        "python": platform.python_version(),
        "machine": {"processor": platform.machine(), "cpus": os.cpu_count(), "load": os.getloadavg()[0]},
        "figures": [asdict(figure) | {"verdict": figure.verdict} for figure in figures],
    }
    path.write_text(json.dumps(document, indent=2) + "\n")
