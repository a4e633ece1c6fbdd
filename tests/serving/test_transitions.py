"""Every row of the contract's section 6: changing what is advertised while pods run, through the real daemon."""

import os
import signal
from collections.abc import Iterator
from functools import partial

import pytest

from deviceplugin.simulator import AdmittedPod, Container, Kubelet, Pod
from tests.serving.harness import Node, envs, gpu_uuid, t4s
from tests.serving.moments import never_offered_twice, unit_of
from tests.serving.test_reload import GPU, SHARED_NAME, has, mixed, shared

SPEED = 20
"""The daemon's half a minute is a second and a half here."""

SMALL, LARGE, MIDDLE = "nvidia.com/mig-1g.5gb", "nvidia.com/mig-3g.20gb", "nvidia.com/mig-2g.10gb"
PLAIN = "version: v1\n"
MIXED = "version: v1\nflags:\n  migStrategy: mixed\n"

_A100 = """\
driver 570.133.20 cuda=12080
gpu 0 model=a100-40gb uuid=GPU-00000000-0000-4000-8000-000000000000 minor=0 bus=00000000:10:00.0 numa=0 mig=1
"""


def instance(number: int) -> str:
    return f"MIG-00000000-{number:04d}-4000-8000-000000000000"


def slices(*lines: str) -> str:
    """A node of one A100 with these MIG instances."""
    return _A100 + "".join(f"mig gpu=0 ci=0 {line}\n" for line in lines)


THREE_G = f"slot=0 gi=2 giprofile=2 ciprofile=2 start=0 size=4 uuid={instance(2)}"
ONE_G = f"slot=1 gi=7 giprofile=0 ciprofile=0 start=4 size=1 uuid={instance(7)}"
TWO_G = f"slot=1 gi=5 giprofile=1 ciprofile=1 start=4 size=2 uuid={instance(5)}"
NEW_ONE_G = f"slot=1 gi=8 giprofile=0 ciprofile=0 start=4 size=1 uuid={instance(8)}"
ON_GPU_0 = {instance(number): gpu_uuid(0) for number in (2, 5, 7, 8)}

EVERY_NAME = (GPU, SHARED_NAME, SMALL, LARGE, MIDDLE, "nvidia.com/mig-1g.5gb.shared")


class Quick(Node):
    """A node whose daemon's clock runs faster, and which judges every moment of its run at the end."""

    def __init__(self, text: str, config: str | None = None, *, driver: str = "simulated") -> None:
        super().__init__(text, config, driver=driver, speed=SPEED)

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is None:
            never_offered_twice(self.kubelet, EVERY_NAME, ON_GPU_0)
            assert self.kubelet.faults == ()
        super().__exit__(kind, *rest)

    def wait_unhealthy(self, device_id: str, resource: str = GPU) -> None:
        """Wait until a device is listed, Unhealthy."""
        self.kubelet.wait_for(
            lambda: device_id in self.listed(resource) and device_id not in self.healthy(resource), 15
        )

    def all_is_well_with(self, pod: AdmittedPod) -> None:
        """The pod runs, and its containers can be started again with the answer that they had (A16, A25)."""
        before = pod.containers["main"].options
        assert self.kubelet.pod(pod.uid).phase == "Running"
        assert self.kubelet.restart_container(pod.uid, "main").status == "running"
        assert self.kubelet.pod(pod.uid).containers["main"].options == before

    def streams(self) -> dict[str, set[int]]:
        """The connections over which each resource's lists came."""
        histories = {name: self.kubelet.resources[name].lists for name in EVERY_NAME}
        return {name: {record.connection for record in lists} for name, lists in histories.items() if lists}


@pytest.fixture
def node(request: pytest.FixtureRequest) -> Iterator[Quick]:
    """A ready node, made from the parameters (text, config, names to wait for)."""
    text, config, *names = request.param
    with Quick(text, config) as made:
        made.run(*names)
        made.wait_ready()
        yield made


def on(text: str, config: str, *names: str) -> pytest.MarkDecorator:
    """Run the test on such a node."""
    return pytest.mark.parametrize("node", [(text, config, *(names or (GPU,)))], indirect=True, ids=["node"])


@on(t4s(2), PLAIN)
def test_add_a_resource(node: Quick) -> None:
    pod = node.pod("p", {GPU: 1})
    free = gpu_uuid(1) if pod.ids(GPU) == {gpu_uuid(0)} else gpu_uuid(0)
    before = node.sockets()
    node.write_config(shared(2, f"[{free}]", rename=True))
    node.wait_listed(SHARED_NAME)
    assert node.listed(SHARED_NAME) == (f"{free}::0", f"{free}::1")
    assert before.items() <= node.sockets().items(), "the other resource's socket is the same"
    assert len(node.kubelet.resources[GPU].registrations) == 1
    assert node.pod("q", {SHARED_NAME: 1}).phase == "Running"
    node.all_is_well_with(pod)


@on(t4s(2), shared(2))
def test_grow(node: Quick) -> None:
    pod = node.pod("p", {GPU: 1})
    before = node.listed()
    node.write_config(shared(5))
    node.wait_list(has(10))
    assert set(before) < set(node.listed())
    assert node.healthy() == set(node.listed())
    assert len(node.kubelet.resources[GPU].lists) == 2
    node.all_is_well_with(pod)


@on(t4s(2), shared(4))
def test_shrink_only_free_ids(node: Quick) -> None:
    node.write_config(shared(2))
    node.wait_list(has(4))
    assert node.healthy() == {f"{gpu_uuid(gpu)}::{n}" for gpu in range(2) for n in range(2)}
    assert len(node.kubelet.resources[GPU].lists) == 2
    assert node.status()["waiting"] == []


@on(t4s(1), shared(10))
def test_shrink_below_what_is_held(node: Quick) -> None:
    """10 replicas to 4 with 6 held: those 6 stay, no more are offered until they end (issue 5, 4; L14 to L18)."""
    pods = [node.pod(f"p{n}", {GPU: 1}) for n in range(6)]
    held = {device_id for pod in pods for device_id in pod.ids(GPU)}
    node.write_config(shared(4))
    wanted = {f"{gpu_uuid(0)}::{n}" for n in range(4)}
    node.wait_list(lambda ids: set(ids) == held | wanted)
    for surplus in held - wanted:
        node.wait_unhealthy(surplus)
    assert node.healthy() == wanted
    for free in range(len(wanted - held)):
        assert node.pod(f"more{free}", {GPU: 1}).phase == "Running"
    assert node.pod("too-many", {GPU: 1}).phase == "Failed"
    for pod in pods:
        node.all_is_well_with(pod)
    for pod in pods:
        node.kubelet.end(pod.uid)
        gone = pod.ids(GPU) - wanted
        node.until(lambda gone=gone: not gone & set(node.listed()))  # type: ignore[misc]
    assert set(node.listed()) == node.healthy() == wanted
    node.wait_status(lambda d: not d["waiting"])


@on(slices(THREE_G, ONE_G), MIXED, SMALL, LARGE)
def test_replace_all_ids_of_a_resource(node: Quick) -> None:
    """A MIG instance is destroyed and made anew by another tool: same name, other UUID."""
    pod = node.pod("p", {SMALL: 1})
    node.set_node(slices(THREE_G, NEW_ONE_G))
    node.until(lambda: instance(8) in node.listed(SMALL))
    assert node.healthy(SMALL) == {instance(8)}
    assert set(node.listed(SMALL)) == {instance(7), instance(8)}, "the held one stays, Unhealthy: its hardware is gone"
    assert node.pod("q", {SMALL: 1}).ids(SMALL) == {instance(8)}
    assert node.kubelet.pod(pod.uid).phase == "Running"
    node.kubelet.end(pod.uid)
    node.until(lambda: node.listed(SMALL) == (instance(8),))
    assert len(node.kubelet.resources[LARGE].lists) == 1


@on(t4s(2), shared(2))
def test_replica_count_2_to_4_keeps_its_slots(node: Quick) -> None:
    pods = [node.pod(f"p{n}", {GPU: 1}) for n in range(4)]
    node.write_config(shared(4))
    node.wait_list(has(8))
    assert node.healthy() == {f"{gpu_uuid(gpu)}::{n}" for gpu in range(2) for n in range(4)}
    more = [node.pod(f"q{n}", {GPU: 1}) for n in range(4)]
    given = [device_id for pod in [*pods, *more] for device_id in pod.ids(GPU)]
    assert len(set(given)) == 8, "no share was given to two pods"


@on(t4s(2), shared(2))
def test_rename_a_resource(node: Quick) -> None:
    pod = node.pod("p", {GPU: 1})
    (held,) = pod.ids(GPU)
    node.write_config(shared(2, rename=True))
    node.wait_listed(SHARED_NAME)
    node.wait_unhealthy(held)
    assert node.listed() == (held,)
    free = gpu_uuid(1) if unit_of(held) == gpu_uuid(0) else gpu_uuid(0)
    assert set(node.listed(SHARED_NAME)) == {f"{free}::0", f"{free}::1"}
    node.all_is_well_with(pod)
    node.kubelet.end(pod.uid)
    node.until(lambda: len(node.listed(SHARED_NAME)) == 4)
    assert node.listed() == ()
    # Its stream stays open for a while, then its server ends (L9, A25); the key stays at 0 in node status (L10).
    node.wait_status(lambda d: [one["name"] for one in d["resources"]] == [SHARED_NAME])
    assert node.sockets().keys() == {"nvidia-gpu.shared.sock"}


@on(t4s(2), shared(2, "[1]"), GPU, SHARED_NAME)
def test_remove_a_resource(node: Quick) -> None:
    """Its holders can restart their containers for as long as they live (A25), however late that is."""
    pod = node.pod("p", {SHARED_NAME: 1})
    (held,) = pod.ids(SHARED_NAME)
    node.write_config("version: v1\ndevices:\n  exclude: [1]\n")
    node.wait_unhealthy(held, SHARED_NAME)
    assert node.listed(SHARED_NAME) == (held,)
    assert node.listed() == (gpu_uuid(0),)
    node.kubelet.clock.advance(3600)
    node.kubelet.tick()
    node.all_is_well_with(pod)
    node.kubelet.end(pod.uid)
    node.until(lambda: node.listed(SHARED_NAME) == ())
    node.wait_status(lambda d: [one["name"] for one in d["resources"]] == [GPU])


@on(t4s(1), shared(2, rename=True), SHARED_NAME)
def test_shared_to_exclusive(node: Quick) -> None:
    pods = [node.pod(f"p{n}", {SHARED_NAME: 1}) for n in range(2)]
    node.write_config(PLAIN)
    node.wait_status(lambda d: d["waiting"])
    assert node.listed() == (), "whole GPU and shares at the same time"
    for pod in pods:
        node.all_is_well_with(pod)
        node.kubelet.end(pod.uid)
        node.until(lambda pod=pod: not pod.ids(SHARED_NAME) & set(node.listed(SHARED_NAME)))  # type: ignore[misc]
    node.wait_list(has(1))
    assert envs(node.pod("q", {GPU: 1}))["NVIDIA_VISIBLE_DEVICES"] == gpu_uuid(0)


@on(t4s(2), PLAIN)
def test_exclusive_to_shared(node: Quick) -> None:
    pod = node.pod("p", {GPU: 1})
    (held,) = pod.ids(GPU)
    node.write_config(shared(3))
    node.wait_list(has(4))
    node.wait_unhealthy(held)
    assert not any(one.startswith(f"{held}::") for one in node.listed())
    node.all_is_well_with(pod)
    node.kubelet.end(pod.uid)
    node.wait_list(has(4))
    node.until(lambda: len(node.listed()) == 6)
    assert len(node.kubelet.resources[GPU].registrations) == 1


@on(slices(THREE_G, ONE_G), MIXED, SMALL, LARGE)
def test_mig_repartition_of_the_free_part_while_a_sibling_is_held(node: Quick) -> None:
    pod = node.pod("p", {LARGE: 1})
    node.set_node(slices(THREE_G, TWO_G))
    node.hang_up()
    node.wait_listed(MIDDLE)
    assert node.listed(MIDDLE) == (instance(5),)
    node.kubelet.wait_for(lambda: node.listed(SMALL) == ())
    assert node.healthy(LARGE) == {instance(2)}
    assert len(node.kubelet.resources[LARGE].lists) == 1, "the sibling's resource is not touched"
    node.all_is_well_with(pod)
    assert node.pod("q", {MIDDLE: 1}).phase == "Running"


@on(slices(THREE_G, ONE_G), MIXED, SMALL, LARGE)
def test_mig_to_whole_gpu_waits_for_every_slice(node: Quick) -> None:
    """migStrategy none offers the whole GPU; while any slice is held it must not (L21)."""
    small, large = node.pod("s", {SMALL: 1}), node.pod("l", {LARGE: 1})
    node.write_config(PLAIN)
    node.wait_status(lambda d: len(d["waiting"]) == 2)
    assert node.listed() == ()
    assert node.pod("late", {SMALL: 1}).phase == "Failed"
    for pod, name in ((small, SMALL), (large, LARGE)):
        assert node.listed() == ()
        node.all_is_well_with(pod)
        node.kubelet.end(pod.uid)
        node.until(lambda name=name: node.listed(name) == ())  # type: ignore[misc]
    node.wait_list(has(1))
    assert node.listed() == (gpu_uuid(0),)


@on(slices(THREE_G, ONE_G), MIXED, SMALL, LARGE)
def test_a_half_applied_mig_layout_is_left_out_with_its_reason(node: Quick) -> None:
    """Another tool has removed the instances and not made the new ones yet (issue 5, 7)."""
    node.set_node(slices())
    node.until(lambda: node.listed(SMALL) == node.listed(LARGE) == ())
    document = node.wait_status(lambda d: d["plan"]["left_out"])
    assert "MIG" in document["plan"]["left_out"][0]["reason"]
    node.set_node(slices(THREE_G, NEW_ONE_G))
    node.until(lambda: node.listed(SMALL) == (instance(8),) and node.listed(LARGE) == (instance(2),))


@on(t4s(2), shared(2))
def test_a_held_device_becomes_bad(node: Quick) -> None:
    """It stays listed, Unhealthy (L15, L16); a change of the plan does not drop it either."""
    pod = node.pod("p", {GPU: 1})
    (held,) = pod.ids(GPU)
    bad = int(unit_of(held) == gpu_uuid(1))
    driver, *gpus = t4s(2).splitlines(keepends=True)
    node.set_node(driver + gpus[1 - bad].replace(f"gpu {1 - bad} ", "gpu 0 "))
    node.until(lambda: held not in node.healthy())
    assert held in node.listed()
    node.write_config(shared(3))
    node.until(lambda: len(node.healthy()) == 3)
    assert held in node.listed()
    assert node.kubelet.pod(pod.uid).phase == "Running"


@on(t4s(1), shared(2))
def test_options_never_change(node: Quick) -> None:
    """A change of options costs a registration and a moment of Unhealthy devices; ours are always the same (R9)."""
    node.write_config(PLAIN)
    node.wait_list(has(1))
    assert len(node.kubelet.resources[GPU].calls("GetDevicePluginOptions")) == 1


@on(t4s(2), shared(2))
def test_plugin_restart_in_the_middle_of_a_transition(node: Quick) -> None:
    """Same ids, and every held id in the first list of the new process."""
    pod = node.pod("p", {GPU: 1})
    (held,) = pod.ids(GPU)
    node.write_config(shared(2, rename=True))
    node.wait_listed(SHARED_NAME)
    node.wait_unhealthy(held)
    node.stop()
    lists = len(node.kubelet.resources[GPU].lists)
    node.start()
    node.kubelet.wait_for(lambda: len(node.kubelet.resources[GPU].lists) > lists)
    assert node.kubelet.resources[GPU].lists[lists].ids == (held,)
    node.wait_status(lambda d: d["waiting"])
    node.all_is_well_with(pod)
    node.kubelet.end(pod.uid)
    node.until(lambda: len(node.listed(SHARED_NAME)) == 4 and node.listed() == ())


@on(t4s(2), shared(2))
def test_plugin_upgrade_with_an_overlap(node: Quick) -> None:
    """Two instances, then the older one ends: the survivor is registered again at once (R11, R12; issue 5, 6).

    A stream that ends takes with it whatever is registered under its name when the kubelet gets to look (R12). That may
    be a registration that answered the end of another stream already, so it can take the survivor more than one.
    """
    pod = node.pod("p", {GPU: 1})
    old = node.process
    assert old is not None
    node.start()
    node.kubelet.wait_for(lambda: len(node.kubelet.resources[GPU].lists) == 2)
    old.send_signal(signal.SIGTERM)
    assert old.wait(10) == 0
    node.kubelet.wait_for(lambda: _streams_of(node.kubelet) >= 3)
    _wait_until_no_stream_ends(node.kubelet)
    assert len(node.kubelet.local()[GPU].healthy) == 4
    node.kubelet.tick()
    assert node.kubelet.node_status()[GPU] == (4, 4)
    node.all_is_well_with(pod)
    assert node.pod("q", {GPU: 1}).phase == "Running"


def _wait_until_no_stream_ends(kubelet: Kubelet) -> None:
    def more_ended_than(count: int) -> bool:
        return len(kubelet.resources[GPU].finished("ListAndWatch")) > count

    for _ in range(5):
        count = len(kubelet.resources[GPU].finished("ListAndWatch"))
        try:
            kubelet.wait_for(partial(more_ended_than, count), 1)
        except TimeoutError:
            return
    raise AssertionError("streams go on ending")


def _streams_of(kubelet: Kubelet) -> int:
    return len({record.connection for record in kubelet.resources[GPU].lists})


@on(slices(THREE_G, ONE_G), mixed(2), SMALL, LARGE)
def test_config_reload_in_process(node: Quick) -> None:
    before, streams = node.sockets(), node.streams()
    for replicas in (3, 5, 2):
        node.write_config(mixed(replicas))
        node.wait_list(has(replicas), SMALL)
    assert node.sockets() == before
    assert node.streams() == streams
    assert len(node.kubelet.resources[LARGE].lists) == 1


INIT = Pod(
    "with-init",
    containers=(Container("setup", {GPU: 1}, "init"), Container("main", {GPU: 1})),
)


@on(t4s(2), shared(2))
def test_kubelet_restart_in_the_middle_of_a_transition_with_a_finished_init_container(node: Quick) -> None:
    """A29: the kubelet fails such a pod when a held id of it is gone or Unhealthy at re-admission."""
    pod = node.kubelet.admit(INIT)
    assert pod.phase == "Running", pod.message
    held = pod.ids(GPU)
    node.write_config(shared(2, rename=True))
    node.wait_listed(SHARED_NAME)
    for one in held:
        node.wait_unhealthy(one)
    node.kubelet.restart(readmit=False)
    lists = len(node.kubelet.resources[GPU].lists)
    node.kubelet.wait_for(lambda: len(node.kubelet.resources[GPU].lists) > lists)
    first = node.kubelet.resources[GPU].lists[lists]
    assert set(first.ids) == held
    assert first.healthy == held, "Healthy while pods are admitted again"
    node.kubelet.readmit()
    assert node.kubelet.pod(pod.uid).phase == "Running", node.kubelet.pod(pod.uid).message
    assert node.pod("late", {GPU: 1}).phase == "Failed", "listed Healthy, yet never given out"
    for one in held:
        node.wait_unhealthy(one)
    node.kubelet.end(pod.uid)
    node.until(lambda: len(node.listed(SHARED_NAME)) == 4)


@on(t4s(2), shared(2))
def test_checkpoint_deleted_by_an_operator(node: Quick) -> None:
    """A31: the kubelet forgets who holds what, and the pods run on. What they hold stays listed (P8)."""
    pod = node.pod("p", {GPU: 1})
    (held,) = pod.ids(GPU)
    node.until(lambda: held in str(node.status()["resources"][0]["held"]))
    node.write_config(shared(2, rename=True))
    node.wait_listed(SHARED_NAME)
    node.kubelet.stop()
    os.unlink(node.kubelet.checkpoint_path)
    lists = len(node.kubelet.resources[GPU].lists)
    node.kubelet.start()
    node.kubelet.wait_for(lambda: len(node.kubelet.resources[GPU].lists) > lists)
    for record in node.kubelet.resources[GPU].lists[lists:]:
        assert held in record.ids
    assert not any(unit_of(one) == unit_of(held) for one in node.listed(SHARED_NAME))
    assert node.kubelet.pod(pod.uid).phase == "Running"
