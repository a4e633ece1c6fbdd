"""Finding, opening and initialising libnvidia-ml, and saying what to do when that does not work."""

import ctypes
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pynvml

from deviceplugin.driver.calls import failure_of
from deviceplugin.driver.driverfiles import LIBRARY_DIRECTORIES
from deviceplugin.driver.sysfs import nvidia_devices
from deviceplugin.errors import DriverError
from deviceplugin.model.node import Failure

LIBRARY_NAME = "libnvidia-ml.so.1"

SEARCHED = (
    *LIBRARY_DIRECTORIES,
    "home/kubernetes/bin/nvidia/lib64",  # GKE, on the host
    "run/nvidia/driver/usr/lib64",  # the GPU operator's driver container, seen from the host
    "run/nvidia/driver/usr/lib/x86_64-linux-gnu",
    "run/nvidia/driver/usr/lib/aarch64-linux-gnu",
)
"""Where distributions keep the library, below a driver root."""

WHAT_TO_DO: dict[int | None, str] = {
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: (
        "the kernel module nvidia is not loaded: install or load the driver on the host"
    ),
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: (
        "the library and the loaded kernel module are of different driver versions: the driver was upgraded. A process "
        "keeps the library it has opened, so it has to be started afresh; the plugin does that by itself once a new "
        "process could open the driver. If that does not come, reload the module on the host (or reboot it), or mount "
        "the matching driver root"
    ),
    pynvml.NVML_ERROR_NO_PERMISSION: (
        "this process may not talk to the driver: the container needs /dev/nvidiactl and /dev/nvidia<N>, from NVIDIA's "
        "runtime (runtimeClassName: nvidia) or by CDI"
    ),
    pynvml.NVML_ERROR_UNKNOWN: (
        "often /dev/nvidiactl is missing in the container or its cgroup denies it (after `systemctl daemon-reload` on "
        "the host): restart the pod; the kernel log tells more"
    ),
    pynvml.NVML_ERROR_GPU_IS_LOST: "a GPU has fallen off the bus and the driver refuses to start: reset it or reboot",
}


def driver_error(failure: Failure) -> DriverError:
    """The error of a call that concerns the driver as a whole, with the advice there is for its code."""
    advice = WHAT_TO_DO.get(failure.code)
    return DriverError(f"{failure}" + (f": {advice}" if advice else ""), failure.code)


class NvmlLibrary:
    """The process's one libnvidia-ml: opened and initialised when first needed, until it succeeds.

    pynvml opens the library by name only and keeps it in a module global for good; another file is used by putting it
    there. So every instance shares one library, and NVML itself counts who initialised it.

    Args:
        container_driver_root: where the host's driver root is mounted; searched before the loader's own path, as
            NVIDIA's plugin does.
        root: what /sys, /proc and the usual library directories lie under, `/` but in tests.
        name: of the library; tests name one that no machine has.
    """

    def __init__(self, container_driver_root: Path, root: Path, name: str = LIBRARY_NAME) -> None:
        self._driver_root = container_driver_root
        self._root = root
        self._name = name
        self._initialised = False
        self._state = threading.Lock()  # never held during a call

    def ensure_ready(self) -> None:
        """Open and initialise NVML unless that has been done.

        Raises:
            DriverError: no library, or nvmlInit failed. The next call tries again.
        """
        if self._initialised:
            return
        self._open()
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            raise driver_error(failure_of("nvmlInit", error)) from error
        self._initialised = True

    def shut_down(self) -> None:
        """Give NVML back, so that ensure_ready initialises it afresh. Never raises."""
        with self._state:
            initialised, self._initialised = self._initialised, False
        if not initialised:
            return
        try:
            pynvml.nvmlShutdown()
        except pynvml.NVMLError:
            return  # it is what we wanted: somebody shut it already, or there is no driver left to tell

    def _open(self) -> None:
        if pynvml.nvmlLib is not None:
            return
        refused = []
        for candidate in self._candidates():
            try:
                pynvml.nvmlLib = ctypes.CDLL(str(candidate))
            except OSError as error:
                refused.append(str(error))
            else:
                return
        raise DriverError(self._not_found(refused))

    def _candidates(self) -> Iterator[Path | str]:
        yield from self._present(self._driver_root)
        yield self._name
        yield from self._present(self._root)

    def _present(self, root: Path) -> Iterator[Path]:
        for directory in SEARCHED:
            candidate = root / directory / self._name
            if os.path.exists(candidate):
                yield candidate

    def _not_found(self, refused: list[str]) -> str:
        directories = ", ".join(SEARCHED)
        driver_root = f"{self._driver_root}" + ("" if os.path.isdir(self._driver_root) else " (no such directory)")
        return (
            f"{self._name} of the NVIDIA driver cannot be opened. Tried the loader's path, and below {driver_root} "
            f"and {self._root}: {directories}. Refused: {'; '.join(refused)}. {self._likely_cause()}"
        )

    def _likely_cause(self) -> str:
        if os.path.exists(self._root / "proc/driver/nvidia/version"):
            return (
                f"The driver is loaded on the host, but its libraries are not in this container: mount the host's "
                f"driver root at {self._driver_root}, or run the pod under NVIDIA's runtime (runtimeClassName: nvidia)"
            )
        if nvidia_devices(self._root):
            return (
                "There is an NVIDIA device on the PCI bus but no driver loaded on the host: install it. If it runs in "
                f"a container, mount its root at {self._driver_root}"
            )
        return "There is no NVIDIA device on the PCI bus either: this node seems to have no GPU"
