"""A client of the kubelet's PodResources API (contract 4b)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import grpc

from deviceplugin.errors import KubeletError
from deviceplugin.kubelet.unix import target
from deviceplugin.model.held import Held
from deviceplugin.stubs import podresources_v1_pb2 as pb

SERVICE: Final = "/v1.PodResourcesLister"
MAX_RECEIVED_BYTES: Final = 256 * 1024 * 1024  # the kubelet sends without a limit (P1)

CHANNEL_OPTIONS: Final = (
    ("grpc.max_receive_message_length", MAX_RECEIVED_BYTES),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_retries", 0),
    ("grpc.default_authority", "localhost"),
)

Answer = TypeVar("Answer")


class PodResources:
    """Asks the kubelet what pods hold. Every call has a connection of its own: a restart replaces the socket (P1).

    Calls block for at most their timeout, and may come from several threads.
    """

    def __init__(self, socket: Path) -> None:
        """`socket` is KubeletPaths.pod_resources; it need not exist yet."""
        self._socket = socket

    def list(self, timeout_s: float) -> Held:
        """The ids that active pods hold, by resource; each once, on however many NUMA nodes it is (P3).

        Plain init containers are not in it though their ids stay held (P2), and for a while after a kubelet's start
        neither are other pods (P5). Never call it while an Allocate runs: ids in flight could be given twice (A14).

        Raises KubeletError when the kubelet does not answer, or refuses as it does above 100 calls a second (P1).
        """
        answer = self._call("List", pb.ListPodResourcesRequest(), pb.ListPodResourcesResponse.FromString, timeout_s)
        held = [
            (f"{pod.namespace}/{pod.name}", devices)
            for pod in answer.pod_resources
            for container in pod.containers
            for devices in container.devices
        ]
        return Held(
            _by_resource(devices for _, devices in held),
            pods={device_id: pod for pod, devices in held for device_id in devices.device_ids},
        )

    def allocatable(self, timeout_s: float) -> Held:
        """The healthy ids that the kubelet knows now, held or not, by resource (P4): what our lists came to (R15).

        Raises KubeletError as `list` does.
        """
        answer = self._call(
            "GetAllocatableResources",
            pb.AllocatableResourcesRequest(),
            pb.AllocatableResourcesResponse.FromString,
            timeout_s,
        )
        return Held(_by_resource(answer.devices))

    def _call(self, method: str, request: Any, parse: Callable[[bytes], Answer], timeout_s: float) -> Answer:
        with grpc.insecure_channel(target(self._socket), options=CHANNEL_OPTIONS) as channel:
            call = channel.unary_unary(
                f"{SERVICE}/{method}",
                request_serializer=type(request).SerializeToString,
                response_deserializer=parse,
            )
            try:
                return cast(Answer, call(request, timeout=timeout_s))
            except grpc.RpcError as error:
                raise KubeletError(f"{self._socket}: {method}: {_words(error)}") from None


def _words(error: grpc.RpcError) -> str:
    if not isinstance(error, grpc.Call):
        return str(error)
    return f"{error.details()} ({error.code().name})"


def _by_resource(entries: Iterable[pb.ContainerDevices]) -> dict[str, frozenset[str]]:
    ids: dict[str, set[str]] = {}
    for entry in entries:
        ids.setdefault(entry.resource_name, set()).update(entry.device_ids)
    return {name: frozenset(held) for name, held in ids.items()}
