"""When the kubelet does not show what our list says (contract R13, R15)."""

from dataclasses import dataclass

from deviceplugin.app.echo import GRACE_S, MOST_TRIES, Echo
from deviceplugin.model.held import Held
from deviceplugin.model.offer import Offer
from deviceplugin.model.plan import Device, Health, Mode, Resource

NAME = "nvidia.com/gpu"


@dataclass(frozen=True)
class State:
    stream_open: bool = True
    registered_at: float | None = 0.0
    last_list_at: float | None = 0.0


def offer(*healthy: str, unhealthy: tuple[str, ...] = ()) -> dict[str, Offer]:
    devices = tuple(Device(one, one) for one in healthy)
    devices += tuple(Device(one, one, Health.UNHEALTHY, "broken") for one in unhealthy)
    return {NAME: Offer(Resource(NAME, Mode.EXCLUSIVE, ()), devices)}


def shown(*ids: str) -> Held:
    return Held({NAME: frozenset(ids)})


def test_a_list_that_shows_is_no_reason() -> None:
    echo = Echo()
    for at in (10.0, 20.0, 30.0):
        assert echo.missed(offer("a", "b", unhealthy=("c",)), {NAME: State()}, shown("a", "b"), at) == []
    assert not echo.in_doubt


def test_two_reads_that_lack_a_device_are_one() -> None:
    echo = Echo()
    assert echo.missed(offer("a", "b"), {NAME: State()}, shown("a"), 10.0) == []
    assert echo.in_doubt
    assert echo.missed(offer("a", "b"), {NAME: State()}, shown("a"), 10.0 + GRACE_S - 1) == []
    assert echo.missed(offer("a", "b"), {NAME: State()}, shown("a"), 10.0 + GRACE_S) == [NAME]


def test_young_lists_and_registrations_prove_nothing() -> None:
    echo = Echo()
    for state in (
        State(registered_at=9.0),
        State(last_list_at=9.0),
        State(stream_open=False),
        State(last_list_at=None),
    ):
        for at in (10.0, 10.0 + GRACE_S / 2):
            assert echo.missed(offer("a"), {NAME: state}, shown(), at) == []
    assert echo.missed(offer("a"), {}, shown(), 99.0) == []
    assert not echo.in_doubt


def test_it_gives_up_until_the_kubelet_shows_the_list_once() -> None:
    echo = Echo()

    def tries(start: float) -> int:
        reads = (start + GRACE_S * number for number in range(20))
        return sum(len(echo.missed(offer("a"), {NAME: State()}, shown(), at)) for at in reads)

    assert tries(10.0) == MOST_TRIES
    assert not echo.in_doubt
    assert echo.missed(offer("a"), {NAME: State()}, shown("a"), 200.0) == []
    assert tries(300.0) == MOST_TRIES
