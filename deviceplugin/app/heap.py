"""Keeps the process small: it runs on every GPU node, beside pods that pay for its memory (design 6)."""

import contextlib
import ctypes
import gc
from typing import Final

M_ARENA_MAX: Final = -8  # of glibc's malloc.h
ARENAS: Final = 2


def begin() -> None:
    """Call before threads start. glibc gives each thread an arena of its own, eight a core: two are enough for us."""
    with contextlib.suppress(OSError, AttributeError):  # another C library: nothing to tune
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, ARENAS)


def settle() -> None:
    """Call when everything is imported, wired and served.

    What exists now lasts as long as the process: no collection need look at it again. What the start used up in passing
    goes back to the system.
    """
    gc.collect()
    gc.freeze()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
