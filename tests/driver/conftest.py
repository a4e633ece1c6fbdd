"""The real binding on the stand-in library, in this process."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from deviceplugin.driver.nvml import NvmlDriver
from tests.driver.bench import Bench
from tests.nvml_standin import DRIVER_ROOT, Control, bound_pynvml, build


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled stand-in."""
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def bench(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """A stand-in of its own under pynvml, with nothing on the node yet, and the driver under test."""
    node_file, root = tmp_path / "node.txt", tmp_path / "root"
    monkeypatch.setenv("NVML_STANDIN_NODE", str(node_file))
    monkeypatch.setenv("NVML_STANDIN_CONTROL", str(tmp_path / "faults"))
    driver = NvmlDriver(root / DRIVER_ROOT, root)
    with bound_pynvml(library, tmp_path):
        yield Bench(driver, node_file, root, Control(tmp_path / "faults"))
        driver.close()
