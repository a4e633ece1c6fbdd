"""Handles on the stand-in for tests: install it, run it, set faults, ask it, be its client."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Self

NAME, SERVER = "nvidia-cuda-mps-control", "nvidia-cuda-mps-server"
PROGRAM = Path(__file__).with_name("program.py")


def install(directory: Path) -> Path:
    """Puts the program into `directory`, for PATH; returns the directory."""
    directory.mkdir(parents=True, exist_ok=True)
    program = directory / NAME
    # exec keeps the pid, and -a gives the process the real program's name, by which others know it. By another name
    # Python does not find its library.
    home = f"PYTHONHOME='{sys.base_prefix}'"
    program.write_text(f'#!/bin/bash\n{home} exec -a {NAME} "{sys.executable}" -S "{PROGRAM}" "$@"\n')
    program.chmod(0o755)
    return directory


class Faults:
    """The faults in force, by part of the pipe directory's path; `*` for all."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lines: set[str] = set()
        self._write()

    def set(self, fault: str, part: str = "*") -> None:
        """From now on."""
        self._lines.add(f"{fault} {part}")
        self._write()

    def clear(self, fault: str, part: str = "*") -> None:
        """No longer."""
        self._lines.discard(f"{fault} {part}")
        self._write()

    def _write(self) -> None:
        temporary = self.path.with_suffix(".new")
        temporary.write_text("".join(f"{line}\n" for line in sorted(self._lines)))
        temporary.rename(self.path)


def _environ(bin_directory: Path, pipes: Path, logs: Path, more: Mapping[str, str]) -> dict[str, str]:
    path = f"{bin_directory}{os.pathsep}{os.environ['PATH']}"
    return {"PATH": path, "CUDA_MPS_PIPE_DIRECTORY": str(pipes), "CUDA_MPS_LOG_DIRECTORY": str(logs), **more}


def ask(bin_directory: Path, pipes: Path, command: str, timeout_s: float = 10) -> tuple[int, str]:
    """Sends one command; returns exit status and what it printed."""
    done = subprocess.run(
        [str(bin_directory / NAME)],
        env=_environ(bin_directory, pipes, pipes, {}),
        input=f"{command}\n",
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    return done.returncode, done.stdout.strip()


def end_servers(root: Path) -> None:
    """Ends the servers and daemons of pipe directories below `root` that nobody has ended."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            name = (process / "cmdline").read_bytes().partition(b"\0")[0].decode()
            environ = (process / "environ").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if name in (NAME, SERVER) and any(one.startswith(f"CUDA_MPS_PIPE_DIRECTORY={root}/") for one in environ):
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(process.name), signal.SIGKILL)


class ControlDaemon:
    """A daemon in the foreground, for tests without a supervisor.

    Args:
        bin_directory: where the program is installed.
        directory: pipes and logs are below it.
    """

    def __init__(
        self,
        bin_directory: Path,
        directory: Path,
        *options: str,
        faults: Faults | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.bin = bin_directory
        self.pipes, self.logs = directory / "pipe", directory / "log"
        for path in (self.pipes, self.logs):
            path.mkdir(parents=True, exist_ok=True)
        more = dict(env or {})
        if faults is not None:
            more["MPS_STANDIN_FAULTS"] = str(faults.path)
        self._env = _environ(bin_directory, self.pipes, self.logs, more)
        self._options = options
        self.process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self.start()
        self.wait_answers()
        return self

    def __exit__(self, *_: object) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        if self.process is not None:
            self.process.communicate(timeout=10)

    def start(self) -> None:
        """Starts the process; does not wait for its pipes."""
        self.process = subprocess.Popen(
            [str(self.bin / NAME), "-f", *self._options], env=self._env, stderr=subprocess.PIPE, text=True
        )

    def start_in_background(self) -> int:
        """Starts it with `-d`; returns the exit status of what started it."""
        return subprocess.run([str(self.bin / NAME), "-d"], env=self._env, check=False).returncode

    def wait_exit(self) -> tuple[int, str]:
        """Exit status and what it said, once it has ended by itself."""
        assert self.process is not None
        _, errors = self.process.communicate(timeout=10)
        return self.process.returncode, errors.strip()

    def wait_answers(self) -> None:
        """Waits until it answers."""
        deadline = time.monotonic() + 10
        while self.ask("get_server_list")[0] != 0:
            assert time.monotonic() < deadline, "the stand-in does not answer"

    def ask(self, command: str) -> tuple[int, str]:
        """Sends one command; returns exit status and what it printed."""
        return ask(self.bin, self.pipes, command)

    def limit(self, percentage: int, memory_mib: int) -> None:
        """Sets the default limits."""
        assert self.ask(f"set_default_device_pinned_mem_limit 0 {memory_mib}M")[0] == 0
        assert self.ask(f"set_default_active_thread_percentage {percentage}")[0] == 0

    def kill(self) -> None:
        """SIGKILL."""
        assert self.process is not None
        self.process.kill()
        self.process.communicate(timeout=10)

    @property
    def log(self) -> str:
        """What it logged."""
        return (self.logs / "control.log").read_text()


class Client:
    """A process that uses CUDA on the GPU of a daemon, as far as MPS sees it.

    Args:
        percentage, memory_mib: the limits in its environment; 0 for none.
    """

    def __init__(self, pipes: Path, uid: int = 1000, *, percentage: int = 0, memory_mib: int = 0, pid: int = 4242):
        self._connection = socket.socket(socket.AF_UNIX)
        self._connection.connect(str(pipes / "control"))
        self._connection.sendall(f"client {uid} {pid} {percentage} {memory_mib}\n".encode())
        self._connection.settimeout(10)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def wait_server(self) -> tuple[int, float, int]:
        """Waits until it is let through: pid of its server, percentage and MiB in force."""
        words = self._connection.recv(4096).decode().split()
        assert words[:1] == ["server"], "the daemon has hung up"
        return int(words[1]), float(words[2]), int(words[3])

    def waits(self) -> bool:
        """Whether it has not been let through 0.3 s from now."""
        self._connection.settimeout(0.3)
        try:
            return not self._connection.recv(4096)
        except TimeoutError:
            return True
        finally:
            self._connection.settimeout(10)

    def leave(self) -> None:
        """Ends."""
        self._connection.close()
