"""Compiles the stand-in."""

import ctypes
import fcntl
import hashlib
import shutil
import subprocess
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
    return digest.hexdigest()


def build(directory: Path) -> Path:
    """Compiles the stand-in to `directory/libnvidia-ml.so.1`, unless what is there comes from the same sources.

    Safe when several processes build into one directory at once: one compiles, the others wait for it. The
    library is put in place by renaming, so that a program that has the old one open keeps it.

    Raises:
        RuntimeError: the compiler refused; with its words.
    """
    directory.mkdir(parents=True, exist_ok=True)
    library, stamp = directory / _NAME, directory / f".{_NAME}.sources"
    with (directory / f".{_NAME}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        digest = _digest()
        if not (library.exists() and stamp.exists() and stamp.read_text() == digest):
            scratch = directory / f".{_NAME}.new"
            sources = sorted(str(path) for path in _SOURCES.glob("*.c"))
            done = subprocess.run(
                [*_COMMAND, "-o", str(scratch), *sources], capture_output=True, text=True, check=False
            )
            if done.returncode:
                raise RuntimeError(f"the stand-in does not compile:\n{done.stderr}")
            stamp.unlink(missing_ok=True)
            scratch.replace(library)
            stamp.write_text(digest)
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
