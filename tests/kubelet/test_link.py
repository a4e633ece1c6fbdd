"""The link against the stand-in kubelet: registration, restarts of every kind, traps, neighbours, stopping."""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Self

import grpc
import pytest

from deviceplugin.errors import KubeletError
from deviceplugin.kubelet.link import KubeletLink, Registered, RegistrationFailed, SocketConflict, StreamLost
from deviceplugin.kubelet.registration import Registration
from deviceplugin.kubelet.unix import answers, identity, target
from deviceplugin.stubs import deviceplugin_v1beta1_pb2 as pb
from tests.allocation.offers import gpu, ids_of, offer
from tests.kubelet.node import GPU, Client, Node, Plugin, Watching, eventually, pod, runs, unhealthy

SHARED = "nvidia.com/gpu.shared"


def three() -> tuple[str, ...]:
    return GPU, SHARED, "example.com/other"


def open_three(node: Node) -> Plugin:
    return node.registered(*(offer(gpu(index), name=name) for index, name in enumerate(three())))


def registrations(node: Node, name: str = GPU) -> int:
    return sum(record.resource == name and record.error is None for record in node.kubelet.registrations)


def healthy(node: Node, name: str = GPU) -> int:
    resource = node.kubelet.local().get(name)
    return 0 if resource is None else resource.allocatable


# -- registration ----------------------------------------------------------------------------------------------


def test_a_pod_runs(node: Node) -> None:
    plugin = node.registered(offer(gpu(0, 4), gpu(1, 4)))
    admitted = node.kubelet.admit(pod(count=2))
    assert runs(admitted) == plugin.ledger.held().of(GPU)
    options = admitted.containers["c"].options
    assert options is not None
    assert sorted(options.envs["NVIDIA_VISIBLE_DEVICES"].split(",")) == [gpu(0).uuid, gpu(1).uuid]


def test_each_resource_has_a_server_and_is_registered_once(node: Node) -> None:
    plugin = open_three(node)
    assert node.sockets() == {"nvidia-gpu.sock", "nvidia-gpu.shared.sock", "nvidia-example.com_other.sock"}
    assert [registrations(node, name) for name in three()] == [1, 1, 1]
    for name, state in plugin.link.states().items():
        assert (state.registered, state.stream_open, state.streams_open) == (True, True, 1), name
        assert (state.registrations, state.lists_sent, state.last_error, state.awaiting) == (1, 1, "", ""), name
    assert plugin.count(Registered) == 3


def test_opening_again_only_changes_the_answers(node: Node) -> None:
    plugin = node.registered(offer(gpu(0)))
    plugin.link.open(replace(offer(gpu(0)), refused={gpu(0).uuid: "held elsewhere"}))
    assert "held elsewhere" in node.kubelet.admit(pod()).message
    assert registrations(node) == 1


def test_registering_again_on_demand_is_one_registration_and_touches_nobody_else(node: Node) -> None:
    """R13: the cure for a kubelet that has lost us without a word; our stream ends first (R12)."""
    plugin = open_three(node)
    plugin.link.register_again(GPU)
    eventually(lambda: registrations(node) == 2 and healthy(node) == 1)
    assert [registrations(node, name) for name in three()] == [2, 1, 1]
    assert runs(node.kubelet.admit(pod()))


def test_a_refused_registration_is_tried_again_and_delays_nobody(node: Node) -> None:
    node.kubelet.refuse_registrations("not today", times=2)
    plugin = open_three(node)
    failed = [event for event in plugin.events if isinstance(event, RegistrationFailed)]
    assert len(failed) == 2
    assert all("the kubelet refused: not today" in event.reason for event in failed)
    assert [registrations(node, name) for name in three()] == [1, 1, 1]


def test_a_late_answer_delays_nobody(node: Node) -> None:
    """The kubelet's stream runs before Register is answered (R6)."""
    node.kubelet.start()
    node.kubelet.delay_registrations(3600.0)
    plugin = node.plugin(offer(gpu(0)))
    node.kubelet.wait_for(lambda: node.kubelet.resources[GPU].lists)
    assert not plugin.link.states()[GPU].registered
    assert plugin.link.states()[GPU].awaiting == "the kubelet's answer to Register"
    plugin.link.open(offer(gpu(1), name=SHARED))
    eventually(lambda: plugin.well(SHARED))
    assert not plugin.link.states()[GPU].registered
    node.kubelet.clock.advance(3600.0)
    eventually(lambda: plugin.well(GPU))
    assert registrations(node) == 1


@pytest.fixture
def silent(root: Path) -> Iterator[Path]:
    """A socket that accepts connections and says nothing."""
    path = root / "kubelet.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.fspath(path))
        server.listen()
        yield path


def test_a_hung_register_ends_at_its_deadline_with_a_text(silent: Path) -> None:
    over = threading.Event()
    attempt = Registration(silent, resource=GPU, endpoint="x", done=over.set, deadline_s=0.2)
    assert not attempt.done
    assert over.wait(10)
    eventually(lambda: attempt.done)
    assert isinstance(attempt.failure(), KubeletError)
    attempt.close()


def test_withdrawing_a_hung_register_is_immediate(silent: Path) -> None:
    attempt = Registration(silent, resource=GPU, endpoint="x", done=lambda: None)
    begin = time.monotonic()
    attempt.close()
    assert time.monotonic() - begin < 2.0


# -- lists -----------------------------------------------------------------------------------------------------


def test_a_changed_list_goes_out_on_the_open_stream(node: Node) -> None:
    """No new socket, stream or registration; neighbours get nothing at all."""
    plugin = open_three(node)
    before = identity(plugin.socket())
    grown = offer(gpu(0), gpu(5))
    plugin.link.answer_from(grown)
    assert plugin.link.send(GPU) is True
    assert plugin.link.send(GPU) is False
    assert plugin.link.send(SHARED) is False
    node.kubelet.wait_for(lambda: len(node.kubelet.resources[GPU].lists) == 2)
    lists = node.kubelet.resources[GPU].lists
    assert lists[1].ids == tuple(ids_of(grown))
    assert lists[0].connection == lists[1].connection
    assert identity(plugin.socket()) == before
    assert [registrations(node, name) for name in three()] == [1, 1, 1]
    assert len(node.kubelet.resources[SHARED].lists) == 1


def test_a_list_is_sent_again_when_asked(node: Node) -> None:
    """The kubelet writes its checkpoint anew with every list (C3)."""
    plugin = node.registered(offer(gpu(0)))
    writes = node.kubelet.checkpoint_writes
    plugin.link.resend(GPU)
    node.kubelet.wait_for(lambda: node.kubelet.checkpoint_writes == writes + 1)
    first, second = node.kubelet.resources[GPU].lists
    assert first.devices == second.devices


def test_draining_devices_turn_unhealthy_by_themselves_after_the_kubelet_has_settled(node: Node) -> None:
    """Healthy for 30 s after each registration, so that finished init containers don't fail pods (A29)."""
    shared = offer(gpu(0, 2))
    draining = ids_of(shared)[0]
    plugin = node.registered(replace(unhealthy(shared, draining, reason="drains"), draining=frozenset({draining})))

    def last_healthy() -> frozenset[str]:
        return node.kubelet.resources[GPU].lists[-1].healthy

    assert draining in last_healthy()
    plugin.clock.advance(29.0)
    plugin.link.kick()
    plugin.clock.advance(2.0)
    plugin.link.kick()
    node.kubelet.wait_for(lambda: len(node.kubelet.resources[GPU].lists) == 2)
    assert draining not in last_healthy()
    node.kubelet.restart()
    node.kubelet.wait_for(lambda: len(node.kubelet.resources[GPU].lists) == 3)
    assert draining in last_healthy()
    plugin.clock.advance(31.0)
    plugin.link.kick()
    node.kubelet.wait_for(lambda: len(node.kubelet.resources[GPU].lists) == 4)
    assert draining not in last_healthy()


def test_an_onlooker_changes_nothing_for_the_kubelet(node: Node) -> None:
    plugin = node.registered(offer(gpu(0)))
    client = Client(plugin.socket())
    onlooker = Watching(client)
    eventually(lambda: onlooker.lists)
    assert plugin.link.states()[GPU].streams_open == 2
    onlooker.call.cancel()
    eventually(lambda: plugin.link.states()[GPU].streams_open == 1)
    client.channel.close()
    assert plugin.well(GPU)
    assert plugin.count(StreamLost) == 0


# -- the kubelet comes and goes --------------------------------------------------------------------------------


def test_the_kubelet_comes_later(node: Node) -> None:
    plugin = node.plugin(offer(gpu(0)))
    eventually(lambda: plugin.link.states()[GPU].awaiting.endswith("kubelet.sock: there is none"))
    assert plugin.socket().exists()
    node.kubelet.start()
    eventually(lambda: plugin.well(GPU))
    assert plugin.count(RegistrationFailed) == 0


def test_the_directory_comes_later(root: Path) -> None:
    directory = root / "later"
    plugin = Plugin(directory)
    plugin.link.open(offer(gpu(0)))
    eventually(lambda: "a place for its socket" in plugin.link.states()[GPU].awaiting)
    directory.mkdir()
    eventually((directory / "nvidia-gpu.sock").exists)
    plugin.close()


def test_a_dead_kubelet_is_waited_out(node: Node) -> None:
    """It leaves its socket behind, which refuses connections (S4)."""
    plugin = node.registered(offer(gpu(0)))
    node.kubelet.stop()
    eventually(lambda: plugin.link.states()[GPU].awaiting.endswith("refuses connections"))
    assert plugin.count(StreamLost) == 1
    assert not plugin.link.states()[GPU].registered
    node.kubelet.start()
    eventually(lambda: plugin.well(GPU))
    assert plugin.count(RegistrationFailed) == 0


def test_a_restart(node: Node) -> None:
    """All resources are back soon, under the same names, with the same ids, without anybody watching the directory."""
    plugin = open_three(node)
    node.kubelet.restart()
    begin = time.monotonic()
    eventually(lambda: all(registrations(node, name) == 2 for name in three()))
    assert time.monotonic() - begin < 2.0
    eventually(lambda: plugin.well(*three()))
    assert node.sockets() == {"nvidia-gpu.sock", "nvidia-gpu.shared.sock", "nvidia-example.com_other.sock"}
    node.kubelet.wait_for(lambda: all(len(node.kubelet.resources[name].lists) == 2 for name in three()))
    for name in three():
        first, second = node.kubelet.resources[name].lists
        assert first.devices == second.devices
    assert plugin.count(StreamLost) == plugin.count(Registered) - 3 == 3


def test_two_restarts_in_a_row(node: Node) -> None:
    plugin = open_three(node)
    node.kubelet.restart()
    node.kubelet.restart()
    eventually(lambda: plugin.well(*three()))
    node.kubelet.wait_for(lambda: all(healthy(node, name) == 1 for name in three()))


def test_a_restart_with_the_same_inode_number(node: Node) -> None:
    plugin = open_three(node)
    before = identity(node.directory / "kubelet.sock")
    node.kubelet.restart(same_inode=True)
    assert identity(node.directory / "kubelet.sock") == before
    eventually(lambda: plugin.well(*three()))
    node.kubelet.wait_for(lambda: all(healthy(node, name) == 1 for name in three()))


def test_the_directory_is_replaced(node: Node) -> None:
    plugin = open_three(node)
    node.kubelet.replace_directory()
    plugin.link.kick()
    node.kubelet.restart()
    eventually(lambda: plugin.well(*three()) and len(node.sockets()) == 3)
    node.kubelet.wait_for(lambda: all(healthy(node, name) == 1 for name in three()))


def test_running_pods_survive_a_restart(node: Node) -> None:
    node.registered(offer(gpu(0), gpu(1)))
    held = runs(node.kubelet.admit(pod("a")))
    node.kubelet.restart()
    node.kubelet.wait_for(lambda: healthy(node) == 2)
    assert {runs(admitted) for admitted in node.kubelet.pods()} == {held}
    assert runs(node.kubelet.admit(pod("b"))).isdisjoint(held)


def test_a_metadata_change_of_the_kubelets_socket_is_no_restart(node: Node) -> None:
    """A relabel, or a chmod: to register again would cost the resource its health for a moment (R14)."""
    plugin = node.registered(offer(gpu(0)))
    (node.directory / "kubelet.sock").chmod(0o700)
    plugin.link.kick()
    plugin.link.open(offer(gpu(1), name=SHARED))
    eventually(lambda: plugin.well(SHARED))  # it was looked at meanwhile
    assert registrations(node) == 1
    assert plugin.count(StreamLost) == 0


def test_a_lost_socket_is_bound_again_and_dialled_again(node: Node) -> None:
    """S5 (ii); the old stream ends first, or its end would cost the new registration (R12)."""
    plugin = open_three(node)
    plugin.socket().unlink()
    plugin.link.kick()
    eventually(lambda: registrations(node) == 2 and plugin.well(GPU))
    assert answers(node.directory / "nvidia-gpu.sock")
    assert [registrations(node, name) for name in three()] == [2, 1, 1]
    node.kubelet.wait_for(lambda: healthy(node) == 1)
    assert plugin.count(StreamLost) == 1


def test_a_registered_resource_without_a_stream_is_registered_again(root: Path) -> None:
    """Reports B3. This kubelet accepts everything and never opens a stream."""
    asked: list[bytes] = []

    def register(request: bytes, context: grpc.ServicerContext) -> bytes:
        asked.append(request)
        return b""

    handler = grpc.method_handlers_generic_handler(
        "v1beta1.Registration", {"Register": grpc.unary_unary_rpc_method_handler(register)}
    )
    with ThreadPoolExecutor(2) as workers:
        server = grpc.server(workers, handlers=[handler])
        server.add_insecure_port(target(root / "kubelet.sock"))
        server.start()
        plugin = Plugin(root)
        plugin.link.open(offer(gpu(0)))
        eventually(lambda: plugin.link.states()[GPU].registered)
        assert plugin.link.states()[GPU].awaiting == "the kubelet to open ListAndWatch"
        for _ in range(3):
            before = len(asked)
            plugin.clock.advance(6.0)
            plugin.link.kick()
            eventually(lambda before=before: len(asked) == before + 1)  # type: ignore[misc]
            eventually(lambda: plugin.link.states()[GPU].registered)
        plugin.close()
        server.stop(None)


# -- neighbours ------------------------------------------------------------------------------------------------


def test_a_second_link_of_ours_takes_over_without_losing_a_socket(node: Node) -> None:
    """A surge upgrade: the end of the old stream costs the new one its connection (R12); it registers again."""
    old = node.registered(offer(gpu(0)))
    new = node.plugin(offer(gpu(0)))
    eventually(lambda: new.well(GPU))
    assert node.sockets() == {"nvidia-gpu.sock", "nvidia-gpu~2.sock"}
    assert new.link.states()[GPU].conflict == str(node.directory / "nvidia-gpu.sock")
    assert new.count(SocketConflict) == 1
    assert old.well(GPU)
    old.close()
    node.kubelet.wait_for(lambda: registrations(node) >= 3)
    eventually(lambda: new.well(GPU) and node.sockets() == {"nvidia-gpu.sock"})
    assert new.link.states()[GPU].conflict == ""
    node.kubelet.wait_for(lambda: healthy(node) == 1)
    assert runs(node.kubelet.admit(pod())) == {gpu(0).uuid}


def test_a_rival_that_leaves_while_the_kubelet_is_being_asked(node: Node) -> None:
    """Its end may have made the kubelet forget us before or after it answered: ask once more, by the better name."""
    path = node.directory / "nvidia-gpu.sock"
    node.kubelet.start()
    with socket.socket(socket.AF_UNIX) as rival:
        rival.bind(str(path))
        rival.listen()
        node.kubelet.delay_registrations(1.0)
        plugin = node.plugin(offer(gpu(0)))
        eventually(lambda: plugin.link.states()[GPU].awaiting == "the kubelet's answer to Register")
        path.unlink()

    def in_its_place() -> bool:
        node.kubelet.clock.advance(1.0)  # again and again: nothing shows when the kubelet has begun to wait
        return plugin.well(GPU) and node.sockets() == {"nvidia-gpu.sock"}

    eventually(in_its_place)
    assert plugin.link.states()[GPU].registrations == 2


def test_the_newer_of_two_leaves(node: Node) -> None:
    """A surge that is rolled back. The kubelet forgets the resource's client while our older stream stays open."""
    old = node.registered(offer(gpu(0)))
    new = node.plugin(offer(gpu(0)))
    eventually(lambda: new.well(GPU))
    old.link.kick()  # as the watcher of the directory does
    eventually(lambda: old.link.states()[GPU].conflict)
    new.close()
    old.link.kick()
    node.kubelet.wait_for(lambda: registrations(node) >= 3 and healthy(node) == 1)
    assert runs(node.kubelet.admit(pod())) == {gpu(0).uuid}
    eventually(lambda: old.well(GPU) and not old.link.states()[GPU].conflict)


SECOND_PROCESS = """
import sys, time
from pathlib import Path
from deviceplugin.kubelet.ledger import Ledger
from deviceplugin.kubelet.link import KubeletLink
from tests.allocation.offers import gpu, offer

link = KubeletLink(kubelet_socket=Path(sys.argv[1]), ledger=Ledger(time.monotonic), monotonic=time.monotonic,
                   notify=lambda event: print(event, flush=True), on_death=print)
link.start()
link.open(offer(gpu(0)))
sys.stdin.read()
link.stop(2.0)
"""


def test_a_second_process_of_ours_that_starts_at_the_same_time(node: Node) -> None:
    node.kubelet.start()
    command = [sys.executable, "-c", SECOND_PROCESS, str(node.directory / "kubelet.sock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        plugin = node.plugin(offer(gpu(0)))
        eventually(lambda: plugin.well(GPU))
        assert any("Registered" in line for line in other.stdout)
        assert node.sockets() == {"nvidia-gpu.sock", "nvidia-gpu~2.sock"}
        assert all(answers(node.directory / name) for name in node.sockets())
        plugin.link.kick()  # as the watcher of the directory does
        eventually(lambda: plugin.link.states()[GPU].conflict)
        other.communicate("")
        assert other.returncode == 0
    plugin.link.kick()
    node.kubelet.wait_for(lambda: healthy(node) == 1)
    eventually(lambda: plugin.well(GPU) and len(node.sockets()) == 1)


def test_a_process_that_was_killed_leaves_nothing_in_the_way(node: Node) -> None:
    node.kubelet.start()
    command = [sys.executable, "-c", SECOND_PROCESS, str(node.directory / "kubelet.sock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        node.kubelet.wait_for(lambda: healthy(node) == 1)
        other.kill()
    node.kubelet.wait_for(lambda: healthy(node) == 0)
    plugin = node.plugin(offer(gpu(0)))
    eventually(lambda: plugin.well(GPU))
    assert node.sockets() == {"nvidia-gpu.sock"}
    assert plugin.count(SocketConflict) == 0


def test_a_foreign_live_socket_on_our_name(node: Node) -> None:
    with socket.socket(socket.AF_UNIX) as foreign:
        foreign_path = node.directory / "nvidia-gpu.sock"
        node.kubelet.start()
        foreign.bind(os.fspath(foreign_path))
        foreign.listen()
        was = identity(foreign_path)
        plugin = node.registered(offer(gpu(0)))
        assert plugin.events[0] == SocketConflict(GPU, str(foreign_path))
        assert plugin.socket().name == "nvidia-gpu~2.sock"
        plugin.close()
        assert identity(foreign_path) == was
        assert answers(foreign_path)


def test_nvidias_plugin_on_our_name(node: Node) -> None:
    """It unlinks our socket and binds there: it keeps what it took, we serve beside it, and say so."""
    plugin = node.registered(offer(gpu(0)))
    with socket.socket(socket.AF_UNIX) as foreign:
        path = plugin.socket()
        path.unlink()
        foreign.bind(os.fspath(path))
        foreign.listen()
        plugin.link.kick()
        eventually(lambda: registrations(node) == 2 and plugin.well(GPU))
        assert plugin.count(SocketConflict) == 1
        assert answers(path)
        assert plugin.socket().name == "nvidia-gpu~2.sock"


# -- endings ---------------------------------------------------------------------------------------------------


def test_closing_one_resource_leaves_the_others_alone(node: Node) -> None:
    plugin = open_three(node)
    plugin.link.close(SHARED)
    plugin.link.close(SHARED)
    node.kubelet.wait_for(lambda: healthy(node, SHARED) == 0)
    eventually(lambda: node.sockets() == {"nvidia-gpu.sock", "nvidia-example.com_other.sock"})
    assert set(plugin.link.states()) == {GPU, "example.com/other"}
    assert plugin.well(GPU, "example.com/other")
    with pytest.raises(KeyError):
        plugin.link.send(SHARED)
    plugin.link.open(offer(gpu(1), name=SHARED))
    eventually(lambda: plugin.well(SHARED))
    node.kubelet.wait_for(lambda: healthy(node, SHARED) == 1)


def test_stopping_with_open_streams_is_quick_and_clean(node: Node) -> None:
    plugin = open_three(node)
    client = Client(plugin.socket())
    onlookers = [Watching(client) for _ in range(2)]
    eventually(lambda: all(onlooker.lists for onlooker in onlookers))
    begin = time.monotonic()
    plugin.link.stop(5.0)
    assert time.monotonic() - begin < 2.0
    assert node.sockets() == set()
    assert all(onlooker.ended.wait(10) for onlooker in onlookers)
    client.channel.close()
    node.kubelet.wait_for(lambda: all(healthy(node, name) == 0 for name in three()))


def test_stopping_while_the_kubelet_is_away_or_hangs_is_quick(node: Node) -> None:
    away = node.plugin(offer(gpu(0)))
    eventually(lambda: "there is none" in away.link.states()[GPU].awaiting)
    node.kubelet.start()
    node.kubelet.delay_registrations(3600.0)
    hung = node.plugin(offer(gpu(1), name=SHARED))
    begin = time.monotonic()
    away.close()
    hung.close()
    assert time.monotonic() - begin < 2.0
    assert node.sockets() == set()


def test_stopping_what_never_started_is_nothing(root: Path) -> None:
    plugin = Plugin(root)
    plugin.close()
    plugin.close()


def test_the_death_of_the_thread_is_reported(root: Path) -> None:
    def refuse(event: object) -> None:
        raise ZeroDivisionError

    plugin = Plugin(root)
    plugin.link.stop(2.0)
    with socket.socket(socket.AF_UNIX) as foreign:
        foreign.bind(os.fspath(root / "nvidia-gpu.sock"))
        foreign.listen()
        deaths: list[BaseException] = []
        link = KubeletLink(
            kubelet_socket=root / "kubelet.sock",
            ledger=plugin.ledger,
            monotonic=time.monotonic,
            notify=refuse,
            on_death=deaths.append,
        )
        link.start()
        link.open(offer(gpu(0)))
        eventually(lambda: deaths)
        assert isinstance(deaths[0], ZeroDivisionError)
        link.stop(1.0)


class QuickKubelet:
    """As much of a kubelet as many quick restarts need: Register dials back, asks, and opens the stream (R6)."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._workers = ThreadPoolExecutor(2)
        self.lists = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._workers.shutdown()

    def start(self) -> None:
        """Remove every socket (S2), then listen."""
        for path in self._directory.glob("*.sock"):
            path.unlink()
        self.listen()

    def listen(self) -> None:
        """Listen on a new kubelet.sock; whatever else is in the directory stays."""
        (self._directory / "kubelet.sock").unlink(missing_ok=True)
        self._clients: list[Client] = []
        self._streams: list[Iterator[pb.ListAndWatchResponse]] = []  # gRPC cancels a stream that nobody refers to
        handler = grpc.method_handlers_generic_handler(
            "v1beta1.Registration", {"Register": grpc.unary_unary_rpc_method_handler(self._register)}
        )
        self._server = grpc.server(self._workers, handlers=[handler])
        self._server.add_insecure_port(target(self._directory / "kubelet.sock"))
        self._server.start()

    def stop(self) -> None:
        """Cut every connection."""
        self._server.stop(None).wait()
        for client in self._clients:
            client.channel.close()

    def _register(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        client = Client(self._directory / pb.RegisterRequest.FromString(request).endpoint)
        self._clients.append(client)
        client.stub.GetDevicePluginOptions(pb.Empty())
        self._streams.append(client.stub.ListAndWatch(pb.Empty()))
        next(self._streams[-1])
        self.lists += 1
        return b""


def test_a_new_kubelet_while_the_stream_of_the_old_one_is_still_open(root: Path) -> None:
    """The old stream ends before the new kubelet is asked (R11)."""
    plugin = Plugin(root)
    plugin.link.open(offer(gpu(0)))
    with QuickKubelet(root) as old, QuickKubelet(root) as new:
        old.start()
        eventually(lambda: plugin.well(GPU))
        new.listen()
        plugin.link.kick()
        eventually(lambda: new.lists == 1 and plugin.well(GPU))
        assert plugin.link.states()[GPU].streams_open == 1
        assert (old.lists, plugin.count(StreamLost)) == (1, 1)
        plugin.close()
        old.stop()
        new.stop()


def test_fifty_restarts_leave_no_threads_or_descriptors(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)

    def ours() -> tuple[int, int]:
        return threading.active_count(), len(os.listdir("/proc/self/fd"))

    plugin = Plugin(root)
    plugin.link.open(offer(gpu(0)))
    with QuickKubelet(root) as kubelet:
        kubelet.start()
        eventually(lambda: plugin.well(GPU))
        threads, descriptors = ours()
        for restarts in range(1, 51):
            kubelet.stop()
            kubelet.start()
            eventually(lambda lists=restarts + 1: kubelet.lists >= lists and plugin.well(GPU))  # type: ignore[misc]
        eventually(lambda: ours()[0] <= threads + 2 and ours()[1] <= descriptors + 4)
        plugin.close()
        kubelet.stop()
