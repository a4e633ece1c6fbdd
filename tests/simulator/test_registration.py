"""Registration: R2 to R14, and the faults that a bad node shows."""

from __future__ import annotations

import socket
import threading

import grpc
import pytest

from deviceplugin.simulator import Clock
from deviceplugin.simulator.registration import is_extended_resource_name
from deviceplugin.stubs import deviceplugin_v1beta1_pb2 as pb
from tests.simulator.naive_plugin import RESOURCE
from tests.simulator.node import Node, holds, in_thread, pod, refusal


def test_order_of_a_registration(node: Node) -> None:
    """R6, R8: options are asked for once, before the answer; the stream starts before or with it."""
    kubelet = node.kubelet()
    node.registered(kubelet)
    methods = [(r.method, r.phase) for r in kubelet.resources[RESOURCE].rpcs]
    assert methods == [
        ("GetDevicePluginOptions", "begin"),
        ("GetDevicePluginOptions", "end"),
        ("ListAndWatch", "begin"),
    ]
    assert [r.error for r in kubelet.registrations] == [None]


def test_version_is_checked_before_the_name(node: Node) -> None:
    """R3: both texts, both with code Unknown, and no dial."""
    kubelet = node.kubelet()
    plugin = node.plugin()
    code, text = refusal(lambda: plugin.register(version="v1", name="no slash"))
    assert code is grpc.StatusCode.UNKNOWN
    assert text == 'requested API version "v1" is not supported by kubelet. Supported version is "v1beta1"'
    code, text = refusal(lambda: plugin.register(name="no slash"))
    assert (code, text) == (grpc.StatusCode.UNKNOWN, 'the ResourceName "no slash" is invalid')
    assert plugin.seen == []
    assert [r.error is None for r in kubelet.registrations] == [False, False]


@pytest.mark.parametrize(
    "name",
    ["k8s.io/x", "ex/x", "nvidia.com/GPU.Shared_1", "a" * 63 + "." + "b" * 180 + "/x", "e/" + "n" * 63, "a-b.c/d"],
)
def test_valid_names(name: str) -> None:
    """R4."""
    assert is_extended_resource_name(name)


@pytest.mark.parametrize(
    "name",
    [
        *("", "gpu", "a/b/c", "kubernetes.io/x", "x.kubernetes.io/y", "xkubernetes.io/y", "requests.a/x"),
        *("Nvidia.com/gpu", "n_v/x", "a/x+y", "a/x:y", "a/-x", "a/x.", "a/", "/x", "a..b/x", "-a/x"),
        *("a" * 245 + "/x", "e/" + "n" * 64, "a/x\n", "a\n/x"),
    ],
)
def test_invalid_names(name: str) -> None:
    """R4."""
    assert not is_extended_resource_name(name)


def test_endpoint_is_joined_and_cleaned(node: Node) -> None:
    """R5: sub-directories work, a leading slash stays below the directory, `..` escapes it."""
    kubelet = node.kubelet()
    (node.directory / "sub").mkdir()
    for number, (endpoint, sent) in enumerate(
        [("sub/p.sock", "sub/p.sock"), ("q.sock", "/q.sock"), ("../r.sock", "x/../../r.sock")]
    ):
        plugin = node.plugin(["a"], f"e.com/r{number}", endpoint=endpoint)
        plugin.register(endpoint=sent)
    assert [r.error for r in kubelet.registrations] == [None, None, None]


@pytest.mark.parametrize("endpoint", ["", "missing.sock", "mute.sock"])
def test_dial_takes_the_full_cap_then_fails(node: Node, endpoint: str) -> None:
    """R5, R7: the directory itself, a missing file, and a listener that does not speak HTTP/2."""
    kubelet = node.kubelet(clock=Clock(scale=50))
    plugin = node.plugin()
    with socket.socket(socket.AF_UNIX) as mute:
        mute.bind(str(node.directory / "mute.sock"))
        mute.listen()
        before = kubelet.clock.now()
        code, text = refusal(lambda: plugin.register(endpoint=endpoint))
    assert (code, text) == (
        grpc.StatusCode.UNKNOWN,
        "failed to dial device plugin: context deadline exceeded",
    )
    assert kubelet.clock.now() - before >= 10


def test_dial_is_bounded_by_the_callers_deadline(node: Node) -> None:
    """R7: the clock stands still, so only the caller's own deadline can end this dial."""
    kubelet = node.kubelet()
    plugin = node.plugin()
    code, _ = refusal(lambda: plugin.register(endpoint="missing.sock", timeout=0.2))
    assert code is grpc.StatusCode.DEADLINE_EXCEEDED
    kubelet.wait_for(lambda: kubelet.registrations)
    assert kubelet.registrations[0].error is not None


def test_options_have_no_deadline_of_their_own(node: Node) -> None:
    """R8: an hour of kubelet time does not end the wait; the caller's deadline does."""
    kubelet = node.kubelet()
    plugin = node.plugin()
    plugin.block_options()
    ended: list[grpc.StatusCode] = []
    thread = in_thread(lambda: ended.append(refusal(lambda: plugin.register(timeout=0.5))[0]))
    kubelet.wait_for(lambda: kubelet.resources[RESOURCE].calls("GetDevicePluginOptions"))
    kubelet.clock.advance(3600)
    thread.join(10)
    assert ended == [grpc.StatusCode.DEADLINE_EXCEEDED]
    kubelet.wait_for(lambda: kubelet.registrations)
    assert "ListAndWatch" not in plugin.seen


def test_options_error_fails_register(node: Node) -> None:
    """R8: and ListAndWatch is never called."""
    node.kubelet()
    plugin = node.plugin()
    plugin.options_error = "not now"
    code, text = refusal(plugin.register)
    assert code is grpc.StatusCode.UNKNOWN
    assert text.startswith("failed to get device plugin options")
    assert plugin.seen == ["GetDevicePluginOptions"]


def test_options_in_the_request_are_ignored(node: Node) -> None:
    """R9."""
    kubelet = node.kubelet()
    plugin = node.plugin(["a", "b"])
    plugin.register(options=pb.DevicePluginOptions(pre_start_required=True, get_preferred_allocation_available=True))
    kubelet.wait_for(lambda: kubelet.resources[RESOURCE].lists)
    holds(kubelet.admit(pod()))
    assert "GetPreferredAllocation" not in plugin.seen
    assert "PreStartContainer" not in plugin.seen


def test_newest_wins_and_the_old_stream_is_still_consumed(node: Node) -> None:
    """R11: each list from either stream replaces the whole resource; RPCs go to the newest."""
    kubelet = node.kubelet()
    old = node.registered(kubelet, ["a"])
    new = node.registered(kubelet, ["b"], endpoint="new.sock")
    assert kubelet.local()[RESOURCE].healthy == {"b"}
    node.push(kubelet, old, ["c", "d"])
    assert kubelet.local()[RESOURCE].healthy == {"c", "d"}
    assert old.open_streams == new.open_streams == 1
    holds(kubelet.admit(pod()))
    assert ("Allocate" in old.seen, "Allocate" in new.seen) == (False, True)


def test_r12_the_old_streams_end_takes_the_new_connection_down(node: Node) -> None:
    """R12: even a clean end."""
    kubelet = node.kubelet()
    old = node.registered(kubelet, ["a"])
    new = node.registered(kubelet, ["a"], endpoint="new.sock")
    old.end_streams()
    kubelet.wait_for(lambda: len(kubelet.resources[RESOURCE].finished("ListAndWatch")) == 2)
    kubelet.wait_for(lambda: kubelet.local()[RESOURCE].stopped)
    local = kubelet.local()[RESOURCE]
    assert (set(local.healthy), set(local.unhealthy)) == (set(), {"a"})
    node.register(kubelet, new)  # the cure
    assert kubelet.local()[RESOURCE].healthy == {"a"}


@pytest.mark.parametrize("failure", ["dial", "options"])
def test_r13_a_failed_registration_makes_a_zombie(node: Node, failure: str) -> None:
    """R13: the older client feeds on, nobody marks the resource when it dies, Allocate fails with Unavailable."""
    kubelet = node.kubelet(clock=Clock(scale=50))
    old = node.registered(kubelet, ["a"])
    other = node.plugin(["a"], endpoint="other.sock")
    other.options_error = "no"
    refusal(lambda: other.register(endpoint="missing.sock" if failure == "dial" else None))
    node.push(kubelet, old, ["a", "b"])
    old.stop()
    kubelet.wait_for(lambda: kubelet.resources[RESOURCE].finished("ListAndWatch"))
    kubelet.clock.advance(400)
    kubelet.tick()
    assert kubelet.node_status()[RESOURCE] == (2, 2)
    rejected = kubelet.admit(pod())
    assert "code = Unavailable" in rejected.message
    other.options_error = ""
    node.register(kubelet, other)
    holds(kubelet.admit(pod("q")))


def test_registering_again_opens_one_more_stream(node: Node) -> None:
    """R14."""
    kubelet = node.kubelet()
    plugin = node.registered(kubelet)
    node.register(kubelet, plugin)
    assert plugin.open_streams == 2
    assert {record.connection for record in kubelet.resources[RESOURCE].lists} == {1, 2}


def test_registrations_can_be_refused_and_late(node: Node) -> None:
    """Faults of a node: a text N times; and an answer that comes after the stream has begun (R6)."""
    kubelet = node.kubelet()
    plugin = node.plugin(["a"])
    kubelet.refuse_registrations("no room", times=2)
    assert [refusal(plugin.register)[1] for _ in range(2)] == ["no room", "no room"]
    kubelet.delay_registrations(30)
    answered = threading.Event()

    def register() -> None:
        plugin.register()
        answered.set()

    thread = in_thread(register)
    kubelet.wait_for(lambda: kubelet.resources[RESOURCE].lists)
    assert not answered.is_set()
    kubelet.clock.advance(30)
    thread.join(10)
    assert answered.is_set()


def test_registrations_may_run_side_by_side(node: Node) -> None:
    """R6, X5: a plugin that does not answer holds up nobody else."""
    kubelet = node.kubelet()
    stuck = node.plugin([], "e.com/stuck")
    stuck.block_options()
    thread = in_thread(lambda: refusal(lambda: stuck.register(timeout=60)))
    kubelet.wait_for(lambda: kubelet.resources["e.com/stuck"].calls("GetDevicePluginOptions"))
    node.registered(kubelet, ["a"], "e.com/other")
    stuck.options_error = "late"
    stuck.stop()
    thread.join(10)


def test_message_limit_of_the_registration_server(node: Node) -> None:
    """R2: 4 MiB."""
    node.kubelet()
    plugin = node.plugin()
    code, _ = refusal(lambda: plugin.register(name="x" * (4 * 1024 * 1024)))
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
