"""One node, two drivers, one snapshot: the real binding on the stand-in library, and the simulated driver."""

import json
from pathlib import Path
from typing import Any

import pytest

from deviceplugin.config.document import dump_document
from deviceplugin.driver import Driver
from deviceplugin.driver.capture import description_text
from deviceplugin.driver.simulated import SimulatedDriver
from deviceplugin.errors import DriverError
from deviceplugin.model.node import Snapshot
from tests.driver.bench import Bench
from tests.driver.convert import node_text_to_description
from tests.nvml_standin import FILE_OPTIONS

GOLDEN = sorted(path.parent for path in (Path(__file__).parents[1] / "golden").glob("*/node.txt"))

FAULTS_AT_THE_START = {"013-gpu-lost-at-start"}


def answer(driver: Driver) -> Snapshot | tuple[str, int | None]:
    """The snapshot, or the error."""
    try:
        return driver.snapshot()
    except DriverError as error:
        return str(error), error.code


@pytest.mark.parametrize("case", GOLDEN, ids=lambda case: case.name)
def test_recorded_nodes(bench: Bench, tmp_path: Path, case: Path) -> None:
    text = (case / "node.txt").read_text()
    command: dict[str, Any] = json.loads((case / "cmd.json").read_text())
    sandbox, faults = command.get("sandbox", {}), command.get("inject_before", [])
    assert bool(faults) == (case.name in FAULTS_AT_THE_START)
    bench.put(text, *faults, **{key: value for key, value in sandbox.items() if key in FILE_OPTIONS})
    described = tmp_path / "node.yaml"
    described.write_text(dump_document(node_text_to_description(text, sandbox, faults=faults)))
    simulated = SimulatedDriver(described)

    real = answer(bench.driver)
    assert answer(simulated) == real
    assert simulated.nvidia_device_present() == bench.driver.nvidia_device_present()
    if isinstance(real, Snapshot):
        captured = tmp_path / "captured.yaml"
        captured.write_text(description_text(real))
        assert SimulatedDriver(captured).snapshot() == real
