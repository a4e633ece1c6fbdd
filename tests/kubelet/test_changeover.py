"""A kubelet that is replaced between our look at its socket and our Register (S2, S3, S6)."""

from deviceplugin.kubelet.ledger import Ledger
from deviceplugin.kubelet.lifecycle import CHANGEOVER_S, Lifecycle
from deviceplugin.kubelet.lookout import Sighting
from deviceplugin.kubelet.service import ResourceService
from deviceplugin.kubelet.states import LinkEvent, Registered
from tests.allocation.offers import gpu, offer
from tests.kubelet.node import GPU, Node, SteppedClock, eventually


class Driven:
    """A lifecycle that is stepped by hand."""

    def __init__(self, node: Node) -> None:
        self.clock = SteppedClock()
        self.events: list[LinkEvent] = []
        self.socket = node.kubelet.registration_socket
        service = ResourceService(offer(gpu(0)), Ledger(self.clock), monotonic=self.clock)
        self.lifecycle = Lifecycle(service, self.socket, wake=lambda: None, notify=self.events.append, now=self.clock())

    def step(self, kubelet: Sighting | None = None) -> None:
        self.lifecycle.step(self.clock(), kubelet or Sighting(self.socket))

    def well(self) -> bool:
        self.step()
        state = self.lifecycle.state()
        return state.registered and state.stream_open

    def close(self) -> None:
        self.lifecycle.close(1.0)
        assert self.lifecycle.closed(5.0)


def test_a_new_kubelet_that_took_the_place_between_two_looks_is_not_hung_up_on(node: Node) -> None:
    """The look saw the old socket, the call reached the new kubelet: one registration, one stream, no gap."""
    node.kubelet.start()
    driven = Driven(node)
    old = Sighting(driven.socket)
    assert old.alive, "seen alive, then replaced"
    node.kubelet.restart()
    driven.step(old)
    eventually(driven.well)
    node.kubelet.wait_for(lambda: node.kubelet.resources[GPU].lists)
    for _ in range(5):
        driven.clock.advance(CHANGEOVER_S)
        assert driven.well()
    history = node.kubelet.resources[GPU]
    assert len(history.registrations) == 1
    assert len({record.connection for record in history.lists}) == 1
    assert sum(isinstance(event, Registered) for event in driven.events) == 1
    driven.close()


def test_what_answers_must_be_what_was_seen(node: Node) -> None:
    node.kubelet.start()
    stale = Sighting(node.kubelet.registration_socket)
    node.kubelet.restart()
    assert not stale.alive
    assert Sighting(node.kubelet.registration_socket).alive
