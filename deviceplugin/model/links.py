"""How well GPUs are connected: what whole GPUs are chosen by. A plain value, so that equal nodes make equal plans."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class LinkScores:
    """The link score of each pair of GPUs (design 8).

    Attributes:
        uuids: of the GPUs, in the order of rows and columns.
        rows: symmetric; 0 for a pair of which nothing is known, less than for any known one, and on the diagonal.
    """

    uuids: tuple[str, ...] = ()
    rows: tuple[tuple[int, ...], ...] = ()

    def among(self, uuids: Sequence[str]) -> list[list[int]]:
        """Rows and columns of these GPUs, in this order; one that has no row here has only unknown pairs."""
        place = {uuid: number for number, uuid in enumerate(self.uuids)}
        columns = [place.get(uuid) for uuid in uuids]
        return [
            [0 if row is None or column is None else self.rows[row][column] for column in columns] for row in columns
        ]


NO_LINK_SCORES: Final = LinkScores()
