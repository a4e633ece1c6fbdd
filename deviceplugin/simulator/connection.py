"""One connection of the kubelet to one plugin socket (R6 to R8, R10, L7)."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any, cast
from urllib.parse import quote

import grpc

from deviceplugin.simulator.clock import DIAL_SECONDS, MESSAGE_LIMIT_BYTES, PRE_START_SECONDS, Clock
from deviceplugin.simulator.journal import Journal
from deviceplugin.stubs import deviceplugin_v1beta1_pb2 as pb
from deviceplugin.stubs.deviceplugin_v1beta1_pb2_grpc import DevicePluginStub

_NAMES = {grpc.StatusCode.CANCELLED: "Canceled", grpc.StatusCode.OK: "OK"}


class PluginError(Exception):
    """A call to the plugin failed; the text is what the kubelet would print."""


def rpc_text(error: grpc.RpcError) -> str:
    """An RPC error as the kubelet prints it: `rpc error: code = Unavailable desc = ...`."""
    call = cast(grpc.Call, error)
    code = call.code()
    name = _NAMES.get(code) or "".join(word.capitalize() for word in code.name.split("_"))
    return f"rpc error: code = {name} desc = {call.details()}"


class PluginConnection:
    """A gRPC connection of its own to the socket at `path`, serving `resource`; `number` tells connections apart.

    Nothing here retries (R10). After `close` every running and later call ends with `PluginError`.
    """

    message_limit = MESSAGE_LIMIT_BYTES
    allocate_seconds: float | None = None  # A21

    def __init__(self, resource: str, path: str, number: int, journal: Journal, clock: Clock) -> None:
        self.resource = resource
        self.path = path
        self.number = number
        self._journal = journal
        self._clock = clock
        self._closed = False
        self._ready = False
        self._stream: Any = None
        pause = max(1, int(1000 / clock.scale)) if clock.scale else 50
        self._channel = grpc.insecure_channel(
            "unix:" + quote(path),
            options=[
                ("grpc.use_local_subchannel_pool", 1),
                ("grpc.max_receive_message_length", self.message_limit),
                ("grpc.max_send_message_length", -1),
                ("grpc.initial_reconnect_backoff_ms", max(pause, 100)),
                ("grpc.min_reconnect_backoff_ms", max(pause, 100)),
                ("grpc.enable_retries", 0),
            ],
        )
        self._stub = DevicePluginStub(self._channel)  # type: ignore[no-untyped-call]

    @property
    def closed(self) -> bool:
        """Whether the kubelet hung up."""
        return self._closed

    def dial(self, caller_alive: Callable[[], bool]) -> None:
        """Connect, within 10 s and only while the caller of Register still waits (R7).

        Raises `PluginError` `failed to dial device plugin: context deadline exceeded` otherwise.
        """
        changed = self._journal.changed
        due = self._clock.now() + DIAL_SECONDS

        def on_state(state: grpc.ChannelConnectivity) -> None:
            with changed:
                self._ready = state is grpc.ChannelConnectivity.READY
                changed.notify_all()

        with changed:
            # Together, since grpcio watches in a thread of its own, which dies loudly on a channel that was closed.
            if self._closed:
                raise PluginError("failed to dial device plugin: the kubelet ends")
            self._channel.subscribe(on_state, try_to_connect=True)
        try:
            with changed:
                self._clock.wait_until(changed, lambda: self._ready or self._closed or not caller_alive(), due)
                ready = self._ready
        finally:
            with contextlib.suppress(ValueError):
                self._channel.unsubscribe(on_state)
        if not ready:
            raise PluginError("failed to dial device plugin: context deadline exceeded")

    def options(self, caller_alive: Callable[[], bool]) -> pb.DevicePluginOptions:
        """GetDevicePluginOptions, for as long as the caller of Register waits (R8)."""
        return cast(
            pb.DevicePluginOptions,
            self._call("GetDevicePluginOptions", pb.Empty(), seconds=None, alive=caller_alive),
        )

    def lists(self) -> Iterator[pb.ListAndWatchResponse]:
        """The lists of one ListAndWatch stream; ends without an error however the stream ends (L7)."""
        self._journal.rpc(self.resource, self.number, "ListAndWatch", "begin")
        error: str | None = None
        try:
            stream = self._stub.ListAndWatch(pb.Empty())
            with self._journal.changed:
                self._stream = stream
                if self._closed:
                    stream.cancel()
            yield from stream
        except grpc.RpcError as failure:
            error = rpc_text(failure)
        except ValueError:
            error = "connection closed"
        finally:
            self._journal.rpc(self.resource, self.number, "ListAndWatch", "end", error=error)

    def allocate(self, ids: tuple[str, ...]) -> pb.AllocateResponse:
        """Allocate for one container, without a deadline (A2, A21)."""
        request = pb.AllocateRequest(container_requests=[pb.ContainerAllocateRequest(devices_ids=ids)])
        return cast(pb.AllocateResponse, self._call("Allocate", request, seconds=self.allocate_seconds, ids=ids))

    def preferred(self, available: tuple[str, ...], must: tuple[str, ...], size: int) -> pb.PreferredAllocationResponse:
        """GetPreferredAllocation for one container, without a deadline (A8, A21)."""
        request = pb.PreferredAllocationRequest(
            container_requests=[
                pb.ContainerPreferredAllocationRequest(
                    available_deviceIDs=available, must_include_deviceIDs=must, allocation_size=size
                )
            ]
        )
        answer = self._call("GetPreferredAllocation", request, seconds=None, ids=available, must=must, size=size)
        return cast(pb.PreferredAllocationResponse, answer)

    def pre_start(self, ids: tuple[str, ...]) -> None:
        """PreStartContainer, 30 s deadline (A22)."""
        request = pb.PreStartContainerRequest(devices_ids=ids)
        self._call("PreStartContainer", request, seconds=PRE_START_SECONDS, ids=ids)

    def hang_up(self) -> None:
        """End the stream and every call at once, without waiting for the channel, which `close` does."""
        with self._journal.changed:
            self._closed = True
            stream = self._stream
            self._journal.changed.notify_all()
        if stream is not None:
            stream.cancel()

    def close(self) -> None:
        """Hang up and close the channel; takes up to 0.2 s when it was dialled just now. May be called twice."""
        self.hang_up()
        self._await_unwatched()
        self._channel.close()

    def _await_unwatched(self) -> None:
        """Let the thread that watched the channel for `dial` end first: grpcio's dies with a traceback when the channel
        is closed before it has begun to look, and offers no way to join it but its own flag."""
        watch = getattr(self._channel, "_connectivity_state", None)
        deadline = time.monotonic() + 5.0
        while getattr(watch, "polling", False) and time.monotonic() < deadline:
            time.sleep(0.01)

    def _call(
        self,
        method: str,
        request: Any,
        *,
        seconds: float | None,
        ids: tuple[str, ...] = (),
        must: tuple[str, ...] = (),
        size: int = 0,
        alive: Callable[[], bool] = lambda: True,
    ) -> object:
        journal, changed = self._journal, self._journal.changed
        due = None if seconds is None else self._clock.now() + seconds
        journal.rpc(self.resource, self.number, method, "begin", ids=ids, must_include=must, size=size)
        error: str | None = None
        try:
            call = getattr(self._stub, method).future(request)

            def wake(_: object) -> None:
                with changed:
                    changed.notify_all()

            call.add_done_callback(wake)
            with changed:
                done = self._clock.wait_until(changed, lambda: call.done() or self._closed or not alive(), due)
            if not done or not call.done():
                call.cancel()
                text = "DeadlineExceeded desc = context deadline exceeded" if not done else "Canceled desc = canceled"
                error = f"rpc error: code = {text}"
                raise PluginError(error)
            return call.result()
        except grpc.FutureCancelledError:
            error = "rpc error: code = Canceled desc = grpc: the client connection is closing"
            raise PluginError(error) from None
        except grpc.RpcError as failure:
            error = rpc_text(failure)
            raise PluginError(error) from None
        except ValueError:  # the channel is closed
            error = "rpc error: code = Canceled desc = grpc: the client connection is closing"
            raise PluginError(error) from None
        finally:
            journal.rpc(self.resource, self.number, method, "end", ids=ids, must_include=must, size=size, error=error)
