"""What is installed: lock files that fit pyproject.toml, sizes stated, modules of one subject, an image that builds."""

import re
import tomllib
from collections.abc import Iterable
from pathlib import Path

import pytest

import deviceplugin
from tests.project import ROOT

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
RUNTIME: list[str] = PYPROJECT["project"]["dependencies"]
DEVELOPMENT: list[str] = PYPROJECT["project"]["optional-dependencies"]["dev"]
BUILD: list[str] = PYPROJECT["build-system"]["requires"]

# A module says one thing. 400 lines is the aim, this is where it fails.
MAX_MODULE_LINES = 450


def normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def version(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", text))


def bounds(requirements: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """The lower bound of each requirement, () where it has none."""
    split = (re.split(r">=", requirement) for requirement in requirements)
    return {normalised(name): version(bound[0]) if bound else () for name, *bound in split}


def locked(name: str) -> dict[str, tuple[int, ...]]:
    """The pinned version of each package in a lock file."""
    pins = re.findall(r"^([\w.-]+)==(\S+) \\$", (ROOT / name).read_text(), re.MULTILINE)
    return {normalised(package): version(pin) for package, pin in pins}


@pytest.mark.parametrize(
    ("lock", "requirements"),
    [
        ("requirements.lock", RUNTIME),
        ("requirements-build.lock", BUILD),
        ("requirements-dev.lock", [*RUNTIME, *DEVELOPMENT, *BUILD]),
    ],
)
def test_the_lock_keeps_the_lower_bounds(lock: str, requirements: list[str]) -> None:
    pins = locked(lock)
    below = {name: bound for name, bound in bounds(requirements).items() if pins.get(name, (-1,)) < bound}
    assert below == {}, "missing or too old: run `make lock`"


def test_the_locks_agree() -> None:
    development = locked("requirements-dev.lock")
    for lock in ("requirements.lock", "requirements-build.lock"):
        assert locked(lock).items() <= development.items(), "run `make lock`"


@pytest.mark.parametrize("lock", ["requirements.lock", "requirements-build.lock", "requirements-dev.lock"])
def test_every_pin_has_hashes_and_no_origin(lock: str) -> None:
    text = (ROOT / lock).read_text()
    statements = [line for line in text.replace("\\\n", "").splitlines() if line and not line.lstrip().startswith("#")]
    assert statements
    unhashed = [line for line in statements if not re.fullmatch(r"\S+==\S+(\s+--hash=sha256:[0-9a-f]{64})+\s*", line)]
    assert unhashed == [], "only `name==version --hash=...` stands in a lock: no index, path or link"


def test_runtime_lock_holds_no_tools() -> None:
    tools = set(bounds(DEVELOPMENT)) | {"setuptools", "pip", "wheel"}
    assert tools & set(locked("requirements.lock")) == set()


def test_every_runtime_dependency_states_its_size() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    unstated = [name for name in RUNTIME if not re.search(rf'"{re.escape(name)}",\s*# *\+ *\d+\.\d MiB', text)]
    assert unstated == [], 'write `"name>=x", # + 1.0 MiB, what for` (design 6)'


def test_the_bounds_cover_what_the_stubs_need() -> None:
    """Generated code refuses to be imported with an older library than its generator's."""
    stubs = "".join(path.read_text() for path in (ROOT / "deviceplugin/stubs").glob("*_pb2*.py"))
    needed = {
        "grpcio": set(re.findall(r"GRPC_GENERATED_VERSION = '([\d.]+)'", stubs)),
        "protobuf": set(re.findall(r"Protobuf Python Version: ([\d.]+)", stubs)),
    }
    for name, versions in needed.items():
        assert versions
        assert max(map(version, versions)) <= bounds(RUNTIME)[name], name


def test_one_version() -> None:
    assert PYPROJECT["project"]["version"] == deviceplugin.__version__


def test_modules_have_one_subject() -> None:
    modules = [path for path in (ROOT / "deviceplugin").rglob("*.py") if "stubs" not in path.parts]
    lengths = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in modules}
    assert {name: lines for name, lines in lengths.items() if lines > MAX_MODULE_LINES} == {}


def copied_into_the_image() -> list[str]:
    """The sources of every COPY from the checkout."""
    copies = re.findall(r"^COPY (?!--from)(.+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    return [source for copy in copies for source in copy.split()[:-1]]


def test_the_build_context_has_what_the_image_copies() -> None:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    let_through = {line.removeprefix("!") for line in lines if line.startswith("!")}
    assert "*" in lines
    assert {Path(source).parts[0] for source in copied_into_the_image()} == let_through
    assert [source for source in copied_into_the_image() if not (ROOT / source).exists()] == []


def test_the_image_runs_the_drop_in_name() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text()
    scripts = PYPROJECT["project"]["scripts"]
    assert 'ENTRYPOINT ["nvidia-device-plugin"]' in dockerfile
    assert sorted(scripts) == [
        "config-manager",
        "gpu-device-plugin",
        "gpu-feature-discovery",
        "mps-control-daemon",
        "nvidia-device-plugin",
    ]
    for command in scripts:
        assert f"/usr/bin/{command}" in dockerfile
