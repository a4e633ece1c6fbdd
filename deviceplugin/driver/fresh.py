"""Whether a new process could open NVML: a process keeps the library that it has opened, even one out of date."""

import sys
from pathlib import Path

from deviceplugin.driver.library import NvmlLibrary
from deviceplugin.errors import DriverError

PATIENCE_S = 60.0


def opens_in_a_new_process(container_driver_root: Path, root: Path) -> bool:
    """Try it; an answer that does not come within PATIENCE_S is none."""
    import subprocess  # noqa: PLC0415 - wanted once in the life of a driver, if ever

    command = [sys.executable, "-m", "deviceplugin.driver.fresh", str(container_driver_root), str(root)]
    try:
        tried = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE_S, check=False)
    except (OSError, subprocess.SubprocessError):
        return False
    return tried.returncode == 0


def main(arguments: list[str]) -> int:
    """The new process: open NVML and end with 0, or with 1 when that fails."""
    container_driver_root, root = arguments
    try:
        NvmlLibrary(Path(container_driver_root), Path(root)).ensure_ready()
    except DriverError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
