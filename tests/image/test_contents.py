"""What is in the image: the plugin under its names, and nothing that a running plugin has no use for."""

import os
import re
import subprocess
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.image.sandbox import Image, buildah
from tests.project import ROOT

MIB = 1024 * 1024

# What `deploy/image/build.sh` makes, as docs/install.md says; a fifth more is a change to explain there.
RECORDED_MB = int(re.search(r"The result has (\d+) MB", (ROOT / "docs/install.md").read_text())[1])  # type: ignore[index]


def in_image(image: Image, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(image.command(words), capture_output=True, text=True, timeout=60, check=False)


def test_it_starts_the_drop_in_name(image: Image) -> None:
    assert image.config["Entrypoint"] == ["nvidia-device-plugin"]
    assert image.config["User"] == "0"
    assert not image.config.get("ExposedPorts")
    # NVIDIA's static manifest leaves these to the image.
    assert {"NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_DRIVER_CAPABILITIES=compute,utility"} <= set(image.config["Env"])
    assert image.config["Labels"]["org.opencontainers.image.version"] == version("gpu-device-plugin")


@pytest.mark.parametrize("name", ["hostname", "resolv.conf", "hosts"])
def test_nothing_of_the_machine_that_built_it_is_in_it(image: Image, name: str) -> None:
    path = image.root / "etc" / name
    assert not path.exists() or path.read_text() == ""


@pytest.mark.parametrize("name", ["gpu-device-plugin", "nvidia-device-plugin"])
def test_the_commands_are_in_usr_bin(image: Image, name: str) -> None:
    """NVIDIA's image has its own there, and charts start them by name (drop-in.md 5c)."""
    assert (image.root / "usr/bin" / name).is_symlink()
    assert "0.1.0" in in_image(image, f"/usr/bin/{name}", "--version").stdout


def test_there_is_a_shell(image: Image) -> None:
    assert in_image(image, "sh", "-c", "echo here").stdout == "here\n"


UNWANTED = re.compile(
    r"(^|/)(pip\d?|pip3\.\d+|ensurepip|setuptools|wheel|gcc|cc|c\+\+|ld|make|cargo|apt|apt-get|dpkg|perl|git|curl|wget|"
    r"pytest|hypothesis|mypy|grpc_tools|tests?)$"
)


def test_nothing_is_in_it_that_a_plugin_has_no_use_for(image: Image) -> None:
    found = [
        str(path.relative_to(image.root))
        for top in ("usr", "opt", "bin", "sbin", "lib", "home", "root", "src", "var/lib")
        for path in (image.root / top).rglob("*")
        if UNWANTED.search(str(path.relative_to(image.root))) and "share/doc" not in str(path)
    ]
    assert found == []


def test_a_base_that_brings_its_distributions_pip_loses_it(image: Image) -> None:
    """`BASE_IMAGE` may be any with Python; such a pip refuses to uninstall itself (PEP 668)."""
    assert image, "its base images are there"
    name = f"localhost/gpu-device-plugin:test-pip-{os.getpid()}"
    certificates = "/etc/ssl/certs:/etc/ssl/certs:ro"
    flags = (
        "--isolation",
        "chroot",
        "--pull-never",
        "--volume",
        certificates,
        *os.environ.get("IMAGE_FLAGS", "").split(),
    )
    base = "BASE_IMAGE=localhost/gpu-device-plugin-base:build"
    buildah("build", *flags, "--layers", "--build-arg", base, "--tag", name, str(ROOT))
    try:
        with Image.mounted(name) as built:
            assert "No module named pip" in in_image(built, "python3", "-m", "pip", "--version").stderr
            assert "0.1.0" in in_image(built, "nvidia-device-plugin", "--version").stdout
            assert [path for path in built.root.glob("usr/**/bin/*") if UNWANTED.search(str(path))] == []
    finally:
        buildah("rmi", name)


def test_what_runs_is_compiled(image: Image) -> None:
    """The root is read-only: what is not compiled in the image is compiled anew at each start, and by each probe."""
    ours = image.root / "opt/gpu-device-plugin/lib/python3.11/site-packages"
    standard = image.root / "usr/lib/python3.11"
    for place in (ours / "deviceplugin", ours / "grpc", standard, standard / "asyncio", standard / "json"):
        sources = {path.stem for path in place.glob("*.py")}
        compiled = {path.name.split(".")[0] for path in (place / "__pycache__").glob("*.cpython-311.pyc")}
        assert sources <= compiled, place


def test_every_file_may_be_read_by_all_and_belongs_to_root(image: Image) -> None:
    odd = [
        path
        for path in (image.root / "opt").rglob("*")
        if not path.is_symlink() and (path.stat().st_uid != 0 or path.stat().st_mode & 0o022)
    ]
    assert odd == []


def test_its_size_is_as_recorded(image: Image) -> None:
    parts = {
        name: sum(path.lstat().st_size for path in (image.root / name).rglob("*") if not path.is_symlink())
        for name in ("usr/bin", "usr/lib", "lib", "opt/gpu-device-plugin")
    }
    print({name: f"{size / MIB:.1f} MiB" for name, size in parts.items()}, f"{image.size_bytes / 1e6:.0f} MB")
    assert RECORDED_MB * 0.8 < image.size_bytes / 1e6 < RECORDED_MB * 1.2


def test_the_interpreter_is_the_one_that_the_base_has(image: Image) -> None:
    assert Path(image.root / "opt/gpu-device-plugin/bin/python").readlink().name in {"python3", "python3.11"}
    assert in_image(image, "gpu-device-plugin", "validate", "/etc/passwd").returncode == 1, "it runs, and says no"
