"""What pods hold decides: refuse, unknown, there and back again, Allocates that race with edits (issue 5, 4)."""

import json
import threading
from pathlib import Path
from typing import Any

from deviceplugin.config.document import dump_document
from deviceplugin.simulator import Clock, Kubelet, KubeletStopped
from tests.driver.convert import node_text_to_description
from tests.serving.harness import Node, deadline, gpu_uuid, t4s
from tests.serving.moments import never_offered_twice, unit_of
from tests.serving.test_reload import GPU, SHARED_NAME, has, shared
from tests.serving.test_transitions import EVERY_NAME, ON_GPU_0, PLAIN, Quick

REFUSE = "  transition: refuse\n"


def refusing(text: str) -> str:
    """The same config, with `sharing.transition: refuse`."""
    return text + (REFUSE if "sharing:" in text else f"sharing:\n{REFUSE}")


def test_refuse_rejects_what_would_have_to_wait_and_nothing_else() -> None:
    with Quick(t4s(2), refusing(shared(2))) as node:
        node.run()
        node.wait_ready()
        pod = node.pod("p", {GPU: 1})
        (held,) = pod.ids(GPU)
        lists = len(node.kubelet.resources[GPU].lists)
        node.write_config(refusing(shared(2, rename=True)))
        document = node.wait_status(lambda d: d["config"]["refused"])
        (problem,) = document["config"]["refused"]["problems"]
        assert "sharing.transition: found refuse" in problem
        assert held in problem
        assert "drain" in problem
        assert document["config"]["in_force"] == refusing(shared(2))
        assert len(node.kubelet.resources[GPU].lists) == lists
        assert node.pod("q", {GPU: 1}).phase == "Running", "nothing drains"
        # What touches nothing that is held is taken.
        node.write_config(refusing(shared(4)))
        node.wait_list(has(8))
        assert node.status()["config"]["refused"] is None
        # And so is the first one, once its pods have ended.
        for admitted in node.kubelet.pods():
            node.kubelet.end(admitted.uid)
        node.write_config(refusing(shared(2, rename=True)))
        node.until(lambda: len(node.listed(SHARED_NAME)) == 4)


def test_plan_says_what_would_wait_and_what_would_be_refused() -> None:
    with Quick(t4s(2), shared(2)) as node:
        node.run()
        node.wait_ready()
        pod = node.pod("p", {GPU: 1})
        (held,) = pod.ids(GPU)
        node.hang_up()
        node.wait_status(lambda d: d["resources"][0]["pods"])
        other = node.root / "other.yaml"
        other.write_text(PLAIN)
        said = node.command("plan", *node.flags(), str(other))
        assert said.returncode == 3, said.stderr
        text = said.stdout
        assert "waits until pods have ended:" in text
        assert f"; default/p holds {held}\n" in text
        other.write_text(refusing(PLAIN))
        said = node.command("plan", *node.flags(), str(other))
        assert (said.returncode, said.stderr) == (4, "")
        assert "refused: sharing.transition is refuse" in said.stdout
        assert f"; default/p holds {held}\n" in said.stdout
        assert "would change:" not in said.stdout.replace("nothing would change:", "")
        document = json.loads(node.command("plan", "--output=json", *node.flags(), str(other)).stdout)
        assert (document["refused"], document["changes"], len(document["waits"])) == (True, [], 1)
        # What it says is what happens.
        assert node.config_path is not None
        node.write_config(refusing(PLAIN))
        refused = node.wait_status(lambda d: d["config"]["refused"])
        assert held in refused["config"]["refused"]["problems"][0]
        node.write_config(shared(2))
        node.wait_status(lambda d: not d["config"]["refused"])
        # The change that is under way says so too, and grows no difference.
        node.write_config(PLAIN)
        node.wait_status(lambda d: d["waiting"])
        said = node.command("plan", *node.flags())
        assert said.returncode == 0
        assert "waits until pods have ended:" in said.stdout
        assert held in said.stdout


def test_back_to_the_old_config_ends_the_transition() -> None:
    with Quick(t4s(2), shared(2)) as node:
        node.run()
        node.wait_ready()
        pod = node.pod("p", {GPU: 1})
        (held,) = pod.ids(GPU)
        node.write_config(shared(2, rename=True))
        node.wait_listed(SHARED_NAME)
        node.wait_unhealthy(held)
        node.write_config(shared(2))
        node.kubelet.wait_for(lambda: len(node.healthy()) == 4)
        node.kubelet.wait_for(lambda: node.listed(SHARED_NAME) == ())
        assert node.status()["waiting"] == []
        node.all_is_well_with(pod)
        pods = [node.pod(f"q{n}", {GPU: 1}) for n in range(3)]
        assert [one.phase for one in pods] == ["Running"] * 3


def test_a_third_config_in_the_middle_of_a_transition_is_planned_from_what_is_so() -> None:
    with Quick(t4s(2), shared(2)) as node:
        node.run()
        node.wait_ready()
        pod = node.pod("p", {GPU: 1})
        (held,) = pod.ids(GPU)
        node.write_config(shared(2, rename=True))
        node.wait_listed(SHARED_NAME)
        node.write_config(shared(3, rename=True))
        node.wait_list(has(3), SHARED_NAME)
        node.write_config(PLAIN)
        # The free GPU is offered whole; the held share stays where it is, under the same name.
        free = gpu_uuid(1) if unit_of(held) == gpu_uuid(0) else gpu_uuid(0)
        node.kubelet.wait_for(lambda: set(node.listed()) == {held, free})
        assert node.listed(SHARED_NAME) == ()
        node.all_is_well_with(pod)
        node.kubelet.end(pod.uid)
        node.until(lambda: node.listed() == (gpu_uuid(0), gpu_uuid(1)))


def test_a_retired_resource_that_returns_within_half_a_minute_keeps_its_stream() -> None:
    with Quick(t4s(1), shared(2)) as node:
        node.run()
        node.wait_ready()
        for rename in (True, False, True, False):
            node.write_config(shared(2, rename=rename))
            node.wait_list(has(2), SHARED_NAME if rename else GPU)
            node.kubelet.wait_for(lambda rename=rename: node.listed(GPU if rename else SHARED_NAME) == ())  # type: ignore[misc]
        for name in (GPU, SHARED_NAME):
            assert len(node.kubelet.resources[name].registrations) == 1
        assert len({record.connection for record in node.kubelet.resources[GPU].lists}) == 1


def test_a_retired_resource_that_returns_after_its_server_has_ended() -> None:
    with Quick(t4s(1), shared(2)) as node:
        node.run()
        node.wait_ready()
        node.write_config(shared(2, rename=True))
        node.wait_list(has(2), SHARED_NAME)
        node.wait_log(f"{GPU}: offers nothing any more; its server ends")
        # At once, while the old server may still be stopping.
        node.write_config(shared(3))
        node.wait_list(has(3))
        assert node.kubelet.local()[GPU].allocatable == 3
        node.kubelet.wait_for(lambda: "nvidia-gpu.sock" in node.sockets())
        assert node.pod("p", {GPU: 1}).phase == "Running"
        node.wait_ready()


def _blind(root: Path) -> Kubelet:
    """A kubelet whose PodResources socket and checkpoint are out of our sight."""
    return Kubelet(device_plugins_dir=root / "device-plugins", root_dir=root / "kubelet", clock=Clock(scale=10), seed=3)


def _spoil_checkpoint(node: Node) -> dict[str, Any]:
    """Not the kubelet's layout: what is in it can't be known. The kubelet writes it anew with every list (L13)."""

    def unknown(document: dict[str, Any]) -> bool:
        node.kubelet.checkpoint_path.write_text("{}")
        node.hang_up()
        return bool(document["held_unknown_because"])

    return node.wait_status(unknown)


def test_what_can_shrink_waits_while_nobody_knows_what_is_held() -> None:
    """No PodResources and no readable checkpoint: the change waits, with the reason (design 8, Held devices)."""
    with Node(t4s(2), shared(4), kubelet=_blind, speed=20) as node:
        node.kubelet.start()
        node.run()
        node.wait_ready()
        document = _spoil_checkpoint(node)
        assert "pod-resources" in document["held_unknown_because"]
        node.write_config(shared(2))
        document = node.wait_status(lambda d: d["waiting"])
        assert "knowledge of what pods hold" in document["waiting"][0]["waits_for"]
        assert len(node.listed()) == 8
        assert node.healthy() == set(node.listed()), "nothing shrinks, nothing is refused"
        # What only grows goes ahead.
        node.write_config(shared(5))
        node.wait_list(has(10))
        _spoil_checkpoint(node)
        node.write_config(shared(2))
        node.wait_status(lambda d: d["waiting"])
        assert len(node.listed()) == 10
        # The kubelet is seen again: the change comes into force.
        (node.root / "pod-resources").symlink_to(node.root / "kubelet" / "pod-resources")
        node.until(lambda: len(node.listed()) == 4)
        assert node.status()["held_unknown_because"] == ""


def test_many_allocates_while_lists_change_and_none_of_them_is_dropped_in_flight() -> None:
    """L17 panics the stand-in, as it does the real kubelet; A14: ids of a running Allocate are lost by List."""
    with Quick(t4s(2), shared(8)) as node:
        node.run()
        node.wait_ready()
        stop = threading.Event()

        def edit() -> None:
            for number in range(10_000):
                if stop.is_set():
                    return
                node.write_config(shared(8 if number % 2 else 2))
                node.hang_up()
                stop.wait(0.03)

        editor = threading.Thread(target=edit, name="editor", daemon=True)
        editor.start()
        try:
            rejected = 0
            for number in range(150):
                pod = node.pod(f"p{number}", {GPU: 1})
                rejected += pod.phase == "Failed"
                node.kubelet.end(pod.uid)
        finally:
            stop.set()
            editor.join(10)
        sizes = {len(record.ids) for record in node.kubelet.resources[GPU].lists}
        assert len(sizes) > 1, "no list changed: nothing was tried"
        # Pods that the kubelet gave a share which was being withdrawn fail (X2); what no edit touches serves the rest.
        reasons = {pod.message for pod in node.kubelet.pods() if pod.phase == "Failed"}
        assert all("draining" in one or "unknown device" in one or "unhealthy" in one.lower() for one in reasons), (
            reasons
        )
        assert rejected < 75
        node.write_config(shared(3))
        node.until(lambda: len(node.listed()) == 6)


def test_two_kubelet_restarts_within_100_ms_in_the_middle_of_a_reload() -> None:
    with Quick(t4s(2), shared(2)) as node:
        node.run()
        node.wait_ready()
        pod = node.pod("p", {GPU: 1})
        (held,) = pod.ids(GPU)
        for round_, replicas in enumerate((3, 4, 5)):
            node.write_config(shared(replicas))
            with deadline(10):
                node.kubelet.restart()
                node.kubelet.restart()
                node.wait_list(has(2 * replicas))
            assert held in node.healthy(), round_
        for record in node.kubelet.resources[GPU].lists:
            assert held in record.ids or record.at < node.kubelet.resources[GPU].calls("Allocate")[0].at
        # No busy loop: each restart is a registration or two, not a storm of them.
        assert len(node.kubelet.resources[GPU].registrations) < 20
        node.all_is_well_with(pod)


def test_a_directory_replaced_in_the_middle_of_a_transition() -> None:
    with Quick(t4s(2), shared(2)) as node:
        node.run()
        node.wait_ready()
        pod = node.pod("p", {GPU: 1})
        (held,) = pod.ids(GPU)
        node.write_config(shared(2, rename=True))
        node.wait_listed(SHARED_NAME)
        node.kubelet.stop()
        node.kubelet.replace_directory(keep_checkpoint=True)
        lists = len(node.kubelet.resources[GPU].lists)
        node.kubelet.start()
        node.kubelet.wait_for(lambda: len(node.kubelet.resources[GPU].lists) > lists)
        assert node.kubelet.resources[GPU].lists[lists].ids == (held,)
        node.kubelet.end(pod.uid)
        node.until(lambda: len(node.listed(SHARED_NAME)) == 4)


def test_an_inventory_that_changes_while_the_config_does() -> None:
    """A GPU is added by hot plug in the same moment as an edit: one diff of both."""
    with Quick(t4s(2), shared(2)) as node:
        node.run()
        node.wait_ready()
        node.set_node(t4s(3))
        node.write_config(shared(3))
        node.until(lambda: len(node.listed()) == 9)
        temporary = node.node_file.with_suffix(".new")
        temporary.write_text(dump_document(node_text_to_description(t4s(1), faults=())))
        temporary.rename(node.node_file)
        node.until(lambda: len(node.listed()) == 3)
        never_offered_twice(node.kubelet, EVERY_NAME, ON_GPU_0)


def test_sigterm_in_the_middle_of_a_transition_ends_it_within_two_seconds() -> None:
    with Quick(t4s(2), shared(2)) as node:
        node.run()
        node.wait_ready()
        node.pod("p", {GPU: 1})
        node.write_config(shared(2, rename=True))
        node.wait_status(lambda d: d["waiting"])
        with deadline(2):
            assert node.stop() == 0
        assert node.sockets() == {}
        try:
            node.kubelet.tick()
        except KubeletStopped as error:
            raise AssertionError("the kubelet is still there") from error
