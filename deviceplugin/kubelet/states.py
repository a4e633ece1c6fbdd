"""What the link reports: how each resource stands with the kubelet, and what happens to it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Registered:
    """The kubelet accepted the resource."""

    name: str


@dataclass(frozen=True, slots=True)
class StreamLost:
    """The kubelet's ListAndWatch stream ended; it is registered again by itself."""

    name: str


@dataclass(frozen=True, slots=True)
class RegistrationFailed:
    """The kubelet refused or did not answer, rather than being away; it is tried again by itself."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class SocketConflict:
    """Another server for this resource, not ours, answers at `path`: the kubelet will mix the two up (R11, R12)."""

    name: str
    path: str


@dataclass(frozen=True, slots=True)
class KubeletStarted:
    """A kubelet has begun: a new registration socket is there. What it says of held devices is short at first (P5)."""


LinkEvent = KubeletStarted | Registered | StreamLost | RegistrationFailed | SocketConflict


@dataclass(frozen=True, slots=True)
class ResourceState:
    """One resource at the kubelet now. Times are by the link's clock, in seconds.

    Attributes:
        endpoint: path of our socket; empty while there is none.
        registered: the kubelet accepted it, and nothing since says otherwise.
        stream_open: the kubelet's own ListAndWatch stream is open.
        streams_open: all streams, onlookers' included.
        registrations: how often it was accepted.
        last_error: of the newest failure, empty once registered.
        awaiting: what must happen next, empty when all is well.
        conflict: path of another server's live socket for this resource, empty without one.
    """

    endpoint: str = ""
    registered: bool = False
    stream_open: bool = False
    streams_open: int = 0
    registered_at: float | None = None
    registrations: int = 0
    lists_sent: int = 0
    last_list_at: float | None = None
    last_error: str = ""
    awaiting: str = ""
    conflict: str = ""
