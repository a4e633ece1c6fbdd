"""Becomes a process in a container: what a runtime does between making the namespaces and starting the program.

Run as `unshare --mount --propagation private python enter.py JSON`, as root. The JSON object has `root`, `mounts` (a
list of [source, target, read-only]), `capabilities` (numbers to keep), `environ` and `command`.
"""

import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 24, 38
DEVICES = ("null", "zero", "full", "random", "urandom")


def mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True)


def bind(source: str, target: str, read_only: bool) -> None:
    mount("--bind", source, target)
    if read_only:
        mount("-o", "remount,bind,ro", target)


def build(root: str, mounts: Sequence[tuple[str, str, bool]]) -> None:
    """Put the file system together, read-only but for what is mounted otherwise."""
    bind(root, root, True)
    mount("-t", "proc", "proc", f"{root}/proc")
    mount("-t", "tmpfs", "-o", "mode=755,size=64k", "tmpfs", f"{root}/dev")
    for device in DEVICES:
        open(f"{root}/dev/{device}", "x").close()
        bind(f"/dev/{device}", f"{root}/dev/{device}", False)
    bind("/sys", f"{root}/sys", True)
    for source, target, read_only in mounts:
        bind(source, f"{root}{target}", read_only)


def give_up_rights(keep: Sequence[int]) -> None:
    """Nothing that is not in the bounding set survives the next exec, of root either."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    last = int(open("/proc/sys/kernel/cap_last_cap").read())  # noqa: SIM115
    for capability in range(last + 1):
        if capability not in keep and prctl(PR_CAPBSET_DROP, capability, 0, 0, 0):
            raise OSError(ctypes.get_errno(), f"cannot drop capability {capability}")
    if prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "cannot set no_new_privs")


def main(plan: dict[str, Any]) -> None:
    build(plan["root"], plan["mounts"])
    os.chroot(plan["root"])
    os.chdir("/")
    give_up_rights(plan["capabilities"])
    os.execvpe(plan["command"][0], plan["command"], plan["environ"])  # noqa: S606


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
