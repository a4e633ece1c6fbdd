"""Compiles the stand-in."""

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pynvml

_SOURCES = Path(__file__).parent
_COMMAND = ("cc", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-fvisibility=hidden", "-pthread")
_NAME = "libnvidia-ml.so.1"


def _digest() -> str:
    digest = hashlib.sha256(" ".join(_COMMAND).encode())
    for source in sorted(path for path in _SOURCES.iterdir() if path.suffix in {".c", ".h", ".def"}):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    return digest.hexdigest()[:16]


def build(directory: Path) -> Path:
    """Compiles the stand-in to `directory/libnvidia-ml.so.1`, unless what is there comes from the same sources.

    Safe when several processes build into one directory at once: each compiles under a name of its own and
    puts the result in place by renaming. Load it with `LD_LIBRARY_PATH=directory`, or `pynvml.nvmlLib = CDLL(path)`.

    Raises:
        RuntimeError: the compiler refused; with its words.
    """
    directory.mkdir(parents=True, exist_ok=True)
    library, stamp = directory / _NAME, directory / f".{_NAME}-{_digest()}"
    if library.exists() and stamp.exists() and library.samefile(stamp):
        return library
    if not stamp.exists():
        with tempfile.TemporaryDirectory(dir=directory, prefix=".build-") as scratch:
            result = Path(scratch, _NAME)
            sources = sorted(str(path) for path in _SOURCES.glob("*.c"))
            done = subprocess.run([*_COMMAND, "-o", str(result), *sources], capture_output=True, text=True, check=False)
            if done.returncode:
                raise RuntimeError(f"the stand-in does not compile:\n{done.stderr}")
            result.replace(stamp)
    # The stamped file never changes; the library is a second name for it, swapped in whole.
    with tempfile.TemporaryDirectory(dir=directory, prefix=".link-") as scratch:
        name = Path(scratch, _NAME)
        os.link(stamp, name)
        name.replace(library)
    return library


def load(library: Path) -> ctypes.CDLL:
    """Opens a built stand-in; assign the result to `pynvml.nvmlLib` before `pynvml.nvmlInit()`."""
    return ctypes.CDLL(str(library))


@contextmanager
def bound_pynvml(library: Path, directory: Path) -> Iterator[None]:
    """Inside, pynvml calls a stand-in of its own in this process; afterwards what it called before.

    The library keeps its state for as long as the process lives, so each use opens a copy, put in `directory`,
    which must not serve twice. Threads that are still in a call must have returned before the end.
    """
    saved = {name: getattr(pynvml, name) for name in ("nvmlLib", "_nvmlLib_refcount", "_nvmlGetFunctionPointer_cache")}
    fresh = {"nvmlLib": load(Path(shutil.copy(library, directory))), "_nvmlLib_refcount": 0}
    for name, value in {**fresh, "_nvmlGetFunctionPointer_cache": {}}.items():
        setattr(pynvml, name, value)
    try:
        yield
    finally:
        for name, value in saved.items():
            setattr(pynvml, name, value)
