"""Two things at once: an edit, a transition or a start, and what goes wrong around it in that very moment (issue 5)."""

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest

from deviceplugin.simulator import Clock, Kubelet
from deviceplugin.simulator.podresources import PodResources
from deviceplugin.simulator.process import Parts
from tests.serving.harness import Node, deadline, gpu_uuid, t4s
from tests.serving.moments import never_offered_twice, unit_of
from tests.serving.test_edits_in_anger import A, B, two_names
from tests.serving.test_health_golden import Marker
from tests.serving.test_held import refusing
from tests.serving.test_reload import GPU, SHARED_NAME, has, shared
from tests.serving.test_transitions import Quick

# As in a cluster: root, and none of its rights over files of others.
WITHOUT_RIGHTS = ("setpriv", "--bounding-set=-all", "--inh-caps=-all")


def kubelet_with(pod_resources: type[PodResources]) -> Callable[[Path], Kubelet]:
    """What makes a kubelet with another PodResources service."""

    def make(root: Path) -> Kubelet:
        parts, clock = Parts(pod_resources=pod_resources), Clock(scale=10)
        return Kubelet(device_plugins_dir=root / "device-plugins", root_dir=root, clock=clock, seed=7, parts=parts)

    return make


def silent(answers: threading.Event) -> Callable[[Path], Kubelet]:
    """A kubelet whose PodResources takes calls, and answers them while the event is set only."""

    class Silent(PodResources):
        def _limit(self, context: grpc.ServicerContext) -> None:
            while not answers.wait(0.02) and context.is_active():
                pass
            super()._limit(context)

    return kubelet_with(Silent)


def test_a_bad_gpu_leaves_its_list_while_others_give_way_and_pod_resources_hangs() -> None:
    """What waits for the kubelet to show a list is what gains by it, and nothing else: no verdict, no other edit."""
    answers = threading.Event()
    answers.set()
    both = two_names(A, A)
    with Node(t4s(4), two_names(A, B), kubelet=silent(answers)).run(A, B, GPU) as node:
        node.wait_ready()
        Marker(node).heard()
        answers.clear()
        node.write_config(both)
        node.kubelet.wait_for(lambda: node.listed(B) == ())
        node.inject("xid 3 79")
        node.kubelet.wait_for(lambda: node.healthy(GPU) == {gpu_uuid(2)}, 1)
        node.inject("xid 0 79")
        node.kubelet.wait_for(lambda: not node.healthy(A), 1)
        assert len(node.listed(A)) == 2, "GPU 1 came under its new name before the kubelet had shown that it left"
        answers.set()
        node.wait_list(has(4), A)
        assert node.healthy(A) == {f"{gpu_uuid(1)}::{n}" for n in range(2)}
        never_offered_twice(node.kubelet, (A, B, GPU), {})


def test_two_kubelet_restarts_while_others_give_way_and_pod_resources_hangs() -> None:
    answers = threading.Event()
    answers.set()
    with Node(t4s(2), two_names(A, B), kubelet=silent(answers)).run(A, B) as node:
        node.wait_ready()
        answers.clear()
        node.write_config(two_names(B, A))
        node.kubelet.wait_for(lambda: node.listed(A) == node.listed(B) == ())
        node.kubelet.restart()
        node.kubelet.restart()
        node.wait_list(lambda ids: {unit_of(one) for one in ids} == {gpu_uuid(1)}, A)
        node.wait_list(lambda ids: {unit_of(one) for one in ids} == {gpu_uuid(0)}, B)
        answers.set()
        node.wait_ready()
        never_offered_twice(node.kubelet, (A, B), {})


def test_an_edit_back_while_others_give_way_and_pod_resources_hangs() -> None:
    answers = threading.Event()
    answers.set()
    with Node(t4s(2), two_names(A, B), kubelet=silent(answers)).run(A, B) as node:
        node.wait_ready()
        answers.clear()
        node.write_config(two_names(B, A))
        node.kubelet.wait_for(lambda: node.listed(A) == node.listed(B) == ())
        node.write_config(two_names(A, B))
        node.kubelet.wait_for(lambda: len(node.healthy(A)) == len(node.healthy(B)) == 2, 1)
        # Back and forth: each wait is for what was withdrawn last, the end is what the file says last.
        for _ in range(3):
            node.write_config(two_names(B, A))
            node.kubelet.wait_for(lambda: node.listed(A) == node.listed(B) == (), 1)
            node.write_config(two_names(A, B))
            node.kubelet.wait_for(lambda: len(node.healthy(A)) == len(node.healthy(B)) == 2, 1)
        node.write_config(two_names(B, A))
        node.kubelet.wait_for(lambda: node.listed(A) == node.listed(B) == (), 1)
        answers.set()
        node.wait_list(lambda ids: {unit_of(one) for one in ids} == {gpu_uuid(1)}, A)
        node.wait_list(lambda ids: {unit_of(one) for one in ids} == {gpu_uuid(0)}, B)
        never_offered_twice(node.kubelet, (A, B), {})


def test_a_config_that_may_not_be_read_changes_nothing_until_it_may() -> None:
    with Node(config=shared(2), launcher=WITHOUT_RIGHTS).run() as node:
        node.wait_ready()
        assert node.config_path is not None
        for path in (node.config_path, node.config_path.parent):
            mode = path.stat().st_mode
            lists = len(node.kubelet.resources[GPU].lists)
            path.chmod(0)
            # Told by inotify: the slow look comes every 2 s.
            document = node.wait_status(lambda d: d["config"]["refused"], timeout=1)
            assert "ermission denied" in document["config"]["refused"]["problems"][0]
            assert str(node.config_path) in document["config"]["refused"]["problems"][0]
            assert document["ready"]["ok"]
            path.chmod(mode)
            node.wait_status(lambda d: not d["config"]["refused"], timeout=1)
            assert len(node.kubelet.resources[GPU].lists) == lists
        node.config_path.chmod(0)
        node.write_config(shared(3))
        node.wait_status(lambda d: d["config"]["refused"])
        node.config_path.chmod(0o644)
        node.wait_list(has(6))


def test_of_swaps_faster_than_the_debounce_the_last_one_wins() -> None:
    """What the kubelet does to a ConfigMap volume, far more often than it ever does, old directories removed behind."""
    with Node(config=shared(2)) as node:
        assert node.config_path is not None
        volume = node.config_path.parent
        stamps = 0

        def publish(text: str) -> None:
            nonlocal stamps
            stamps += 1
            directory = volume / f"..{stamps}"
            directory.mkdir()
            (directory / "config.yaml").write_text(text)
            os.symlink(directory.name, volume / "..data_tmp")
            os.rename(volume / "..data_tmp", volume / "..data")
            if stamps > 1:
                (volume / f"..{stamps - 1}" / "config.yaml").unlink()
                (volume / f"..{stamps - 1}").rmdir()

        publish(shared(2))
        node.config_path.unlink()
        os.symlink("..data/config.yaml", node.config_path)
        node.run()
        node.wait_ready()
        for round_ in range(4):
            for number in range(100):
                publish(shared(3 + number % 4) if number % 10 else "version: v1\nsharing: [")
            publish(shared(7 + round_))
            node.wait_list(has(2 * (7 + round_)))
            node.wait_status(lambda d: not d["config"]["refused"])
        assert len(node.kubelet.resources[GPU].lists) < 100, "404 swaps"


def test_refuse_while_the_inventory_changes() -> None:
    """Hardware that goes is no edit: it is waited for, and refuses nothing; an edit is judged by what is there now."""
    with Quick(t4s(2), refusing(shared(2))) as node:
        node.run()
        node.wait_ready()
        pods = [node.pod(f"p{n}", {GPU: 1}) for n in range(4)]
        on_the_second = next(iter(one for pod in pods for one in pod.ids(GPU) if unit_of(one) == gpu_uuid(1)))
        # In one moment a GPU comes, and an edit that touches nothing held.
        node.set_node(t4s(3))
        node.write_config(refusing(shared(3)))
        node.until(lambda: len(node.healthy()) == 9)
        assert not node.status()["config"]["refused"]
        # It goes again, and with it one whose shares are held: listed, Unhealthy, and no reason to refuse.
        node.set_node(t4s(1))
        node.until(lambda: len(node.healthy()) == 3)
        assert {one for pod in pods for one in pod.ids(GPU)} <= set(node.listed())
        node.write_config(refusing(shared(4)))
        node.until(lambda: len(node.healthy()) == 4)
        assert not node.status()["config"]["refused"]
        # What would newly wait is refused as ever.
        node.write_config(refusing(shared(4, rename=True)))
        document = node.wait_status(lambda d: d["config"]["refused"])
        assert "sharing.transition: found refuse" in document["config"]["refused"]["problems"][0]
        assert len(node.healthy()) == 4
        # The GPU is back: under the config in force, not under the one that was refused.
        node.set_node(t4s(2))
        node.until(lambda: len(node.healthy()) == 8)
        assert on_the_second in node.healthy()
        assert node.status()["config"]["in_force"] == refusing(shared(4))
        for pod in pods:
            node.all_is_well_with(pod)


def test_a_driver_upgrade_while_a_transition_waits() -> None:
    """The driver goes, comes back as another version, and the process starts itself afresh: what was held stays."""
    with Quick(t4s(2), shared(2), driver="nvml") as node:
        node.run()
        node.wait_ready()
        pod = node.pod("p", {GPU: 1})
        (held,) = pod.ids(GPU)
        free = gpu_uuid(1) if unit_of(held) == gpu_uuid(0) else gpu_uuid(0)
        node.write_config(shared(2, rename=True))
        node.wait_listed(SHARED_NAME)
        node.wait_unhealthy(held)
        node.control.append("fail nvmlDeviceGetHandleByIndex 999", "init 999")
        node.until(lambda: not node.healthy(SHARED_NAME))
        assert node.listed() == (held,)
        lists = len(node.kubelet.resources[GPU].lists)
        node.control.clear()
        node.set_node(t4s(2).replace("570.133.20", "580.65.06"))
        node.wait_status(lambda d: d["driver"]["version"] == "580.65.06", timeout=30)
        assert "starts itself afresh" in node.log
        node.kubelet.wait_for(lambda: node.healthy(SHARED_NAME) == {f"{free}::{n}" for n in range(2)})
        assert all(set(record.ids) == {held} for record in node.kubelet.resources[GPU].lists[lists:])
        node.all_is_well_with(pod)
        node.kubelet.end(pod.uid)
        node.until(lambda: len(node.healthy(SHARED_NAME)) == 4 and node.listed() == ())


@pytest.mark.parametrize("when", ["it is about to be called", "it has dialled back"])
def test_sigterm_while_the_kubelet_is_in_the_middle_of_a_registration(when: str) -> None:
    """The kubelet answers Register only once it has dialled back (R6), and may take ten seconds for that (R7)."""
    with Node(t4s(2), shared(2, "[1]")) as node:
        node.kubelet.start()
        node.kubelet.delay_registrations(3600, times=2)
        node.start()
        if when == "it is about to be called":
            node.kubelet.wait_for(node.sockets)
        else:
            node.kubelet.wait_for(lambda: node.kubelet.resources[GPU].calls("GetDevicePluginOptions"))
        began = time.monotonic()
        with deadline(2):
            assert node.stop() == 0
        assert node.sockets() == {}
        assert "hangs" not in node.log, f"stopped after {time.monotonic() - began:.2f} s"
        node.kubelet.stop()


def test_a_file_that_is_mounted_alone_and_replaced_behind_its_mount_is_reported() -> None:
    """As by a subPath: the mount follows the inode, not the name, and what is new can't be seen from here."""
    with Node(config=shared(2)) as node:
        assert node.config_path is not None
        origin, mounted = node.root / "origin" / "config.yaml", node.config_path
        origin.parent.mkdir()
        origin.write_text(shared(2))
        mount = 'mount --bind "$0" "$1" && shift && exec "$@"'
        in_a_mount_namespace = ("unshare", "--mount", "--propagation", "private", "sh", "-c", mount)
        node._launcher = (*in_a_mount_namespace, str(origin), str(mounted))
        node.run()
        node.wait_ready()
        origin.write_text(shared(3))
        node.wait_list(has(6))
        lists = len(node.kubelet.resources[GPU].lists)
        replacement = origin.with_name("new")
        replacement.write_text(shared(4))
        replacement.rename(origin)
        document = node.wait_status(lambda d: d["config"]["refused"])
        assert "subPath" in document["config"]["refused"]["problems"][0]
        assert document["config"]["in_force"] == shared(3)
        assert document["ready"]["ok"]
        assert len(node.kubelet.resources[GPU].lists) == lists
