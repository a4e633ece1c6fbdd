"""A node that is not there: replays a node description."""

from pathlib import Path

from deviceplugin.config.document import MAX_BYTES
from deviceplugin.driver.description import NodeDescription, parse_description
from deviceplugin.driver.library import driver_error
from deviceplugin.errors import ConfigError, DriverError
from deviceplugin.model.node import Snapshot


class SimulatedDriver:
    """The driver of a described node. The file is read at each snapshot: an edit is a change of inventory.

    Args:
        path: of the node description.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def snapshot(self) -> Snapshot:
        """The node as the file describes it now.

        Raises:
            DriverError: the file cannot be read, says something wrong, or says that the driver fails.
        """
        description = self._read()
        if description.failure is not None:
            raise driver_error(description.failure)
        return description.snapshot

    def close(self) -> None:
        """Nothing is held."""

    def nvidia_device_present(self) -> bool:
        """Whether the description has a GPU, whatever its driver does. Of a file that cannot be read: true, since
        that is no reason to take the node for one without GPUs.
        """
        try:
            return bool(self._read().snapshot.gpus)
        except DriverError:
            return True

    def _read(self) -> NodeDescription:
        try:
            with self._path.open("rb") as file:
                data = file.read(MAX_BYTES + 1)
            return parse_description(data, str(self._path))
        except OSError as error:
            found = f"the node description {self._path} cannot be read: {error.strerror}"
            raise DriverError(f"{found}; expected a file as in config/nodes/") from error
        except ConfigError as error:
            raise DriverError(f"the node description is refused:\n{error}") from error
