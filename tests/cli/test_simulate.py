"""`simulate`, what a new user tries first: it shows what is so, what it tells to type works, and it leaves nothing."""

import contextlib
import os
import re
import select
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import pytest

from deviceplugin.observe.status_socket import read_status

ROOT = Path(__file__).parents[2]
# A shell has its background jobs ignore SIGINT and SIGQUIT, nohup SIGHUP, and what they start inherits that.
HEEDING = ["env", "--default-signal=INT,QUIT,HUP,TERM"]
SIMULATE = [*HEEDING, sys.executable, "-m", "deviceplugin.cli.main", "simulate"]
ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)


@pytest.fixture
def scratch() -> Iterator[Path]:
    """Where simulations put their files: paths of unix sockets must be short."""
    with tempfile.TemporaryDirectory(prefix="dp-") as directory:
        yield Path(directory)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A config to edit."""
    return Path(shutil.copy(ROOT / "config" / "time-slicing.yaml", tmp_path))


def environ(scratch: Path) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "TMPDIR": str(scratch), "PYTHONDONTWRITEBYTECODE": "1"}


def once(scratch: Path, *words: str) -> str:
    """What `simulate --once` shows when it ends well."""
    done = subprocess.run(
        [*SIMULATE, "--once", *words],
        cwd=ROOT,
        env=environ(scratch),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert not re.search("Traceback| ERROR ", done.stderr), done.stderr
    assert list(scratch.iterdir()) == []
    return done.stdout


def typed(line: str, scratch: Path) -> str:
    """What a line prints when somebody types it in a checkout."""
    done = subprocess.run(
        ["sh", "-c", line], cwd=ROOT, env=environ(scratch), capture_output=True, text=True, timeout=30, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@contextlib.contextmanager
def simulating(scratch: Path, until: str) -> Iterator[tuple["subprocess.Popen[str]", list[str]]]:
    """A simulation that goes on, at the line that begins so; and what it printed until then."""
    process = subprocess.Popen(
        SIMULATE,
        cwd=ROOT,
        env=environ(scratch),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with process:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line.rstrip("\n"))
            if line.startswith(until):
                break
        try:
            yield process, lines
        finally:
            process.kill()


@contextlib.contextmanager
def on_a_terminal(leader: list[str], scratch: Path) -> Iterator[tuple["subprocess.Popen[bytes]", IO[bytes]]]:
    """A command that leads the session of a terminal and has started a simulation, which tells now what to edit.

    Yields the command, and the terminal's other side, whose close is the hang-up.
    """
    master, slave = os.openpty()
    with open(master, "r+b", buffering=0) as terminal:
        process = subprocess.Popen(
            [*HEEDING, "setsid", "--ctty", *leader],
            cwd=ROOT,
            env=environ(scratch),
            stdin=slave,
            stdout=slave,
            stderr=slave,
        )
        os.close(slave)
        with process:
            try:
                read_until(terminal, "Edit ")
                yield process, terminal
            finally:
                kill_session(process.pid)


def kill_session(leader: int) -> None:
    """Kill what still runs of a process's session (proc_pid_stat(5))."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if int(stat.read_text().rpartition(")")[2].split()[3]) == leader:
                os.kill(int(stat.parent.name), signal.SIGKILL)


def read_until(printed: IO[bytes], start: str) -> None:
    """Read an unbuffered file up to the line that begins so."""
    while select.select([printed], [], [], 15)[0]:
        line = printed.readline()
        if line.startswith(start.encode()):
            return
        assert line, f"ended before it printed {start!r}"
    pytest.fail(f"nothing printed for 15 s, where {start!r} was expected")


def plugin_of(scratch: Path) -> int:
    """The process id of the one simulation's plugin."""
    (directory,) = scratch.iterdir()
    pid: int = read_status(directory / "status.sock")["plugin"]["pid"]
    return pid


def double(config: Path) -> None:
    """Edit a config: as many replicas again."""
    text = re.sub(r"replicas: (\d+)", lambda found: f"replicas: {int(found[1]) * 2}", config.read_text())
    config.write_text(text)


def wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 15
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def runs(pid: int) -> bool:
    """Whether a process is there, and is more than an entry that nobody has waited for."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in ("Z", "X")


def test_the_second_example_of_the_readme_ends_well(scratch: Path) -> None:
    """Its config lets a container have one share only: the sample pods keep to it."""
    (words,) = re.findall(
        r"^\.venv/bin/gpu-device-plugin simulate (.*)$", (ROOT / "README.md").read_text(), re.MULTILINE
    )
    shown = once(scratch, *shlex.split(words))
    assert "pod gpu-shared-2 asks for 1 nvidia.com/gpu.shared: Running\n" in shown
    first, second = re.findall(r"  nvidia\.com/gpu\.shared +(\d+ / \d+)\n", shown)
    assert (first, second) == ("32 / 32", "48 / 48")
    assert "pods still running: 2 of 2\n" in shown


def test_it_says_that_it_has_no_mps_daemons_and_what_is_seen_therefore(scratch: Path) -> None:
    shown = once(scratch, "--node", "config/nodes/t4.yaml", "--config-file", "config/mps.yaml")
    assert "MPS: no control daemons run in this simulation" in shown
    assert "nvidia.com/gpu.shared: mps, NOT REGISTERED" in shown
    assert "none, since the kubelet has nothing to give" in shown
    (told,) = re.findall(r"What it would be:\n  (.*)\n", shown)
    assert "nvidia.com/gpu.shared: 10 devices, mps, by sharing.mps.resources[0]\n" in typed(told, scratch)


def test_an_edit_that_matters_on_other_nodes_only_is_said_to(scratch: Path) -> None:
    shown = once(scratch, "--node", "config/nodes/t4.yaml", "--config-file", "config/mig-mixed.yaml")
    assert "Editing the config on the running node" in shown
    assert "\non this node that changes nothing\n" in shown


@pytest.mark.parametrize("number", ENDING)
def test_a_signal_ends_all_of_it(number: signal.Signals, scratch: Path) -> None:
    with simulating(scratch, "Edit ") as (process, _):
        plugin = plugin_of(scratch)
        process.send_signal(number)
        assert process.wait(15) == 0
        assert not runs(plugin)
        assert list(scratch.iterdir()) == []


def test_a_signal_in_the_middle_of_the_start_leaves_nothing(scratch: Path) -> None:
    with simulating(scratch, "node ") as (process, _):
        process.send_signal(signal.SIGTERM)
        assert process.wait(15) == 128 + signal.SIGTERM
        assert list(scratch.iterdir()) == []


def test_the_plugin_ends_with_a_simulation_that_is_killed(scratch: Path) -> None:
    with simulating(scratch, "Edit ") as (process, _):
        plugin = plugin_of(scratch)
        assert runs(plugin)
        process.kill()
        wait(lambda: not runs(plugin))


@pytest.mark.parametrize("redirection", ["</dev/null", "| cat"], ids=["its output", "its input"])
def test_the_hang_up_of_a_terminal_ends_all_of_it(redirection: str, scratch: Path, tmp_path: Path) -> None:
    """Also under `make run` as the terminal's own command: SIGHUP reaches make alone, which waits for its child."""
    makefile = tmp_path / "Makefile"
    makefile.write_text(f"run:\n\t{shlex.join(SIMULATE)} {redirection}\n")
    with on_a_terminal(["make", "-f", str(makefile), "run"], scratch) as (make, terminal):
        plugin = plugin_of(scratch)
        terminal.close()
        assert make.wait(15) == -signal.SIGHUP
        assert not runs(plugin)
        assert list(scratch.iterdir()) == []


def test_in_the_background_it_goes_on_while_others_are_typed_to(scratch: Path, config: Path) -> None:
    """A background job that reads its terminal is stopped (SIGTTIN)."""
    simulate = [*SIMULATE, f"--config-file={config}"]
    with on_a_terminal(["sh", "-mc", f"{shlex.join(simulate)} & sleep 1000"], scratch) as (_, terminal):
        plugin = plugin_of(scratch)
        terminal.write(b"to whom it may concern\n")
        double(config)
        read_until(terminal, "node status")
        terminal.close()
        wait(lambda: not runs(plugin))
        wait(lambda: list(scratch.iterdir()) == [])


def test_an_input_that_is_no_terminal_may_end(scratch: Path, config: Path) -> None:
    with subprocess.Popen(
        [*SIMULATE, f"--config-file={config}"],
        bufsize=0,
        cwd=ROOT,
        env=environ(scratch),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            read_until(process.stdout, "Edit ")
            process.stdin.close()
            double(config)
            read_until(process.stdout, "node status")
        finally:
            process.terminate()


def test_what_it_tells_to_type_works_as_it_stands(scratch: Path) -> None:
    with simulating(scratch, "Type ") as (process, _):
        assert process.stdout is not None
        told = process.stdout.readline()
        assert told.startswith("  ")
        assert "nvidia.com/gpu.shared" in typed(told, scratch)
