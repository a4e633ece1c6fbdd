"""Writing the node that a driver shows as a node description."""

from deviceplugin.config.document import dump_document
from deviceplugin.driver import Driver
from deviceplugin.driver.description import snapshot_to_description
from deviceplugin.model.node import Snapshot


def capture(driver: Driver) -> str:
    """The node that a driver shows now, as the YAML text of a node description.

    Raises:
        DriverError: the driver does not answer.
    """
    return description_text(driver.snapshot())


def description_text(snapshot: Snapshot) -> str:
    """The YAML text of a node description from which the simulated driver gives an equal snapshot."""
    products = sorted({gpu.product_name or "unknown product" for gpu in snapshot.gpus})
    heading = f"# {len(snapshot.gpus)} GPUs ({', '.join(products)}), captured from driver {snapshot.driver_version}.\n"
    return heading + dump_document(snapshot_to_description(snapshot))
