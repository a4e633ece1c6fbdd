"""Talks to an MPS control daemon through NVIDIA's own tool: the protocol on the pipes is not documented."""

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from deviceplugin.errors import MpsError
from deviceplugin.model.mps import MpsShare

BINARY: Final = "nvidia-cuda-mps-control"
DEADLINE_S: Final = 2.0
# With one GPU visible to the daemon its ordinal is 0. Newer daemons take a UUID as well, older ones don't.
ORDINAL: Final = "0"

_PERCENTAGE = re.compile(r"(\d+(?:\.\d+)?)\s*%?$")
_MEMORY = re.compile(r"(\d+)(?:\.\d+)?\s*([GM])(?:i?B)?$")


class Control:
    """The control pipe of one daemon.

    Args:
        pipe: the daemon's pipe directory. Drivers from 580 on find no daemon without it (reports F4).
        log: its log directory; the tool wants one too.
        environment: of the tool; the process's own by default.
    """

    def __init__(self, pipe: Path, log: Path, environment: Mapping[str, str] | None = None) -> None:
        self.pipe = pipe
        self._environment = {
            **(os.environ if environment is None else environment),
            "CUDA_MPS_PIPE_DIRECTORY": str(pipe),
            "CUDA_MPS_LOG_DIRECTORY": str(log),
        }

    def ask(self, command: str, *, deadline_s: float = DEADLINE_S) -> str:
        """Sends one command; returns what the daemon printed.

        Raises MpsError in words that say why its shares are out of service: pipe missing, permission denied, daemon
        not running, no answer within the deadline, or the daemon's own refusal.
        """
        try:
            there = self.pipe.is_dir()
        except OSError as error:
            # E.g. root without CAP_DAC_OVERRIDE, and somebody else's directory above it.
            raise MpsError(f"pipe not reachable: {self.pipe}: {error.strerror}") from error
        if not there:
            raise MpsError(
                f"pipe missing: there is no directory {self.pipe}; is the MPS supervisor running, and the MPS root "
                f"mounted here (mps.enabled in the chart)?"
            )
        try:
            process = subprocess.Popen(
                [BINARY],
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
        except OSError as error:
            raise MpsError(cannot_run(error, self._environment)) from error
        with process:
            try:
                printed, _ = process.communicate(f"{command}\n".encode(), timeout=deadline_s)
            except subprocess.TimeoutExpired:
                process.kill()
                raise MpsError(f"no answer to {command} within {deadline_s:g} s: the daemon hangs") from None
        text = printed.decode(errors="replace").strip()
        if process.returncode == 0:
            return text
        if "annot find MPS control daemon" in text:
            raise MpsError(f"daemon not running: nothing answers at {self.pipe} ({text})")
        raise MpsError(f"{command} failed with exit status {process.returncode}: {text or 'no message'}")


def cannot_run(error: OSError, environment: Mapping[str, str]) -> str:
    """Why the program could not be started, and where it was looked for."""
    if isinstance(error, FileNotFoundError):
        return (
            f"{BINARY} is not on PATH: the container needs the driver's utilities "
            f"(NVIDIA_DRIVER_CAPABILITIES=compute,utility); PATH is {environment.get('PATH', 'not set')}"
        )
    return f"{BINARY} can't be run: {error.strerror or error}"


def limit_variables(share: MpsShare) -> dict[str, str]:
    """The same limits as variables of the daemon's environment, from which it takes its first defaults.

    So that a client that comes before the commands has no server without limits (NVIDIA, Multi-Process Service,
    environment variables, CUDA_MPS_ACTIVE_THREAD_PERCENTAGE and CUDA_MPS_PINNED_DEVICE_MEM_LIMIT at the level of the
    control daemon).
    """
    if not share.enforced:
        return {}
    return {
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": f"{ORDINAL}={share.memory_mib}M",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(share.active_thread_percentage),
    }


def limit_commands(share: MpsShare) -> tuple[str, ...]:
    """What gives a freshly started daemon its limits; nothing where they are left open (advisory)."""
    if not share.enforced:
        return ()
    return (
        f"set_default_device_pinned_mem_limit {ORDINAL} {share.memory_mib}M",
        f"set_default_active_thread_percentage {share.active_thread_percentage}",
    )


def wrong_limits(control: Control, share: MpsShare) -> str:
    """In what the daemon's default limits are not a share's; empty when they are. Raises MpsError as `ask` does.

    The memory limit may come back in whole G, rounded down: 3840M is shown as 3G (the GPU operator's documentation,
    MPS, verification on a T4). So a limit is wrong only if it can't be read as the right one.
    """
    percentage = control.ask("get_default_active_thread_percentage")
    wanted = share.active_thread_percentage if share.enforced else 100
    found = _PERCENTAGE.search(percentage)
    if found is None or float(found[1]) != wanted:
        return f"wrong limits: its default active thread percentage is {percentage or 'not told'}, not {wanted}"
    memory = control.ask(f"get_default_device_pinned_mem_limit {ORDINAL}")
    if share.enforced and not _may_be(memory, share.memory_mib):
        return f"wrong limits: its default memory limit is {memory or 'not told'}, not {share.memory_mib}M"
    if not share.enforced and (limit := _MEMORY.search(memory)) and int(limit[1]):
        return f"wrong limits: its default memory limit is {memory}, not open"
    return ""


def _may_be(text: str, memory_mib: int) -> bool:
    found = _MEMORY.search(text)
    if found is None:
        return False
    return int(found[1]) == (memory_mib // 1024 if found[2] == "G" else memory_mib)


def problem_of(control: Control, share: MpsShare) -> str:
    """Why a daemon does not serve a share now; empty when it answers with the right limits."""
    try:
        return wrong_limits(control, share)
    except MpsError as error:
        return str(error)


def count_clients(control: Control) -> int:
    """How many clients the daemon's servers have. Raises MpsError as `ask` does."""
    servers = control.ask("get_server_list").split()
    return sum(len(control.ask(f"get_client_list {server}").split()) for server in servers)
