"""A container of the built image, as a kubelet would start it from a rendered pod; `enter` plays the runtime.

The rights come from the manifest itself: root file system, capabilities, user, privilege escalation, variables,
command, mounts, seccomp profile, memory limit. What a runtime does besides: namespaces for processes and the network.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from tests.image.cgroup import MemoryLimit
from tests.image.seccomp import Rule, runtime_default

Manifest = dict[str, Any]

CAPABILITIES = {"CHOWN": 0, "FOWNER": 3, "KILL": 5, "SETGID": 6, "SETUID": 7, "SYS_ADMIN": 21}
"""Numbers of those that a manifest here gives, from <linux/capability.h>; a privileged container has others as well."""


@dataclass(frozen=True, slots=True)
class Image:
    """A built image, mounted.

    Attributes:
        root: its file system; to be read only.
        config: what the OCI image specification calls so: Entrypoint, Env, User and the like.
        size_bytes: of its layers, unpacked.
    """

    root: Path
    config: Manifest
    size_bytes: int

    @classmethod
    @contextmanager
    def mounted(cls, name: str) -> Iterator[Self]:
        """Mount an image of buildah's storage while the block runs."""
        container = buildah("from", "--pull-never", name)
        try:
            described = json.loads(buildah("inspect", "--type", "image", name))
            (listed,) = json.loads(buildah("images", "--json", name))
            yield cls(Path(buildah("mount", container)), described["OCIv1"]["config"], _bytes(listed["size"]))
        finally:
            buildah("rm", container)

    def command(
        self,
        words: Sequence[str],
        variables: Mapping[str, str] | None = None,
        mounts: Sequence[tuple[Path, str, bool]] = (),
        *,
        capabilities: Sequence[str] = (),
        seccomp: Sequence[Rule] = (),
        memory: MemoryLimit | None = None,
    ) -> list[str]:
        """The command line that runs `words` in the image.

        Args:
            words: the program and its arguments.
            variables: beside those of the image.
            mounts: what is here, where it is there, and whether it is read-only there.
            capabilities: all that it has, as a manifest spells them: `SYS_ADMIN`.
            seccomp: the system calls that it may make; empty: all.
            memory: the group that it is in.
        """
        for source, target, _ in mounts:
            # As a runtime makes it: in the container's own layer.
            place = self.root / target.lstrip("/")
            assert not self.root.joinpath("var/run").is_symlink(), "it would lead out of the image"
            place.parent.mkdir(parents=True, exist_ok=True)
            place.mkdir(exist_ok=True) if source.is_dir() else place.touch()
        plan = {
            "root": str(self.root),
            "mounts": [(str(source), target, read_only) for source, target, read_only in mounts],
            "capabilities": [CAPABILITIES[name] for name in capabilities],
            "seccomp": seccomp,
            "cgroup": str(memory.procs) if memory else "",
            "environ": dict(line.split("=", 1) for line in self.config["Env"]) | dict(variables or {}),
            "command": list(words),
        }
        enter = Path(__file__).with_name("enter.py")
        return ["unshare", "--mount", "--propagation", "private", sys.executable, str(enter), json.dumps(plan)]


def buildah(*words: str) -> str:
    """Run buildah and return what it prints."""
    return subprocess.run(["buildah", *words], check=True, capture_output=True, text=True).stdout.strip()


def _bytes(text: str) -> int:
    number, unit = text.split()
    return round(float(number) * {"KB": 1e3, "MB": 1e6, "GB": 1e9}[unit.upper()])


@dataclass(frozen=True, slots=True)
class Sandbox:
    """A rendered pod's only container, on this machine.

    Attributes:
        image: what it runs.
        pod: the pod's spec.
        places: where each of the pod's volumes is here.
        extra: further directories of this machine, read-only at their own paths.
        shared: such that it may write to.
        memory: the group with the container's limit; None where this machine lets us make none.
    """

    image: Image
    pod: Manifest
    places: Mapping[str, Path]
    extra: Sequence[Path] = ()
    memory: MemoryLimit | None = None
    shared: Sequence[Path] = ()

    @property
    def container(self) -> Manifest:
        """The container's spec."""
        (container,) = self.pod["containers"]
        return dict(container)

    def command(self, *words: str) -> list[str]:
        """The command line that runs `words` in the container, or what the pod runs in it."""
        context = self.container["securityContext"]
        privileged = context.get("privileged", False)
        assert context["runAsUser"] == 0
        assert context["readOnlyRootFilesystem"] is True
        capabilities = list(CAPABILITIES) if privileged else context["capabilities"].get("add", [])
        assert privileged or context["capabilities"]["drop"] == ["ALL"]
        assert capabilities or context["allowPrivilegeEscalation"] is False
        assert self.pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        mounts = [
            (self.places[mount["name"]], mount["mountPath"], mount.get("readOnly", False))
            for mount in self.container["volumeMounts"]
        ]
        mounts += [(path, str(path), path in self.extra) for path in (*self.extra, *self.shared)]
        variables = {variable["name"]: variable["value"] for variable in self.container["env"]}
        return self.image.command(
            words or self.container.get("command") or self.image.config["Entrypoint"],
            variables,
            mounts,
            capabilities=capabilities,
            seccomp=[] if privileged else runtime_default(capabilities=[f"CAP_{name}" for name in capabilities]),
            memory=self.memory,
        )

    def start(self) -> "subprocess.Popen[str]":
        """Start what the pod runs; its output is one stream."""
        return subprocess.Popen(
            self.command(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    @contextmanager
    def running(self) -> Iterator["subprocess.Popen[str]"]:
        """Run what the pod runs while the block does; print what it said."""
        with tempfile.TemporaryFile("w+") as output:
            process = subprocess.Popen(
                self.command(), stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, text=True
            )
            try:
                yield process
            finally:
                process.kill()
                process.wait(10)
                output.seek(0)
                print(output.read())

    def probe(self, name: str) -> "subprocess.CompletedProcess[str]":
        """Run a probe of the container, as the kubelet does."""
        return self.run(*self.container[f"{name}Probe"]["exec"]["command"])

    def run(self, *words: str, given: str = "") -> "subprocess.CompletedProcess[str]":
        """Run a command in the container beside what runs there, as `kubectl exec -i` does."""
        return subprocess.run(
            self.command(*words), input=given, capture_output=True, text=True, timeout=60, check=False
        )
