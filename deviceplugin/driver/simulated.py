"""A node that is not there: replays a node description."""

import time
from pathlib import Path

from deviceplugin.config.document import MAX_BYTES
from deviceplugin.driver.described_health import DescribedHealth
from deviceplugin.driver.description import NodeDescription, parse_description
from deviceplugin.driver.library import driver_error
from deviceplugin.driver.session import SLICE_S
from deviceplugin.errors import ConfigError, DriverError
from deviceplugin.model.health import Check, DriverEvent, Probe
from deviceplugin.model.node import Snapshot

# How often the file is looked at for new events.
LOOK_S = 0.02


class SimulatedDriver:
    """The driver of a described node. The file is read at each snapshot: an edit is a change of inventory.

    Args:
        path: of the node description.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen_file: tuple[int, int, int] | None = None
        self._seen_events = 0

    def snapshot(self) -> Snapshot:
        """The node as the file describes it now.

        Raises:
            DriverError: the file cannot be read, says something wrong, or says that the driver fails.
        """
        description = self._read()
        if description.failure is not None:
            raise driver_error(description.failure)
        return description.snapshot

    def probe(self, snapshot: Snapshot) -> Probe:
        """What the description says probes find; all is well where it says nothing."""
        try:
            health = self._read().health
        except DriverError:
            return Probe()
        checks = []
        for gpu in snapshot.gpus:
            if gpu.uuid is not None and gpu.failure is None:
                checks.append(health.checks.get(gpu.uuid, Check(gpu.uuid)))
                checks += [Check(one.uuid) for one in gpu.mig_instances if one.failure is None]
        return Probe(tuple(checks), health.driver_load)

    def wait_events(self) -> tuple[DriverEvent, ...]:
        """Events that the description has gained; one with fewer than before begins anew."""
        deadline = time.monotonic() + SLICE_S
        while time.monotonic() < deadline:
            if (found := self._changed_health()) is not None:
                if found.wait_failure is not None:
                    self._seen_file = None
                    raise driver_error(found.wait_failure)
                seen = self._seen_events if self._seen_events <= len(found.events) else 0
                self._seen_events = len(found.events)
                if found.events[seen:]:
                    return self._of_boards_with_events(found, seen)
            time.sleep(LOOK_S)
        return ()

    def fresh_start_helps(self) -> bool:
        """A described driver is what the file says, in whatever process."""
        return False

    def close(self) -> bool:
        """Nothing is held."""
        return True

    def nvidia_device_present(self) -> bool:
        """Whether the description has a GPU, whatever its driver does. Of a file that cannot be read: true, since
        that is no reason to take the node for one without GPUs.
        """
        try:
            return bool(self._read().snapshot.gpus)
        except DriverError:
            return True

    def _changed_health(self) -> DescribedHealth | None:
        """The health that the file describes, when it is another file than at the last look."""
        try:
            found = self._path.stat()
            signature = found.st_ino, found.st_size, found.st_mtime_ns
            if signature == self._seen_file:
                return None
            self._seen_file = signature
            return self._read().health
        except (OSError, DriverError):
            return None  # the next snapshot says what is wrong with it

    @staticmethod
    def _of_boards_with_events(health: DescribedHealth, seen: int) -> tuple[DriverEvent, ...]:
        mute = {uuid for uuid, check in health.checks.items() if not check.events}
        return tuple(event for event in health.events[seen:] if event.gpu_uuid not in mute)

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
