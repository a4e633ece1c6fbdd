"""The device check itself, pointed at the stand-in library instead of a GPU."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from deviceplugin.driver.simulated import SimulatedDriver
from tests.nvml_standin import build

GOLDEN = Path(__file__).parents[1] / "golden"


def run_check(out: Path, *flags: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """`make test-device`, in effect."""
    return subprocess.run(
        [sys.executable, "-m", "tests.device", "--out", str(out), *flags],
        env={**os.environ, **environment},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.mark.parametrize("case", ["003-hgx-h100", "047-mig-mixed", "015-two-models"])
def test_it_passes_on_a_node_with_gpus(tmp_path: Path, case: str) -> None:
    library = build(tmp_path / "library")
    done = run_check(
        tmp_path / "out", LD_LIBRARY_PATH=str(library.parent), NVML_STANDIN_NODE=str(GOLDEN / case / "node.txt")
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((tmp_path / "out/report.json").read_text())
    snapshot = SimulatedDriver(tmp_path / "out/node.yaml").snapshot()
    assert report["products"] == [gpu.product_name for gpu in snapshot.gpus]
    assert report["served"]["resident_mib"] > 0


def test_it_fails_where_a_gpu_is_lost(tmp_path: Path) -> None:
    library = build(tmp_path / "library")
    faults = tmp_path / "faults"
    faults.write_text("lost 1\n")
    done = run_check(
        tmp_path / "out",
        LD_LIBRARY_PATH=str(library.parent),
        NVML_STANDIN_NODE=str(GOLDEN / "002-four-t4-two-numa/node.txt"),
        NVML_STANDIN_CONTROL=str(faults),
    )
    assert done.returncode == 1
    assert "GPU 1 fails: nvmlDeviceGetHandleByIndex: GPU is lost" in done.stderr


def test_without_a_gpu_it_says_so_and_fails(tmp_path: Path) -> None:
    """The library here is no library, so that the answer is the same on a machine that has one."""
    library = tmp_path / "library/libnvidia-ml.so.1"
    library.parent.mkdir()
    library.write_text("")
    done = run_check(
        tmp_path / "out",
        f"--driver=nvml:{tmp_path}",
        f"--container-driver-root={tmp_path}",
        LD_LIBRARY_PATH=str(library.parent),
    )
    assert done.returncode == 1
    assert "FAILED: no NVIDIA GPU to check: libnvidia-ml.so.1 of the NVIDIA driver cannot be opened" in done.stderr
