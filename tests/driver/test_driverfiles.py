"""What is found of the driver's installation below a mounted root."""

from pathlib import Path

import pytest

from deviceplugin.driver.driverfiles import Installation, InstallationFinder
from deviceplugin.model.node import DriverFile

V = "570.133.20"


def put(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("")


def link(root: Path, name: str, target: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).symlink_to(target)


def paths(root: Path) -> list[str]:
    return [file.path for file in InstallationFinder(root).look(V).files]


def test_libraries_of_the_version_with_the_links_that_lead_to_them(tmp_path: Path) -> None:
    put(tmp_path, f"usr/lib64/libcuda.so.{V}", "usr/lib64/libcuda.so.535.1", f"usr/lib64/libcudadebugger.so.{V}")
    put(tmp_path, "usr/lib64/libc.so.6", f"usr/lib64/vdpau/libvdpau_nvidia.so.{V}")
    link(tmp_path, "usr/lib64/libcuda.so.1", f"libcuda.so.{V}")
    link(tmp_path, "usr/lib64/libcuda.so", "libcuda.so.1")
    link(tmp_path, "usr/lib64/libcuda.so.0", "libcuda.so.535.1")
    link(tmp_path, "usr/lib64/libcudadebugger.so.1", "/nowhere")
    assert InstallationFinder(tmp_path).look(V).files == (
        DriverFile(f"/usr/lib64/libcuda.so.{V}", ("libcuda.so", "libcuda.so.1")),
        DriverFile(f"/usr/lib64/libcudadebugger.so.{V}"),
        DriverFile(f"/usr/lib64/vdpau/libvdpau_nvidia.so.{V}"),
    )


def test_programs_firmware_and_the_files_of_gpudirect_storage(tmp_path: Path) -> None:
    put(tmp_path, "usr/bin/nvidia-smi", "usr/sbin/nvidia-persistenced", "usr/bin/nvidia-settings", "etc/cufile.json")
    put(tmp_path, f"usr/lib/firmware/nvidia/{V}/gsp_ga10x.bin", "usr/lib/firmware/nvidia/535.1/gsp_ga10x.bin")
    assert paths(tmp_path) == [
        *("/etc/cufile.json", "/usr/bin/nvidia-smi", f"/usr/lib/firmware/nvidia/{V}/gsp_ga10x.bin"),
        "/usr/sbin/nvidia-persistenced",
    ]


def test_libraries_for_32_bits_are_left_out(tmp_path: Path) -> None:
    """Red Hat's /usr/lib, beside /usr/lib64: of the same names, and first in order."""
    put(tmp_path, f"usr/lib/libcuda.so.{V}", f"usr/lib64/libcuda.so.{V}", f"usr/lib64/libnvidia-ml.so.{V}")
    (tmp_path / f"usr/lib/libcuda.so.{V}").write_bytes(b"\x7fELF\x01\x01\x01")
    (tmp_path / f"usr/lib64/libcuda.so.{V}").write_bytes(b"\x7fELF\x02\x01\x01")
    (tmp_path / f"usr/lib64/directory.so.{V}").mkdir()
    assert paths(tmp_path) == [f"/usr/lib64/libcuda.so.{V}", f"/usr/lib64/libnvidia-ml.so.{V}"]


def test_directories_that_are_links_are_one_and_none_outside_the_root(tmp_path: Path) -> None:
    root = tmp_path / "root"
    put(root, f"usr/lib/x86_64-linux-gnu/libcuda.so.{V}", "usr/bin/nvidia-smi")
    link(root, "lib", "usr/lib")
    link(root, "bin", "usr/bin")
    put(tmp_path, f"outside/libcuda.so.{V}")
    link(root, "usr/lib64", str(tmp_path / "outside"))
    link(tmp_path, "mounted", "root")
    expected = ["/usr/bin/nvidia-smi", f"/usr/lib/x86_64-linux-gnu/libcuda.so.{V}"]
    assert paths(root) == paths(tmp_path / "mounted") == expected


@pytest.mark.parametrize("program", ["nvidia-ctk", "nvidia-cdi-hook"])
def test_a_hook_program_must_be_one_that_can_run(tmp_path: Path, program: str) -> None:
    finder = InstallationFinder(tmp_path)
    put(tmp_path, f"usr/bin/{program}")
    assert finder.look(V).hook is None
    (tmp_path / "usr/bin" / program).chmod(0o755)  # changes nothing of the directory
    assert finder.look(V).hook == f"/usr/bin/{program}"
    (tmp_path / "usr/bin" / program).chmod(0o644)
    assert finder.look(V).hook is None


def test_a_hook_program_is_a_file_in_the_root(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "usr/bin/nvidia-cdi-hook").mkdir(parents=True)
    put(tmp_path, "outside/nvidia-ctk")
    (tmp_path / "outside/nvidia-ctk").chmod(0o755)
    link(root, "usr/bin/nvidia-ctk", str(tmp_path / "outside/nvidia-ctk"))
    assert InstallationFinder(root).look(V).hook is None
    put(root, "usr/local/toolkit/nvidia-ctk")
    (root / "usr/local/toolkit/nvidia-ctk").chmod(0o755)
    (root / "usr/bin/nvidia-ctk").unlink()
    link(root, "usr/bin/nvidia-ctk", "../local/toolkit/nvidia-ctk")
    assert InstallationFinder(root).look(V).hook == "/usr/bin/nvidia-ctk"


def test_no_root_or_no_version_is_nothing(tmp_path: Path) -> None:
    put(tmp_path, f"usr/lib64/libcuda.so.{V}")
    assert InstallationFinder(tmp_path / "absent").look(V) == Installation()
    assert InstallationFinder(tmp_path).look(None) == Installation()


def test_a_change_is_seen_at_the_next_look_and_without_one_nothing_is_read_again(tmp_path: Path) -> None:
    put(tmp_path, f"usr/lib64/libcuda.so.{V}", "usr/lib64/libcuda.so.575.1")
    finder = InstallationFinder(tmp_path)
    first = finder.look(V)
    assert finder.look(V) is first
    put(tmp_path, f"usr/lib64/libnvidia-ml.so.{V}")
    assert len(finder.look(V).files) == 2
    assert [file.path for file in finder.look("575.1").files] == ["/usr/lib64/libcuda.so.575.1"]
    (tmp_path / f"usr/lib64/libcuda.so.{V}").unlink()
    assert len(finder.look(V).files) == 1


def test_a_driver_root_mounted_later_is_found(tmp_path: Path) -> None:
    finder = InstallationFinder(tmp_path / "later")
    assert finder.look(V).files == ()
    put(tmp_path, f"later/usr/lib64/libcuda.so.{V}")
    assert len(finder.look(V).files) == 1
