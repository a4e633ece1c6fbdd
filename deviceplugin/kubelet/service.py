"""The DevicePlugin service of one resource. It knows no sockets and no lifecycle; handlers read one frozen offer."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Iterator
from typing import Any, Final, NoReturn

import grpc

from deviceplugin.allocation.answer import Answer, compose, units_behind
from deviceplugin.allocation.prefer import prefer
from deviceplugin.errors import AllocationError
from deviceplugin.kubelet.feed import MAX_STREAMS, FeedState, ListFeed
from deviceplugin.kubelet.ledger import Ledger
from deviceplugin.kubelet.lists import device_list
from deviceplugin.model.offer import Offer
from deviceplugin.model.plan import Unit
from deviceplugin.stubs import deviceplugin_v1beta1_pb2 as pb

SERVICE: Final = "v1beta1.DevicePlugin"
OPTIONS: Final = pb.DevicePluginOptions(get_preferred_allocation_available=True, pre_start_required=False)

log = logging.getLogger(__name__)


class ResourceService:
    """Answers the kubelet for one resource.

    Two values: the offer that Allocate and GetPreferredAllocation answer from, and the list that streams have.
    They differ while a withdrawal is under way: first answer from the offer that refuses, then wait for the
    Allocates that run, then send (design 8, contract L17).
    """

    def __init__(
        self,
        offer: Offer,
        ledger: Ledger,
        *,
        streams_changed: Callable[[], None] = lambda: None,
        monotonic: Callable[[], float],
    ) -> None:
        """`streams_changed` is called from gRPC's threads when a stream opened or ended; it must return at once."""
        self.name: Final = offer.name
        self._offer = offer
        self._ledger = ledger
        self._sending = threading.Lock()
        self._listed = offer
        self._settling = True
        self.closed = False
        self._feed = ListFeed(self._payload(), changed=streams_changed, monotonic=monotonic)

    @property
    def offer(self) -> Offer:
        """What Allocate answers from now."""
        return self._offer

    @property
    def streams(self) -> FeedState:
        """The ListAndWatch streams now."""
        return self._feed.state

    def answer_from(self, offer: Offer) -> None:
        """Answer from `offer` from now on; an Allocate that began before may still use the one before it."""
        self._offer = offer

    def send(self) -> bool:
        """Send the list of the offer now in force on every stream. Returns False when they have it already."""
        with self._sending:
            self._listed = self._offer
            return self._feed.publish(self._payload())

    def resend(self) -> None:
        """Send the list that the streams have once more, so that the kubelet writes its checkpoint anew (C3)."""
        self._feed.repeat()

    def settle(self, settling: bool) -> bool:
        """Begin (before a registration) or end the time in which draining devices are listed Healthy (A29).

        Sends the list anew when that changes it. It is the list last sent, not that of an offer still to be sent.
        """
        with self._sending:
            self._settling = settling
            return self._feed.publish(self._payload())

    def end_streams(self) -> None:
        """End the streams that are open now; later ones are served."""
        self._feed.end_streams()

    def close(self) -> None:
        """End every stream, later ones at once: the server is about to stop."""
        self.closed = True
        self._feed.close()

    def handler(self) -> grpc.GenericRpcHandler[Any, Any]:
        """The service for a gRPC server. Lists go out as the bytes they already are."""
        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                "GetDevicePluginOptions": grpc.unary_unary_rpc_method_handler(
                    lambda request, context: OPTIONS, pb.Empty.FromString, pb.DevicePluginOptions.SerializeToString
                ),
                "ListAndWatch": grpc.unary_stream_rpc_method_handler(self._list_and_watch, pb.Empty.FromString, None),
                "GetPreferredAllocation": grpc.unary_unary_rpc_method_handler(
                    self._preferred,
                    pb.PreferredAllocationRequest.FromString,
                    pb.PreferredAllocationResponse.SerializeToString,
                ),
                "Allocate": grpc.unary_unary_rpc_method_handler(
                    self._allocate, pb.AllocateRequest.FromString, pb.AllocateResponse.SerializeToString
                ),
                "PreStartContainer": grpc.unary_unary_rpc_method_handler(
                    lambda request, context: pb.PreStartContainerResponse(),
                    pb.PreStartContainerRequest.FromString,
                    pb.PreStartContainerResponse.SerializeToString,
                ),
            },
        )

    def _payload(self) -> bytes:
        return device_list(self._listed, settling=self._settling).SerializeToString()

    def _list_and_watch(self, request: pb.Empty, context: grpc.ServicerContext) -> Iterator[bytes]:
        stream = self._feed.open()
        if stream is None:
            context.abort(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"{self.name}: {MAX_STREAMS} ListAndWatch streams are open already; end one first",
            )
        if not context.add_callback(stream.gone):
            stream.gone()
        yield from stream.lists()

    def _allocate(self, request: pb.AllocateRequest, context: grpc.ServicerContext) -> pb.AllocateResponse:
        # The offer is read after the ledger knows of this call: whoever changes the offer and then waits for the
        # ledger to be idle has waited for every answer from the offer before (L17).
        with self._ledger.allocating():
            offer = self._offer
            response = pb.AllocateResponse()
            try:
                given: dict[str, Unit] = {}
                for container in request.container_requests:
                    units = units_behind(offer, container.devices_ids)
                    answer = compose(offer, units, response_id=_response_id)
                    write_answer(answer, response.container_responses.add())
                    given.update(units)
                self._ledger.hand_out(self.name, given)
            except AllocationError as error:
                _fail(context, error)
            return response

    def _preferred(
        self, request: pb.PreferredAllocationRequest, context: grpc.ServicerContext
    ) -> pb.PreferredAllocationResponse:
        offer = self._offer
        return pb.PreferredAllocationResponse(
            container_responses=[_preferred_response(offer, container) for container in request.container_requests]
        )


def _response_id() -> str:
    return str(uuid.uuid4())


def _fail(context: grpc.ServicerContext, error: AllocationError) -> NoReturn:
    log.warning("%s", error)
    context.abort(grpc.StatusCode.UNKNOWN, str(error))


def _preferred_response(
    offer: Offer, container: pb.ContainerPreferredAllocationRequest
) -> pb.ContainerPreferredAllocationResponse:
    try:
        ids = prefer(offer, container.available_deviceIDs, container.must_include_deviceIDs, container.allocation_size)
    except Exception:  # an error here would fail the pod (A10); no preference costs nothing
        log.exception("%s: no preference for a container, by a fault of ours", offer.name)
        ids = []
    return pb.ContainerPreferredAllocationResponse(deviceIDs=ids)


def write_answer(answer: Answer, response: pb.ContainerAllocateResponse) -> None:
    """Put `answer` on the wire: fill in the empty `response`. A pod waits, so what is empty is not touched."""
    if answer.envs:
        response.envs.update(answer.envs)
    for mount in answer.mounts:
        response.mounts.add(container_path=mount.container_path, host_path=mount.host_path, read_only=mount.read_only)
    for file in answer.devices:
        response.devices.add(container_path=file.container_path, host_path=file.host_path, permissions=file.permissions)
    for name in answer.cdi_devices:
        response.cdi_devices.add(name=name)
    if answer.annotations:
        response.annotations.update(answer.annotations)
