"""Compute modes of both drivers outlive the process that sets them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from deviceplugin.driver.computemode import SimulatedComputeModes, open_compute_modes
from deviceplugin.errors import DriverError, UsageError
from deviceplugin.model.computemode import ComputeMode
from tests.serving.harness import TWO_T4, gpu_uuid, library_dir

PROGRAM = """
import sys
from deviceplugin.driver.computemode import open_compute_modes
from deviceplugin.errors import DriverError
from deviceplugin.model.computemode import ComputeMode
modes = open_compute_modes(sys.argv[1], container_driver_root="/driver-root")
try:
    for words in sys.argv[2:]:
        uuid, _, mode = words.partition("=")
        if mode:
            modes.set(uuid, ComputeMode[mode])
        print(modes.get(uuid).name)
except DriverError as error:
    print(error)
"""


def run(tmp_path: Path, driver: str, *words: str) -> list[str]:
    """What a process of its own finds and sets."""
    node = tmp_path / "node.txt"
    node.write_text(TWO_T4)
    spec = f"simulated:{tmp_path}/node.yaml" if driver == "simulated" else f"nvml:{tmp_path}"
    environ = {
        "PATH": os.environ["PATH"],
        "LD_LIBRARY_PATH": str(library_dir()),
        "NVML_STANDIN_NODE": str(node),
        "NVML_STANDIN_CONTROL": str(tmp_path / "faults"),
        "NVML_STANDIN_STATE": str(tmp_path / "state"),
    }
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, spec, *words], env=environ, capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()


@pytest.mark.parametrize("driver", ["simulated", "nvml"])
def test_a_mode_stays_when_the_process_that_set_it_has_gone(tmp_path: Path, driver: str) -> None:
    first, second = gpu_uuid(0), gpu_uuid(1)
    assert run(tmp_path, driver, first, f"{second}=EXCLUSIVE_PROCESS") == ["DEFAULT", "EXCLUSIVE_PROCESS"]
    assert run(tmp_path, driver, first, second) == ["DEFAULT", "EXCLUSIVE_PROCESS"]
    assert run(tmp_path, driver, f"{first}=PROHIBITED", f"{second}=DEFAULT") == ["PROHIBITED", "DEFAULT"]


def test_a_refusal_says_what_is_needed(tmp_path: Path) -> None:
    (tmp_path / "faults").write_text("fail nvmlDeviceSetComputeMode 4\n")
    (said,) = run(tmp_path, "nvml", f"{gpu_uuid(0)}=DEFAULT")
    assert said.startswith("nvmlDeviceSetComputeMode: Insufficient Permissions")
    assert "the container needs root and the capability SYS_ADMIN to set compute modes; " in said
    assert "mps.securityContext" in said
    (said,) = run(tmp_path, "nvml", "GPU-none")
    assert "Not Found" in said


def test_what_is_no_mode_is_an_error(tmp_path: Path) -> None:
    modes = SimulatedComputeModes(tmp_path / "node.yaml")
    modes.set("GPU-x", ComputeMode.PROHIBITED)
    (tmp_path / "node.yaml.compute-modes" / "GPU-x").write_text("7")
    with pytest.raises(DriverError, match="can't be read: 7 is not a valid ComputeMode"):
        modes.get("GPU-x")
    with pytest.raises(UsageError):
        open_compute_modes("simulated:", container_driver_root="/driver-root")
