"""When a held device counts as free (contract P5, P8, C3)."""

from dataclasses import replace

from deviceplugin.app.events import HeldRead
from deviceplugin.app.holding import APART_S, Holding
from deviceplugin.kubelet.unix import Identity
from deviceplugin.model.held import KUBELET_SETTLING_S, Held

NAME = "nvidia.com/gpu"
A, B = "GPU-00000000-0000-4000-8000-000000000000", "GPU-00000001-0000-4000-8000-000000000000"


def held(*ids: str) -> Held:
    return Held({NAME: frozenset(ids)} if ids else {})


def read(at: float, listed: Held | None, checkpointed: Held | None = None) -> HeldRead:
    return HeldRead(listed, checkpointed, at, "" if listed or checkpointed else "nobody answers")


def test_what_either_source_names_is_held() -> None:
    holding = Holding().after(read(0, held(A), held(B)))
    assert holding.held.of(NAME) == {A, B}
    assert holding.only_checkpointed.of(NAME) == {B}


def test_an_id_is_free_after_two_reads_some_seconds_apart() -> None:
    holding = Holding().after(read(0, held(A)))
    holding = holding.after(read(10, held()))
    assert holding.held.of(NAME) == {A}
    holding = holding.after(read(10 + APART_S / 2, held()))
    assert holding.held.of(NAME) == {A}
    holding = holding.after(read(10 + APART_S, held()))
    assert holding.held.of(NAME) == frozenset()


def test_an_id_that_is_seen_again_starts_over() -> None:
    holding = Holding().after(read(0, held(A)))
    holding = holding.after(read(10, held()))
    holding = holding.after(read(11, held(A)))
    holding = holding.after(read(12.5, held()))
    assert holding.held.of(NAME) == {A}


def test_a_short_list_of_a_young_kubelet_frees_nothing() -> None:
    """P5: after a kubelet start PodResources is empty, then grows."""
    holding = Holding().after(read(0, held(A))).kubelet_started(0)
    for at in (10, 20, 30):
        holding = holding.after(read(at, held()))
    assert holding.held.of(NAME) == {A}


def test_a_young_kubelet_frees_by_its_checkpoint_what_it_has_shown_before() -> None:
    holding = Holding().after(read(0, held(A))).kubelet_started(0)
    holding = holding.after(read(10, held(), held(A)))
    for at in (20, 30):
        assert holding.held.of(NAME) == {A}
        holding = holding.after(read(at, held(), held()))
    assert holding.held.of(NAME) == frozenset()


def test_a_checkpoint_that_was_lost_frees_nothing_before_the_kubelet_has_settled() -> None:
    """A31, P8: the new kubelet writes a checkpoint that lacks the pods that run on."""
    holding = Holding().after(read(0, held(A))).kubelet_started(0)
    for at in (10, 20, 30):
        holding = holding.after(read(at, held(), held()))
        assert holding.held.of(NAME) == {A}
    holding = holding.after(read(KUBELET_SETTLING_S + 1, held(), held()))
    assert holding.held.of(NAME) == frozenset()


def test_a_read_that_began_before_the_kubelet_came_frees_nothing_however_late_it_is_over() -> None:
    """It is an earlier kubelet's answer: that it showed an id, or not, says nothing of what this one knows."""
    for listed in (held(A), held()):
        holding = Holding().after(read(0, held(A))).kubelet_started(10)
        holding = holding.after(read(9, listed, listed))
        for at in (11, 20, 30):
            holding = holding.after(read(at, held(), held()))
            assert holding.held.of(NAME) == {A}


def test_a_read_that_began_before_the_kubelet_had_settled_frees_nothing_however_late_it_is_over() -> None:
    holding = Holding().after(read(0, held(A))).kubelet_started(10)
    for at in (50, 10 + KUBELET_SETTLING_S):
        holding = holding.after(read(at, held(), held()))
        assert holding.held.of(NAME) == {A}


def test_an_unreadable_checkpoint_of_a_young_kubelet_frees_nothing() -> None:
    holding = Holding(kubelet_came_at=0).after(read(0, held(), held(A)))
    for at in (10, 20, 30):
        holding = holding.after(read(at, held()))
    assert holding.held.of(NAME) == {A}


def test_a_read_that_fails_keeps_what_is_known_and_says_why() -> None:
    holding = Holding().after(read(0, held(A)))
    holding = holding.after(read(10, None, None))
    assert holding.held.of(NAME) == {A}
    assert holding.held.unknown_because == "nobody answers"
    holding = holding.after(read(12, held(A)))
    assert holding.held.unknown_because == ""


def test_a_checkpoint_alone_holds_and_says_that_no_end_can_be_seen() -> None:
    """C3: it keeps pods that have ended; only PodResources makes the kubelet forget them (A13)."""
    alone = HeldRead(None, held(A), 10, "List: rejected by rate limit")
    holding = Holding().after(read(0, held(A), held(A)))
    holding = holding.after(alone)
    assert holding.held == Held({NAME: frozenset({A})}, ends_unseen_because="List: rejected by rate limit")
    assert holding.held.with_handed_out(held(B)).ends_unseen_because == "List: rejected by rate limit"
    for at in (20, 20 + APART_S):
        holding = holding.after(read(at, held(), held()))
    assert holding.held == Held()


def test_another_podresources_socket_is_another_kubelet() -> None:
    """P1: it is there, and answers with nothing, seconds before registrations are taken (S1). The first one seen is not
    a start, and none at all says nothing.
    """
    first, second = Identity(1, 10, 0), Identity(1, 11, 0)
    holding = Holding().after(replace(read(0, held(A)), kubelet=first))
    assert holding.kubelet_came_at < 0
    for at, socket in ((10, second), (20, None), (30, second)):
        holding = holding.after(replace(read(at, held(), held()), kubelet=socket))
        assert holding.held.of(NAME) == {A}
        assert holding.kubelet_came_at == 10
    for settled_at in (11 + KUBELET_SETTLING_S, 14 + KUBELET_SETTLING_S):
        holding = holding.after(replace(read(settled_at, held(), held()), kubelet=second))
    assert holding.held.of(NAME) == frozenset()
