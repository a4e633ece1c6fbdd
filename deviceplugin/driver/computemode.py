"""Reads and sets the compute mode of GPUs; only the MPS supervisor does."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import pynvml

from deviceplugin.driver.calls import failure_of
from deviceplugin.driver.library import NvmlLibrary
from deviceplugin.errors import DriverError, UsageError
from deviceplugin.model.computemode import ComputeMode

_ADVICE = {
    pynvml.NVML_ERROR_NO_PERMISSION: (
        "the container needs root and the capability SYS_ADMIN to set compute modes; the chart gives both unless "
        "mps.securityContext in its values says otherwise"
    ),
    pynvml.NVML_ERROR_NOT_SUPPORTED: "this GPU's compute mode can't be changed: MIG is on, or the product has none",
}


class ComputeModes(Protocol):
    """The compute modes of a node's GPUs. Any call may hang as long as the driver does."""

    def get(self, gpu_uuid: str) -> ComputeMode:
        """A GPU's mode; raises DriverError."""

    def set(self, gpu_uuid: str, mode: ComputeMode) -> None:
        """Sets a GPU's mode, which stays until it is set again or the driver is reloaded; raises DriverError."""


class NvmlComputeModes:
    """By NVML, which is open for each call only.

    NVML counts who has opened it. Who kept it open here would keep the snapshots of the same process from ever opening
    it afresh: GPUs that come later would not be seen (deviceplugin.driver.session).

    Args:
        container_driver_root, root: as for NvmlDriver.
    """

    def __init__(self, container_driver_root: Path, root: Path) -> None:
        self._container_driver_root = container_driver_root
        self._root = root

    def get(self, gpu_uuid: str) -> ComputeMode:
        """See ComputeModes."""
        found = self._call(gpu_uuid, pynvml.nvmlDeviceGetComputeMode)
        try:
            return ComputeMode(found)
        except ValueError:
            raise DriverError(f"{gpu_uuid} has the unknown compute mode {found}") from None

    def set(self, gpu_uuid: str, mode: ComputeMode) -> None:
        """See ComputeModes."""
        self._call(gpu_uuid, pynvml.nvmlDeviceSetComputeMode, int(mode))

    def _call(self, gpu_uuid: str, function: Callable[..., Any], *arguments: object) -> Any:
        # One for each call, since keepers call in threads of their own.
        library = NvmlLibrary(self._container_driver_root, self._root)
        library.ensure_ready()
        try:
            return function(pynvml.nvmlDeviceGetHandleByUUID(gpu_uuid), *arguments)
        except pynvml.NVMLError as error:
            failure = failure_of(function.__name__, error)
            advice = _ADVICE.get(error.value)
            raise DriverError(f"{failure}" + (f": {advice}" if advice else ""), failure.code) from error
        finally:
            library.shut_down()


class SimulatedComputeModes:
    """Of a described node: one file a GPU in a folder beside the description, as a driver keeps them in the kernel."""

    def __init__(self, description: Path) -> None:
        self._folder = description.with_name(f"{description.name}.compute-modes")

    def get(self, gpu_uuid: str) -> ComputeMode:
        """See ComputeModes."""
        path = self._folder / gpu_uuid
        try:
            return ComputeMode(int(path.read_text()))
        except FileNotFoundError:
            return ComputeMode.DEFAULT
        except (OSError, ValueError) as error:
            raise DriverError(f"{path} can't be read: {error}") from error

    def set(self, gpu_uuid: str, mode: ComputeMode) -> None:
        """See ComputeModes."""
        path = self._folder / gpu_uuid
        try:
            path.parent.mkdir(exist_ok=True)
            path.with_suffix(".new").write_text(f"{int(mode)}\n")
            path.with_suffix(".new").replace(path)
        except OSError as error:
            raise DriverError(f"{path} can't be written: {error.strerror}") from error


def open_compute_modes(spec: str, *, container_driver_root: str, root: Path = Path("/")) -> ComputeModes:
    """The compute modes of the node that `--driver` names; as `open_driver`. Raises UsageError."""
    kind, colon, argument = spec.partition(":")
    if kind == "nvml" and (argument or not colon):
        return NvmlComputeModes(Path(container_driver_root), Path(argument) if argument else root)
    if kind == "simulated" and argument:
        return SimulatedComputeModes(Path(argument))
    raise UsageError(f"--driver {spec}: expected nvml, or simulated:FILE with a node description")
