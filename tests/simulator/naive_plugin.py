"""A device plugin as small as it can be, with a switch for every mistake that the stand-in has to catch.

Real gRPC on a real unix socket. It knows nothing of the product.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc

from deviceplugin.stubs import deviceplugin_v1beta1_pb2 as pb
from deviceplugin.stubs.deviceplugin_v1beta1_pb2_grpc import (
    DevicePluginServicer,
    RegistrationStub,
    add_DevicePluginServicer_to_server,
)

RESOURCE = "nvidia.com/gpu"


def device(device_id: str, health: str = "Healthy", numa: Iterable[int] | None = None) -> pb.Device:
    """A device; `numa` None sends no topology, an empty one sends a topology without nodes (L19)."""
    topology = None if numa is None else pb.TopologyInfo(nodes=[pb.NUMANode(ID=node) for node in numa])
    return pb.Device(ID=device_id, health=health, topology=topology)


class NaivePlugin(DevicePluginServicer):
    """Serves `resource` on `directory / endpoint` from `serve` on.

    `devices` are sent as the first list of every stream; `push` sends another one. `allocate_error`, `preferred_error`
    and `options_error` fail these calls; `preferred_answer` makes the answer; `gate`, when it is set by `block`, holds
    every Allocate until `release`. `allocating` is released at the begin of every Allocate, `stream_ended` at the end
    of every stream. `seen` lists the calls by method, in order.
    """

    def __init__(self, directory: Path, devices: Iterable[pb.Device | str] = (), resource: str = RESOURCE) -> None:
        self.directory = directory
        self.resource = resource
        self.endpoint = resource.replace("/", "_") + ".sock"
        self.devices = [d if isinstance(d, pb.Device) else device(d) for d in devices]
        self.pre_start = False
        self.preferred_answer: Callable[[pb.ContainerPreferredAllocationRequest], list[str]] | None = None
        self.preferred_error = ""
        self.allocate_error = ""
        self.options_error = ""
        self.pre_start_error = ""
        self.pre_start_hook: Callable[[], object] = lambda: None
        self.responses: Callable[[list[str]], list[pb.ContainerAllocateResponse]] = default_responses
        self.seen: list[str] = []
        self.allocating = threading.Semaphore(0)
        self.stream_ended = threading.Semaphore(0)
        self._gate = threading.Event()
        self._gate.set()
        self._options_gate = threading.Event()
        self._options_gate.set()
        self._streams: list[queue.SimpleQueue[pb.ListAndWatchResponse | None]] = []
        self._lock = threading.Lock()
        self._server: grpc.Server | None = None
        self._pool: ThreadPoolExecutor | None = None

    # -- lifecycle ---------------------------------------------------------------------------------------------

    @property
    def socket(self) -> Path:
        """Where it serves."""
        return self.directory / self.endpoint

    def serve(self) -> NaivePlugin:
        """Bind the socket and answer."""
        self._pool = ThreadPoolExecutor(16, thread_name_prefix="naive-plugin")
        self._server = grpc.server(self._pool, options=[("grpc.max_send_message_length", -1)])
        add_DevicePluginServicer_to_server(self, self._server)  # type: ignore[no-untyped-call]
        self._server.add_insecure_port(f"unix:{self.socket}")
        self._server.start()
        return self

    def register(
        self,
        *,
        version: str = "v1beta1",
        options: pb.DevicePluginOptions | None = None,
        timeout: float = 10.0,
        name: str | None = None,
        endpoint: str | None = None,
    ) -> None:
        """Register once. Raises grpc.RpcError when it is refused."""
        with grpc.insecure_channel(
            f"unix:{self.directory}/kubelet.sock", options=[("grpc.use_local_subchannel_pool", 1)]
        ) as channel:
            RegistrationStub(channel).Register(  # type: ignore[no-untyped-call]
                pb.RegisterRequest(
                    version=version,
                    endpoint=self.endpoint if endpoint is None else endpoint,
                    resource_name=self.resource if name is None else name,
                    options=options,
                ),
                timeout=timeout,
            )

    def stop(self) -> None:
        """Stop at once; may be called twice."""
        self.release()
        self._options_gate.set()
        self.end_streams()
        server, self._server = self._server, None
        if server is not None:
            server.stop(None).wait()
        if self._pool is not None:
            self._pool.shutdown(wait=True)

    # -- lists -------------------------------------------------------------------------------------------------

    def push(self, devices: Iterable[pb.Device | str]) -> None:
        """Send a new list on every open stream; it is also the first list of later streams."""
        with self._lock:
            self.devices = [d if isinstance(d, pb.Device) else device(d) for d in devices]
            message = pb.ListAndWatchResponse(devices=self.devices)
            for stream in self._streams:
                stream.put(message)

    def end_streams(self) -> None:
        """End every ListAndWatch cleanly."""
        with self._lock:
            streams, self._streams = self._streams, []
        for stream in streams:
            stream.put(None)

    @property
    def open_streams(self) -> int:
        """How many ListAndWatch streams are open."""
        with self._lock:
            return len(self._streams)

    def block(self) -> None:
        """Hold every Allocate from now on."""
        self._gate.clear()

    def release(self) -> None:
        """Let them go."""
        self._gate.set()

    def block_options(self) -> None:
        """Hold GetDevicePluginOptions until `stop`."""
        self._options_gate.clear()

    # -- the service -------------------------------------------------------------------------------------------

    def GetDevicePluginOptions(self, request: pb.Empty, context: grpc.ServicerContext) -> pb.DevicePluginOptions:
        self.seen.append("GetDevicePluginOptions")
        self._options_gate.wait()
        if self.options_error:
            context.abort(grpc.StatusCode.UNKNOWN, self.options_error)
        return pb.DevicePluginOptions(
            pre_start_required=self.pre_start,
            get_preferred_allocation_available=self.preferred_answer is not None or bool(self.preferred_error),
        )

    def ListAndWatch(self, request: pb.Empty, context: grpc.ServicerContext) -> Iterator[pb.ListAndWatchResponse]:
        self.seen.append("ListAndWatch")
        stream: queue.SimpleQueue[pb.ListAndWatchResponse | None] = queue.SimpleQueue()
        context.add_callback(lambda: stream.put(None))
        with self._lock:
            self._streams.append(stream)
            stream.put(pb.ListAndWatchResponse(devices=self.devices))
        while (message := stream.get()) is not None:
            yield message
        with self._lock:
            if stream in self._streams:
                self._streams.remove(stream)
        self.stream_ended.release()

    def GetPreferredAllocation(
        self, request: pb.PreferredAllocationRequest, context: grpc.ServicerContext
    ) -> pb.PreferredAllocationResponse:
        self.seen.append("GetPreferredAllocation")
        if self.preferred_error:
            context.abort(grpc.StatusCode.INTERNAL, self.preferred_error)
        assert self.preferred_answer is not None
        return pb.PreferredAllocationResponse(
            container_responses=[
                pb.ContainerPreferredAllocationResponse(deviceIDs=self.preferred_answer(one))
                for one in request.container_requests
            ]
        )

    def Allocate(self, request: pb.AllocateRequest, context: grpc.ServicerContext) -> pb.AllocateResponse:
        self.seen.append("Allocate")
        self.allocating.release()
        self._gate.wait()
        if self.allocate_error:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, self.allocate_error)
        return pb.AllocateResponse(container_responses=self.responses(list(request.container_requests[0].devices_ids)))

    def PreStartContainer(
        self, request: pb.PreStartContainerRequest, context: grpc.ServicerContext
    ) -> pb.PreStartContainerResponse:
        self.seen.append("PreStartContainer")
        self.pre_start_hook()
        if self.pre_start_error:
            context.abort(grpc.StatusCode.INTERNAL, self.pre_start_error)
        return pb.PreStartContainerResponse()


def default_responses(ids: list[str]) -> list[pb.ContainerAllocateResponse]:
    """One response with the ids in an environment variable."""
    return [pb.ContainerAllocateResponse(envs={"IDS": ",".join(ids)})]
