"""Becomes a process in a container: what a runtime does between making the namespaces and starting the program.

Run as `unshare --mount --propagation private python enter.py JSON`, as root. The JSON object has `root`, `mounts` (a
list of [source, target, read-only]), `capabilities` (numbers to keep), `seccomp` (rules as in seccomp.py), `cgroup`
(the cgroup.procs file of the control group to be in; empty: none), `environ` and `command`.
"""

import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 24, 38
COMPARISONS = {f"SCMP_CMP_{name}": n for n, name in enumerate(("NE", "LT", "LE", "EQ", "GE", "GT", "MASKED_EQ"), 1)}
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
    os.mkdir(f"{root}/dev/shm")
    mount("-t", "tmpfs", "-o", "mode=1777,size=64m", "shm", f"{root}/dev/shm")
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


class Condition(ctypes.Structure):
    """struct scmp_arg_cmp of libseccomp."""

    _fields_ = (
        ("index", ctypes.c_uint),
        ("comparison", ctypes.c_int),
        ("value", ctypes.c_uint64),
        ("second", ctypes.c_uint64),
    )


class SystemCalls:
    """A filter of system calls, made by the library that runtimes make theirs with."""

    def __init__(self, rules: Sequence[Any]) -> None:
        self._library = ctypes.CDLL("libseccomp.so.2")
        self._library.seccomp_init.restype = ctypes.c_void_p
        (default, number, _, _), *others = rules
        self._filter = ctypes.c_void_p(self._library.seccomp_init(self._action(default, number)))
        for action, number, names, conditions in others:
            array = (Condition * len(conditions))(
                *(Condition(index, COMPARISONS[name], value, second) for index, name, value, second in conditions)
            )
            for name in names:
                call = self._library.seccomp_syscall_resolve_name(name.encode())
                if call != -1:  # the library knows no such call
                    self._check("seccomp_rule_add_array", self._action(action, number), call, len(conditions), array)

    def load(self) -> None:
        """From now on they are all that this process and its children may make."""
        self._check("seccomp_load")

    def _action(self, name: str, number: int) -> ctypes.c_uint32:
        return ctypes.c_uint32({"SCMP_ACT_ALLOW": 0x7FFF0000, "SCMP_ACT_ERRNO": 0x00050000 | number}[name])

    def _check(self, function: str, *arguments: Any) -> None:
        if (code := getattr(self._library, function)(self._filter, *arguments)) != 0:
            raise OSError(-code, f"{function}{arguments}: {os.strerror(-code)}")


def main(plan: dict[str, Any]) -> None:
    if plan["cgroup"]:
        with open(plan["cgroup"], "w") as procs:
            procs.write(str(os.getpid()))
    system_calls = SystemCalls(plan["seccomp"]) if plan["seccomp"] else None
    build(plan["root"], plan["mounts"])
    os.chroot(plan["root"])
    os.chdir("/")
    give_up_rights(plan["capabilities"])
    if system_calls is not None:
        system_calls.load()
    os.execvpe(plan["command"][0], plan["command"], plan["environ"])  # noqa: S606


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
