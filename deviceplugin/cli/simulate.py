"""`simulate`: the unchanged daemon on a described node, against a kubelet stand-in that keeps the contract."""

import argparse
import contextlib
import os
import re
import select
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO

import deviceplugin
from deviceplugin.cli.ending import Ended, end_on_signals, in_foreground
from deviceplugin.cli.status import render
from deviceplugin.cli.tied import tied
from deviceplugin.cli.words import program
from deviceplugin.errors import DevicePluginError, UsageError
from deviceplugin.observe.status_socket import StatusUnavailable, read_status
from deviceplugin.simulator import AdmittedPod, Clock, Container, Kubelet, Pod

SAMPLES = Path(deviceplugin.__file__).parent.parent / "config"
START_TIMEOUT_S = 30.0
# The plan follows a config that is in force within milliseconds.
PLANNING_S = 1.0
# The kubelet pushes node status every 10 s; five times faster is quick enough to watch.
CLOCK_SCALE = 5.0

Document = dict[str, Any]


def run(words: list[str]) -> int:
    """The command; 0 when every sample pod ran and the daemon stopped cleanly.

    A signal, or its terminal's hang-up, ends it at any time, with all that it started and wrote: while it follows what
    the user does that is the ordinary end; before, the exit status is 128 and the signal's number.
    """
    parser = argparse.ArgumentParser(prog="gpu-device-plugin simulate", description=__doc__)
    parser.add_argument(
        "--node",
        type=Path,
        default=SAMPLES / "nodes" / "mixed-sample.yaml",
        help="a node description (default %(default)s)",
    )
    parser.add_argument("--config-file", type=Path, help="the sharing config (default with the sample node: its own)")
    parser.add_argument("--once", action="store_true", help="show one edit of the config and end")
    parser.add_argument("--log-level", default="info", help="of the plugin (default %(default)s)")
    parser.usage = "%(prog)s [--node FILE] [--config-file FILE] [--once] [flags of serve]"
    options, flags = parser.parse_known_args(words)
    config_file: Path | None = options.config_file
    if config_file is None and options.node == parser.get_default("node"):
        config_file = SAMPLES / "mixed-sample.yaml"
    for file in (options.node, config_file):
        if file is not None and not file.is_file():
            raise UsageError(
                f"{file}: no such file; name a node description with --node and a config with --config-file"
            )
    end_on_signals()
    with tempfile.TemporaryDirectory(prefix="gpu-sim-") as directory:
        return _Simulation(Path(directory), options.node, config_file, options, flags).run()


class SimulationFailed(DevicePluginError):
    """The simulated node did not come up, or a sample pod did not run."""


class _Simulation:
    def __init__(
        self, root: Path, node: Path, config_file: Path | None, options: argparse.Namespace, flags: list[str]
    ) -> None:
        self._root = root
        self._node = node
        self._options = options
        self._flags = flags
        self._given = self._config_file = config_file
        if config_file is not None and options.once:
            # The scripted edit works on a copy.
            self._config_file = root / config_file.name
            self._config_file.write_bytes(config_file.read_bytes())
        self._kubelet = Kubelet(
            device_plugins_dir=root / "device-plugins", root_dir=root, clock=Clock(scale=CLOCK_SCALE), seed=1
        )
        self._admitted: list[AdmittedPod] = []
        self._input: TextIO | None = sys.stdin
        self._mps_told = False

    def run(self) -> int:
        say(f"node {self._node}, config {self._options.config_file or self._config_file or 'none'}")
        with self._kubelet as kubelet:
            kubelet.start()
            with self._daemon() as daemon:
                self._wait_ready(daemon)
                self._show_status("The node offers")
                self._say_what_mps_lacks()
                self._admit_samples()
                if self._options.once:
                    self._show_edit()
                else:
                    self._follow(daemon)
        failed = [pod for pod in self._admitted if pod.phase == "Failed"]
        say(f"the plugin stopped with status {daemon.returncode}")
        return 1 if failed or daemon.returncode else 0

    @contextlib.contextmanager
    def _daemon(self) -> Iterator[subprocess.Popen[str]]:
        command = [sys.executable, "-m", "deviceplugin.cli.main", "serve"]
        command += [f"--driver=simulated:{self._node.absolute()}"]
        command += [f"--kubelet-socket={self._kubelet.registration_socket}", f"--kubelet-root-dir={self._root}"]
        command += [f"--status-socket={self._status_socket}", f"--log-level={self._options.log_level}"]
        mps_root = self._root / "mps"
        mps_root.mkdir(exist_ok=True)
        command += [f"--mps-container-root={mps_root}", f"--cdi-root={self._root}/cdi"]
        if self._config_file is not None:
            command += [f"--config-file={self._config_file.absolute()}"]
        command += self._flags
        daemon = subprocess.Popen(tied(command), stderr=subprocess.PIPE, text=True, start_new_session=True)
        threading.Thread(target=_relay, args=(daemon,), name="plugin log", daemon=True).start()
        try:
            yield daemon
        finally:
            daemon.send_signal(signal.SIGTERM)
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()

    @property
    def _status_socket(self) -> Path:
        return self._root / "status.sock"

    def _status(self) -> Document | None:
        try:
            return read_status(self._status_socket)
        except StatusUnavailable:
            return None

    def _wait_ready(self, daemon: subprocess.Popen[str]) -> None:
        def ready() -> bool:
            if daemon.poll() is not None:
                raise SimulationFailed(f"the plugin ended with status {daemon.returncode}; its log says why")
            document = self._status()
            return document is not None and document["ready"]["ok"]

        _until(ready, "the plugin is ready")
        self._wait_pushed()

    def _wait_pushed(self) -> None:
        """Wait until the kubelet has what the plugin offers, and for its next node status (contract L11)."""

        def pushed() -> bool:
            document = self._status()
            local = self._kubelet.local()
            offered = (
                {one["name"]: one["capacity"] for one in document["resources"] if one["served"]} if document else {}
            )
            arrived = {name: one.capacity for name, one in local.items()}
            shown = {name: (one.capacity, one.allocatable) for name, one in local.items()}
            return (
                document is not None
                and offered.items() <= arrived.items()
                and shown.items() <= self._kubelet.node_status().items()
            )

        _until(pushed, "the node status shows what the plugin offers")

    def _show_status(self, title: str) -> None:
        document = self._status()
        if document is None:
            raise SimulationFailed("the plugin does not answer on its status socket")
        say(f"\n{title}:")
        for line in render(document):
            say(f"  {line}")
        self._show_node_status()

    def _show_node_status(self) -> None:
        say("node status, as the scheduler sees it (capacity / allocatable):")
        for name, (capacity, allocatable) in sorted(self._kubelet.node_status().items()):
            say(f"  {name:<32} {capacity:>4} / {allocatable}")

    def _admit_samples(self) -> None:
        say("\nSample pods:")
        # Where a container may have one share only, a second one is refused by Allocate, and the pod fails for good.
        one_each = {resource["name"] for resource in self._planned() if resource["refuse_more_than_one"]}
        for name, (_, allocatable) in sorted(self._kubelet.node_status().items()):
            short = name.rpartition("/")[2].replace(".", "-")
            second = 1 if name in one_each else 2
            for number, count in ((1, 1), (2, second)) if allocatable > 2 else ((1, 1),) if allocatable else ():
                pod = self._kubelet.admit(Pod(f"{short}-{number}", containers=(Container("main", {name: count}),)))
                self._admitted.append(pod)
                for line in _describe(pod, name, count):
                    say(line)

        if not self._admitted:
            say("  none, since the kubelet has nothing to give")

    def _show_edit(self) -> None:
        edit = _edited(self._config_file.read_text()) if self._config_file else None
        if self._config_file is None or edit is None:
            say("\n(no `replicas:` in the config to edit)")
            return
        text, words = edit
        lists_before = {name: len(self._kubelet.resources[name].lists) for name in self._kubelet.node_status()}
        say(f"\nEditing the config on the running node: {words}")
        before = self._planned()
        self._config_file.write_text(text)
        _until(lambda: self._taken(text), "the edit is in force")
        if not _within(PLANNING_S, lambda: self._planned() != before):
            say("on this node that changes nothing")
        self._wait_pushed()
        self._show_node_status()
        for name, count in sorted(lists_before.items()):
            lists = len(self._kubelet.resources[name].lists) - count
            say(f"  {name}: {'nothing was sent' if not lists else f'{lists} list on the open stream'}")
        running = [pod for pod in self._admitted if self._kubelet.pod(pod.uid).phase == "Running"]
        say(f"pods still running: {len(running)} of {len(self._admitted)}")

    def _planned(self) -> list[Document]:
        document = self._status()
        return document["plan"]["resources"] if document and document["plan"] else []

    def _taken(self, text: str) -> bool:
        config = (self._status() or {}).get("config", {})
        if config.get("refused"):
            raise SimulationFailed("the plugin refused the edit:\n" + "\n".join(config["refused"]["problems"]))
        return bool(config.get("in_force") == text)

    def _say_what_mps_lacks(self) -> None:
        """Once: why nothing is to be had by MPS here."""
        document = self._status()
        if self._mps_told or document is None or not document["mps"]:
            return
        self._mps_told = True
        names = ", ".join(one["name"] for one in document["plan"]["resources"] if one["mode"] == "mps")
        say("\nMPS: no control daemons run in this simulation: they are part of NVIDIA's driver. As on a node without")
        say(f"them, {names} is not registered, or Unhealthy if the kubelet knows the name already. What it would be:")
        config = [str(self._given)] if self._given else []
        plan = shlex.join(["plan", f"--driver=simulated:{self._node}", *config, *self._flags])
        say(f"  {program(sys.argv[0])} {plan}")

    def _follow(self, daemon: subprocess.Popen[str]) -> None:
        files = [self._config_file] if self._config_file else []
        with contextlib.suppress(Ended):
            say(f"\nEdit {' or '.join(str(file) for file in [*files, self._node])} and see the node follow.")
            say("Type a pod's name to end it. Ctrl-C ends the simulation. More, from another window:")
            say(f"  {program(sys.argv[0])} status --status-socket {self._status_socket}")
            shown = self._kubelet.node_status()
            while daemon.poll() is None:
                self._end_typed_pod(0.2)
                self._say_what_mps_lacks()
                now = self._kubelet.node_status()
                if now != shown:
                    shown = now
                    self._show_node_status()

    def _end_typed_pod(self, wait_s: float) -> None:
        """Wait, but not for long, for somebody to type the name of a pod that is to end."""
        if self._input is None or not in_foreground(self._input.fileno()):
            time.sleep(wait_s)
            return
        if not select.select([self._input], [], [], wait_s)[0]:
            return
        line = self._input.readline()
        if not line:
            self._input = None
        running = {pod.name: pod.uid for pod in self._kubelet.pods() if pod.phase == "Running"}
        if line.strip() in running:
            self._kubelet.end(running[line.strip()])
            say(f"pod {line.strip()} has ended")
        elif line.strip():
            say(f"no pod of that name runs; running: {', '.join(sorted(running)) or 'none'}")


def say(line: str) -> None:
    """One line on standard output, at once."""
    print(line, flush=True)


def _relay(daemon: subprocess.Popen[str]) -> None:
    assert daemon.stderr is not None
    for line in daemon.stderr:
        with contextlib.suppress(OSError):  # the terminal has gone: the plugin's log must be read on all the same
            print(f"plugin| {line.rstrip()}", file=sys.stderr, flush=True)


def _until(condition: Callable[[], bool], what: str) -> None:
    if not _within(START_TIMEOUT_S, condition):
        raise SimulationFailed(f"not within {START_TIMEOUT_S:.0f} s: {what}")


def _within(seconds: float, condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def _describe(pod: AdmittedPod, resource: str, count: int) -> Iterator[str]:
    yield f"  pod {pod.name} asks for {count} {resource}: {pod.phase}" + (f" ({pod.message})" if pod.message else "")
    for container in pod.containers.values():
        if container.options is None:
            continue
        ids = sorted(i for held in container.device_ids.values() for i in held)
        yield f"    holds {', '.join(ids)}"
        for key, value in sorted(container.options.envs.items()):
            yield f"    env {key}={value}"
        for device in container.options.devices:
            yield f"    device {device.host_path} -> {device.container_path} ({device.permissions})"
        for mount in container.options.mounts:
            yield f"    mount {mount.host_path} -> {mount.container_path}"


def _edited(text: str) -> tuple[str, str] | None:
    """The text with two more replicas in its first `replicas:`, and the edit in words."""
    found = re.search(r"^(?P<key>[ \t]*(?:- )?replicas:[ \t]*)(?P<count>\d+)", text, re.MULTILINE)
    if found is None:
        return None
    count = int(found["count"])
    line = text.count(os.linesep, 0, found.start()) + 1
    return (
        text[: found.start("count")] + str(count + 2) + text[found.end("count") :],
        f"line {line}: replicas {count} -> {count + 2}",
    )
