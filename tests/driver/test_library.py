"""Where libnvidia-ml is looked for, and what is said when it is not there (reports J1)."""

import os
import subprocess
import sys
from pathlib import Path

import pynvml
import pytest

from deviceplugin.driver.library import SEARCHED, NvmlLibrary
from deviceplugin.errors import DriverError
from tests.driver.bench import Bench, gpu_line
from tests.nvml_standin import write_sysfs

ABSENT = "libnvidia-ml-that-no-machine-has.so.1"

SNAPSHOT = """
import sys
from deviceplugin.driver import open_driver
driver = open_driver("nvml", container_driver_root=sys.argv[1])
print([gpu.uuid for gpu in driver.snapshot().gpus])
driver.close()
"""


def run_snapshot(bench: Bench, driver_root: Path, **environment: str) -> str:
    """The GPUs that a fresh process finds: which library a process has opened cannot be undone in it."""
    bench.put(gpu_line(0))
    done = subprocess.run(
        [sys.executable, "-c", SNAPSHOT, str(driver_root)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_found_by_the_loader(bench: Bench, library: Path, tmp_path: Path) -> None:
    found = run_snapshot(bench, tmp_path / "absent", LD_LIBRARY_PATH=str(library.parent))
    assert "GPU-00000000" in found


@pytest.mark.parametrize("directory", ["usr/lib64", "opt/nvidia/lib64"])
def test_found_below_the_driver_root(bench: Bench, library: Path, tmp_path: Path, directory: str) -> None:
    assert directory in SEARCHED
    place = tmp_path / "driver-root" / directory
    place.mkdir(parents=True)
    (place / library.name).symlink_to(library)
    assert "GPU-00000000" in run_snapshot(bench, tmp_path / "driver-root")


def missing(driver_root: Path, root: Path) -> str:
    """The message when there is no library anywhere."""
    with pytest.raises(DriverError) as raised:
        NvmlLibrary(driver_root, root, ABSENT).ensure_ready()
    assert raised.value.code is None
    return str(raised.value)


@pytest.fixture
def no_library(bench: Bench) -> Bench:
    """A process that has not opened the library yet."""
    pynvml.nvmlLib = None
    return bench


def test_missing_names_every_place(no_library: Bench, tmp_path: Path) -> None:
    message = missing(tmp_path / "driver-root", no_library.root)
    assert all(directory in message for directory in SEARCHED)
    assert f"{tmp_path / 'driver-root'} (no such directory)" in message
    assert f"{ABSENT}: cannot open shared object file" in message


def test_a_driver_root_that_cannot_be_looked_at_is_a_missing_one(no_library: Bench, tmp_path: Path) -> None:
    """As one below a directory that this process may not search; the name here is longer than any may be."""
    assert "(no such directory)" in missing(tmp_path / ("x" * 300), no_library.root)


def test_missing_on_a_node_without_gpus(no_library: Bench, tmp_path: Path) -> None:
    assert "no NVIDIA device on the PCI bus" in missing(tmp_path, no_library.root)


def test_missing_without_a_driver_on_the_host(no_library: Bench, tmp_path: Path) -> None:
    write_sysfs(no_library.root, f"init return=9\n{gpu_line(0)}")
    assert "no driver loaded on the host" in missing(tmp_path, no_library.root)


def test_missing_though_the_driver_is_loaded(no_library: Bench, tmp_path: Path) -> None:
    write_sysfs(no_library.root, gpu_line(0))
    assert "runtimeClassName: nvidia" in missing(tmp_path, no_library.root)


def test_a_file_that_is_no_library_is_named_and_the_search_goes_on(no_library: Bench, tmp_path: Path) -> None:
    place = tmp_path / "driver-root/usr/lib64"
    place.mkdir(parents=True)
    (place / ABSENT).write_text("not ELF")
    message = missing(tmp_path / "driver-root", no_library.root)
    assert f"{place / ABSENT}: " in message
    assert f"{ABSENT}: cannot open shared object file" in message


def test_a_library_that_comes_later_is_found(no_library: Bench, library: Path, tmp_path: Path) -> None:
    no_library.put(gpu_line(0))
    searched = NvmlLibrary(tmp_path / "driver-root", no_library.root, ABSENT)
    with pytest.raises(DriverError):
        searched.ensure_ready()
    place = tmp_path / "driver-root/usr/lib64"
    place.mkdir(parents=True)
    (place / ABSENT).symlink_to(library)
    searched.ensure_ready()
    assert pynvml.nvmlDeviceGetCount() == 1
    searched.shut_down()
