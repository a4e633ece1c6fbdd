"""One Register call to the kubelet, as a future (contract R2 to R9)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, cast

import grpc

from deviceplugin.errors import KubeletError
from deviceplugin.kubelet.service import OPTIONS
from deviceplugin.kubelet.unix import target
from deviceplugin.stubs import deviceplugin_v1beta1_pb2 as pb

VERSION: Final = "v1beta1"
# The kubelet itself gives up on our socket after 10 s (R7); its own words are worth waiting for.
DEADLINE_S: Final = 15.0

CHANNEL_OPTIONS: Final = (
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_retries", 0),
    ("grpc.default_authority", "localhost"),
)

_WENT_AWAY: Final = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED})


class Registration:
    """Asks the kubelet to connect to our socket. Nothing here blocks; `close` it when done with it."""

    def __init__(
        self,
        kubelet_socket: Path,
        *,
        resource: str,
        endpoint: str,
        done: Callable[[], None],
        deadline_s: float = DEADLINE_S,
    ) -> None:
        """Send the call. Our socket must be served already: the kubelet dials it before it answers (R6).

        Args:
            endpoint: our socket's name in the directory of `kubelet_socket` (R5).
            done: called from a thread of gRPC when there is an outcome; it must return at once.
        """
        self._socket = kubelet_socket
        self._resource = resource
        self._deadline_s = deadline_s
        self._channel = grpc.insecure_channel(target(kubelet_socket), options=CHANNEL_OPTIONS)
        register = self._channel.unary_unary(
            "/v1beta1.Registration/Register",
            request_serializer=pb.RegisterRequest.SerializeToString,
            response_deserializer=pb.Empty.FromString,
        )
        request = pb.RegisterRequest(version=VERSION, endpoint=endpoint, resource_name=resource, options=OPTIONS)
        self._call = register.future(request, timeout=deadline_s)
        self._call.add_done_callback(lambda _: done())

    @property
    def done(self) -> bool:
        """Whether there is an outcome."""
        return self._call.done()

    @property
    def went_away(self) -> bool:
        """Whether nobody was there to accept or refuse: as good as no kubelet. Ask when `done`."""
        return cast(grpc.Call, self._call).code() in _WENT_AWAY

    def failure(self) -> KubeletError | None:
        """Why the kubelet did not accept, in its own words; None when it did. Ask when `done`."""
        call = cast(grpc.Call, self._call)
        match call.code():
            case grpc.StatusCode.OK:
                return None
            case grpc.StatusCode.DEADLINE_EXCEEDED:
                text = f"no answer to Register within {self._deadline_s:.0f} s"
            case code if code in _WENT_AWAY:
                text = f"the kubelet went away during Register: {call.details()}"
            case _:
                text = f"the kubelet refused: {call.details()}"
        return KubeletError(f"{self._resource}: {self._socket}: {text}")

    def close(self) -> None:
        """Hang up; a call that still runs is withdrawn."""
        self._channel.close()
