"""Asking a control daemon through its pipe, in words that say why its shares are out of service."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from deviceplugin.errors import MpsError
from deviceplugin.model.mps import MpsShare
from deviceplugin.mps.control import Control, limit_commands, problem_of
from deviceplugin.mps.paths import DaemonPaths
from tests.mps_standin import ControlDaemon, Faults, install

SHARE = MpsShare(3840, 25, enforced=True, root="/run/nvidia/mps")
OPEN = MpsShare(3840, 25, enforced=False, root="/run/nvidia/mps")


@pytest.fixture(scope="module")
def binary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(tmp_path_factory.mktemp("bin"))


@pytest.fixture
def faults(tmp_path: Path) -> Faults:
    return Faults(tmp_path / "faults")


@pytest.fixture
def daemon(binary: Path, tmp_path: Path, faults: Faults) -> Iterator[ControlDaemon]:
    with ControlDaemon(binary, tmp_path, faults=faults) as one:
        yield one


@pytest.fixture
def control(binary: Path, tmp_path: Path) -> Control:
    return Control(tmp_path / "pipe", tmp_path / "log", {"PATH": f"{binary}:/usr/bin:/bin"})


def test_it_serves_with_the_right_limits(daemon: ControlDaemon, control: Control) -> None:
    for command in limit_commands(SHARE):
        control.ask(command)
    assert problem_of(control, SHARE) == ""


def test_limits_stay_open_where_they_are_advisory(daemon: ControlDaemon, control: Control) -> None:
    assert limit_commands(OPEN) == ()
    assert problem_of(control, OPEN) == ""
    daemon.limit(100, 900)
    assert problem_of(control, OPEN) == "wrong limits: its default memory limit is 900M, not open"


@pytest.mark.parametrize(
    ("percentage", "memory_mib", "found"),
    [
        (50, 3840, "wrong limits: its default active thread percentage is 50.0, not 25"),
        (25, 2047, "wrong limits: its default memory limit is 1G, not 3840M"),
        (25, 900, "wrong limits: its default memory limit is 900M, not 3840M"),
    ],
)
def test_wrong_limits(daemon: ControlDaemon, control: Control, percentage: int, memory_mib: int, found: str) -> None:
    daemon.limit(percentage, memory_mib)
    assert problem_of(control, SHARE) == found


def test_without_a_daemon(control: Control, tmp_path: Path) -> None:
    assert problem_of(control, SHARE).startswith(f"pipe missing: there is no directory {tmp_path}/pipe;")
    (tmp_path / "pipe").mkdir()
    assert problem_of(control, SHARE).startswith("daemon not running: nothing answers at")


def test_a_directory_above_that_this_process_cannot_enter(tmp_path: Path) -> None:
    """As root with no capability finds somebody else's directory of mode 0700: it must end no thread."""
    pipe = tmp_path / "closed" / "pipe"
    pipe.mkdir(parents=True)
    pipe.parent.chmod(0o700)
    for parent in (tmp_path, *tmp_path.parents):
        parent.chmod(parent.stat().st_mode | 0o011)
    program = (
        "import os, sys; from pathlib import Path; from deviceplugin.model.mps import MpsShare; "
        "from deviceplugin.mps.control import Control, problem_of; os.seteuid(65534); "
        f"print(problem_of(Control(Path({str(pipe)!r}), Path('/nowhere')), MpsShare(3840, 25, True, '/mps')))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == f"pipe not reachable: {pipe}: Permission denied\n"


def test_a_daemon_that_hangs_costs_the_deadline(daemon: ControlDaemon, control: Control, faults: Faults) -> None:
    faults.set("hang")
    with pytest.raises(MpsError, match=r"no answer to get_server_list within 0\.3 s: the daemon hangs"):
        control.ask("get_server_list", deadline_s=0.3)


def test_a_daemon_that_refuses(daemon: ControlDaemon, control: Control, faults: Faults) -> None:
    faults.set("fail")
    assert "failed with exit status 1: Failed to process the command" in problem_of(control, SHARE)


def test_a_missing_program_is_said_with_the_path(tmp_path: Path) -> None:
    (tmp_path / "pipe").mkdir()
    problem = problem_of(Control(tmp_path / "pipe", tmp_path / "log", {"PATH": "/nowhere"}), SHARE)
    assert problem.startswith("nvidia-cuda-mps-control is not on PATH: ")


def test_a_program_that_cannot_be_run(tmp_path: Path) -> None:
    (tmp_path / "pipe").mkdir()
    (tmp_path / "nvidia-cuda-mps-control").write_text("no program")
    (tmp_path / "nvidia-cuda-mps-control").chmod(0o644)
    problem = problem_of(Control(tmp_path / "pipe", tmp_path / "log", {"PATH": str(tmp_path)}), SHARE)
    assert problem == "nvidia-cuda-mps-control can't be run: Permission denied"


def test_a_pipe_too_deep_is_told_beforehand() -> None:
    short = DaemonPaths(Path("/mps"), "nvidia.com/gpu", "GPU-00000000-0000-4000-8000-000000000000")
    assert short.too_long() == ""
    long = DaemonPaths(Path("/mps"), f"nvidia.com/{'x' * 50}", short.gpu_uuid)
    assert "a unix socket's has at most 107" in long.too_long()
