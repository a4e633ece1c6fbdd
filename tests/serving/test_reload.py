"""Edits of the config on a running node (issue, item 7; contract section 6; reports A1, A2, D7)."""

import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tests.serving.harness import MIG_NODE, Node, gpu_uuid, t4s

GPU = "nvidia.com/gpu"
SHARED_NAME = "nvidia.com/gpu.shared"

EIGHT = t4s(8)


def has(count: int) -> Callable[[tuple[str, ...]], bool]:
    """Whether a list has that many ids."""
    return lambda ids: len(ids) == count


def refused_anew(seen: object, document: dict[str, Any]) -> bool:
    """Whether the newest file was refused, for other reasons than those seen."""
    refused = document["config"]["refused"]
    return bool(refused) and refused["problems"] != seen


def shared(replicas: int, devices: str = "all", rename: bool = False) -> str:
    return f"""\
version: v1
sharing:
  timeSlicing:
    renameByDefault: {str(rename).lower()}
    resources:
    - name: nvidia.com/gpu
      replicas: {replicas}
      devices: {devices}
"""


def mixed(replicas: int) -> str:
    return f"""\
version: v1
flags:
  migStrategy: mixed
sharing:
  timeSlicing:
    resources:
    - name: nvidia.com/mig-1g.5gb
      replicas: {replicas}
"""


def test_growing_is_one_list_on_the_open_stream(driver: str) -> None:
    with Node(config=shared(2), driver=driver).run() as node:
        node.wait_ready()
        node.write_config(shared(4))
        node.wait_list(has(8))
        history = node.kubelet.resources[GPU]
        assert len(history.registrations) == 1
        assert [len(sent.ids) for sent in history.lists] == [4, 8]
        assert len({sent.connection for sent in history.lists}) == 1
        node.wait_log("4 -> 8")


def test_shrinking_what_nobody_holds(driver: str) -> None:
    with Node(config=shared(4), driver=driver).run() as node:
        node.wait_ready()
        node.write_config(shared(2))
        node.wait_list(has(4))
        assert len(node.kubelet.resources[GPU].registrations) == 1


def test_unchanged_resources_are_not_touched(driver: str) -> None:
    """Same socket inode, same stream, no list."""
    small = "nvidia.com/mig-1g.5gb"
    others = (GPU, "nvidia.com/mig-3g.20gb")
    with Node(MIG_NODE, mixed(2), driver=driver).run(small, *others) as node:
        node.wait_ready()
        before = node.sockets()
        for replicas in (3, 5, 2):
            node.write_config(mixed(replicas))
            node.wait_list(has(replicas), small)
        assert node.sockets() == before
        for name in others:
            assert len(node.kubelet.resources[name].lists) == 1
            assert len(node.kubelet.resources[name].registrations) == 1


def test_a_bad_file_changes_nothing_until_a_good_one_comes(driver: str) -> None:
    with Node(config=shared(2), driver=driver).run() as node:
        node.wait_ready()
        for bad in (
            "version: v1\nflags: [unclosed",
            "version: v1\nflags: {migStrategy: none, renameByDefault: true}\n",
            shared(2).replace("replicas: 2", 'replicas: "2"'),
            "",
            shared(10**9),
            "version: v1\nsharing:\n  mps:\n    resources: [{name: nvidia.com/gpu, replicas: 2}]\n",
        ):
            seen = (node.status()["config"]["refused"] or {}).get("problems")
            node.write_config(bad)
            document = node.wait_status(partial(refused_anew, seen))
            assert document["ready"]["ok"]
            assert document["config"]["in_force"] == shared(2)
        assert len(node.kubelet.resources[GPU].lists) == 1
        assert "config refused, the last good one stays in force" in node.log
        assert "sharing.timeSlicing.renameByDefault" in node.log
        node.write_config(shared(3))
        node.wait_list(has(6))
        assert node.status()["config"]["refused"] is None


def test_the_same_content_again_clears_a_refusal_and_sends_nothing() -> None:
    with Node(config=shared(2)).run() as node:
        node.wait_ready()
        node.write_config("version: v2\n")
        node.wait_status(lambda d: d["config"]["refused"])
        node.write_config(shared(2))
        node.wait_status(lambda d: not d["config"]["refused"])
        assert len(node.kubelet.resources[GPU].lists) == 1


def test_a_vanished_file_changes_nothing(driver: str) -> None:
    with Node(config=shared(2), driver=driver).run() as node:
        node.wait_ready()
        assert node.config_path is not None
        node.config_path.unlink()
        document = node.wait_status(lambda d: d["config"]["refused"])
        assert "no such file" in document["config"]["refused"]["problems"][0]
        assert len(node.kubelet.resources[GPU].lists) == 1
        node.write_config(shared(3))
        node.wait_list(has(6))


def test_a_configmap_swap_is_applied() -> None:
    with Node(config=shared(2)) as node:
        assert node.config_path is not None
        volume = node.config_path.parent
        _publish(volume, 1, shared(2))
        node.config_path.unlink()
        os.symlink("..data/config.yaml", node.config_path)
        node.run()
        node.wait_ready()
        for stamp, replicas in ((2, 3), (3, 4)):
            _publish(volume, stamp, shared(replicas))
            node.wait_list(has(2 * replicas))


def _publish(volume: Path, stamp: int, text: str) -> None:
    directory = volume / f"..{stamp}"
    directory.mkdir()
    (directory / "config.yaml").write_text(text)
    os.symlink(directory.name, volume / "..data_tmp")
    os.rename(volume / "..data_tmp", volume / "..data")


def test_sighup_reloads_and_does_not_end_it() -> None:
    with Node(config=shared(2)).run() as node:
        node.wait_ready()
        assert node.process is not None
        node.write_config("version: v2\n")
        node.process.send_signal(signal.SIGHUP)
        node.wait_status(lambda d: d["config"]["refused"])
        node.write_config(shared(3))
        node.process.send_signal(signal.SIGHUP)
        node.wait_list(has(6))


def test_a_rename_never_offers_a_gpu_twice(driver: str) -> None:
    """L21, reports D7: the old name is empty before the new one has devices."""
    with Node(EIGHT, shared(2), driver=driver).run() as node:
        node.wait_ready()
        node.write_config(shared(2, rename=True))
        node.wait_listed(SHARED_NAME)
        node.wait_list(has(16), SHARED_NAME)
        assert node.listed(GPU) == ()
        old = node.kubelet.resources[GPU].lists[-1]
        new = node.kubelet.resources[SHARED_NAME].lists[0]
        assert old.at <= new.at
        assert node.sockets().keys() == {"nvidia-gpu.sock", "nvidia-gpu.shared.sock"}


def test_a_subset_is_split_off_and_taken_back(driver: str) -> None:
    """Reports D5: GPUs 2 and 3 of 4 shared by 4: gpu 2, gpu.shared 8."""
    with Node(t4s(4), "version: v1\n", driver=driver).run() as node:
        node.wait_ready()
        node.write_config(shared(4, "[2, 3]"))
        node.wait_listed(SHARED_NAME)
        assert node.listed(GPU) == (gpu_uuid(0), gpu_uuid(1))
        assert len(node.listed(SHARED_NAME)) == 8
        node.write_config("version: v1\n")
        node.wait_list(has(4), GPU)
        assert node.listed(SHARED_NAME) == ()


def test_held_devices_wait_and_the_rest_goes_ahead(driver: str) -> None:
    with Node(t4s(2), shared(2), driver=driver).run() as node:
        node.wait_ready()
        pod = node.pod("p", {GPU: 1})
        (held,) = pod.ids(GPU)
        held_gpu = held.partition("::")[0]
        node.write_config(shared(2, rename=True))
        node.wait_listed(SHARED_NAME)
        document = node.wait_status(lambda d: d["waiting"])
        assert held in node.listed(GPU)
        free = [gpu_uuid(i) for i in range(2) if gpu_uuid(i) != held_gpu]
        assert {i.partition("::")[0] for i in node.listed(SHARED_NAME)} == set(free)
        assert held in str(document["waiting"]) or held_gpu in str(document["waiting"])
        node.wait_log("waiting: ")
        # Nothing happened to the pod; its container may restart from the cached answer.
        assert node.kubelet.pod(pod.uid).phase == "Running"
        assert node.kubelet.restart_container(pod.uid, "main").status == "running"
        node.kubelet.end(pod.uid)
        node.wait_list(has(4), SHARED_NAME)
        assert node.listed(GPU) == ()
        node.wait_status(lambda d: not d["waiting"])


def test_a_restart_with_an_edited_file_keeps_what_is_held(driver: str) -> None:
    """design 8, Held devices: read before the first list."""
    with Node(t4s(2), "version: v1\n", driver=driver).run() as node:
        pod = node.pod("p", {GPU: 1})
        (held,) = pod.ids(GPU)
        node.stop()
        node.write_config(shared(4, rename=True))
        lists = len(node.kubelet.resources[GPU].lists)
        node.start()
        node.wait_listed(SHARED_NAME)
        node.kubelet.wait_for(lambda: len(node.kubelet.resources[GPU].lists) > lists)
        assert node.listed(GPU) == (held,)
        assert not any(i.startswith(held) for i in node.listed(SHARED_NAME))
        assert len(node.listed(SHARED_NAME)) == 4
        # The kubelet still offers it, but it is on its way out.
        assert node.pod("q", {GPU: 1}).phase == "Failed"
        node.kubelet.end(pod.uid)
        node.wait_list(has(8), SHARED_NAME)
        assert node.listed(GPU) == ()


def test_edits_while_pods_come_and_go_kill_nobody_else(driver: str) -> None:
    """Pods that ask for what did not change never fail."""
    small, whole = "nvidia.com/mig-1g.5gb", GPU
    with Node(MIG_NODE, mixed(2), driver=driver).run(small, whole) as node:
        node.wait_ready()
        node.kubelet.tick()
        for number in range(30):
            node.write_config(mixed(2 + number % 5))
            if number % 3 == 0:
                node.wait_list(has(2 + number % 5), small)
            pod = node.pod(f"p{number}", {whole: 1})
            assert pod.phase == "Running", pod.message
            node.kubelet.end(pod.uid)
        assert node.kubelet.faults == ()
        seen = [snapshot.resources.get(whole) for snapshot in node.kubelet.status_history]
        assert seen[seen.index((1, 1)) :] == [(1, 1)] * (len(seen) - seen.index((1, 1)))
