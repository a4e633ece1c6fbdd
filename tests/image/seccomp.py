"""What `seccompProfile: RuntimeDefault` amounts to: the profile that podman, CRI-O and buildah come with.

containerd and Docker have the same one but for a few calls that change with the version: all name what is allowed,
depending on the container's capabilities.
"""

import json
import platform
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

PROFILE = Path("/usr/share/containers/seccomp.json")
"""Of Debian's golang-github-containers-common, which buildah depends on."""

ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}

Rule = tuple[str, int, list[str], list[tuple[int, str, int, int]]]
"""Action, its error number, system calls, and conditions on arguments: index, comparison, value and second value."""


def runtime_default(capabilities: Sequence[str]) -> list[Rule]:
    """The rules for a container with these capabilities; the first one, without calls, is for all other calls.

    Args:
        capabilities: as the profile spells them: `CAP_SYS_ADMIN`.
    """
    profile = json.loads(PROFILE.read_text())
    return [(profile["defaultAction"], profile["defaultErrnoRet"], [], []), *_rules(profile["syscalls"], capabilities)]


def _rules(entries: Sequence[dict[str, Any]], capabilities: Sequence[str]) -> Iterator[Rule]:
    here = {"caps": set(capabilities), "arches": {ARCHITECTURE[platform.machine()]}}
    for entry in entries:
        included = entry.get("includes") or {}
        excluded = entry.get("excludes") or {}
        assert included.keys() | excluded.keys() <= here.keys(), entry
        if all(set(wanted) & here[key] for key, wanted in included.items()) and not any(
            set(unwanted) & here[key] for key, unwanted in excluded.items()
        ):
            conditions = [(one["index"], one["op"], one["value"], one["valueTwo"]) for one in entry.get("args") or ()]
            yield entry["action"], entry.get("errnoRet") or 0, entry["names"], conditions
