"""What nobody plans: names that trade places, files that are none, signals in a storm, two plugins of two minds."""

import os
import signal
import time
from functools import partial
from pathlib import Path
from typing import Any

from tests.serving.harness import Node, deadline, gpu_uuid, t4s
from tests.serving.moments import never_offered_twice, unit_of
from tests.serving.test_reload import GPU, SHARED_NAME, has, shared
from tests.serving.test_transitions import Quick

A, B = "nvidia.com/gpu.a", "nvidia.com/gpu.b"


def two_names(first: str, second: str) -> str:
    """GPU 0 shared under one name, GPU 1 under the other."""
    return f"""\
version: v1
sharing:
  timeSlicing:
    resources:
    - {{name: nvidia.com/gpu, replicas: 2, devices: [0], rename: {first}}}
    - {{name: nvidia.com/gpu, replicas: 2, devices: [1], rename: {second}}}
"""


def test_two_names_trade_places_while_one_is_held() -> None:
    """Each is a new resource for the other's GPU; what is held stays under its old name, and nobody is killed."""
    with Quick(t4s(2), two_names(A, B)) as node:
        node.run(A, B)
        node.wait_ready()
        pod = node.pod("p", {A: 1})
        (held,) = pod.ids(A)
        node.write_config(two_names(B, A))
        # GPU 1 is free and goes over at once; GPU 0 waits for the pod.
        node.kubelet.wait_for(lambda: node.healthy(A) >= {f"{gpu_uuid(1)}::0", f"{gpu_uuid(1)}::1"})
        assert held in node.listed(A)
        assert not any(unit_of(one) == gpu_uuid(0) for one in node.healthy(B))
        node.all_is_well_with(pod)
        other = node.pod("q", {A: 1})
        assert {unit_of(one) for one in other.ids(A)} == {gpu_uuid(1)}
        node.kubelet.end(pod.uid)
        node.until(lambda: node.listed(B) == (f"{gpu_uuid(0)}::0", f"{gpu_uuid(0)}::1"))
        assert node.listed(A) == (f"{gpu_uuid(1)}::0", f"{gpu_uuid(1)}::1")
        never_offered_twice(node.kubelet, (A, B), {})


def _refused_for(said: str, document: dict[str, Any]) -> bool:
    refused = document["config"]["refused"]
    return bool(refused) and any(said in problem for problem in refused["problems"])


def test_whatever_takes_the_place_of_the_file_changes_nothing() -> None:
    """A directory, a FIFO that nobody writes, a device, 2 MiB, a link to itself: each is refused."""
    with Node(config=shared(2)).run() as node:
        node.wait_ready()
        assert node.config_path is not None
        path, lists = node.config_path, len(node.kubelet.resources[GPU].lists)

        def directory(new: Path) -> None:
            new.mkdir()

        def fifo(new: Path) -> None:
            os.mkfifo(new)

        def device(new: Path) -> None:
            new.symlink_to("/dev/zero")

        def huge(new: Path) -> None:
            new.write_bytes(b"# filler\n" * 250_000 + b"version: v1\n")

        def loop(new: Path) -> None:
            new.symlink_to(path)

        cases = {
            directory: "found a directory",
            fifo: "not a regular file",
            device: "not a regular file",
            huge: "found more than 1048576 bytes",
            loop: "symbolic links",
        }
        for make, said in cases.items():
            new = path.with_name(f"new-{make.__name__}")
            make(new)
            path.unlink()
            new.rename(path)
            document = node.wait_status(partial(_refused_for, said))
            assert document["config"]["in_force"] == shared(2), make.__name__
            path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
            path.write_text(shared(2))
            node.wait_status(lambda d: d["config"]["refused"] is None)
        assert len(node.kubelet.resources[GPU].lists) == lists
        node.write_config(shared(3))
        node.wait_list(has(6))


def test_a_storm_of_sighups_sends_nothing_and_keeps_no_sigterm_from_being_heard() -> None:
    with Node(config=shared(2)).run() as node:
        node.wait_ready()
        lists = len(node.kubelet.resources[GPU].lists)
        for _ in range(300):
            node.hang_up()
            time.sleep(0.002)
        assert node.pod("p", {GPU: 1}).phase == "Running"
        assert len(node.kubelet.resources[GPU].lists) == lists
        for _ in range(50):
            node.hang_up()
        with deadline(3):
            assert node.stop(signal.SIGTERM) == 0


def test_two_plugins_with_two_configs_lose_no_held_device() -> None:
    """An old one lingers through an update that came with another config: the newcomer's list has what is held."""
    with Node(t4s(2), shared(2)).run() as node:
        node.wait_ready()
        pods = [node.pod("p0", {GPU: 1}), node.pod("p1", {GPU: 1})]
        held = {one for pod in pods for one in pod.ids(GPU)}
        old, lists = node.process, len(node.kubelet.resources[GPU].lists)
        assert old is not None
        other = node.root / "other.yaml"
        other.write_text(shared(3, rename=True))
        node._args = (f"--status-socket={node.root}/second.sock", f"--config-file={other}")
        node.start()
        try:
            node.wait_listed(SHARED_NAME)
            node.kubelet.wait_for(lambda: len(node.kubelet.resources[GPU].registrations) == 2)
            assert node.pod("q", {GPU: 1}).phase == "Failed", "the newcomer drains what the kubelet has from it"
        finally:
            old.send_signal(signal.SIGTERM)
            assert old.wait(10) == 0
        assert all(held <= set(record.ids) for record in node.kubelet.resources[GPU].lists[lists - 1 :])
        for pod in pods:
            assert node.kubelet.restart_container(pod.uid, "main").status == "running"
            node.kubelet.end(pod.uid)
        node.until(lambda: len(node.healthy(SHARED_NAME)) == 6 and node.listed() == ())
        never_offered_twice(node.kubelet, (GPU, SHARED_NAME), {})
