"""What streams get of lists that change while nobody takes them."""

import pytest

from deviceplugin.kubelet.feed import ListFeed, Stream


@pytest.fixture
def feed() -> ListFeed:
    return ListFeed(b"first", changed=lambda: None, monotonic=lambda: 0.0)


def opened(feed: ListFeed) -> Stream:
    stream = feed.open()
    assert stream is not None
    return stream


def test_only_the_newest_list_is_sent(feed: ListFeed) -> None:
    lists = opened(feed).lists()
    assert next(lists) == b"first"
    assert feed.publish(b"second")
    assert feed.publish(b"third")
    assert next(lists) == b"third"
    assert feed.state.lists_sent == 2


def test_a_list_that_changed_and_changed_back_is_no_news(feed: ListFeed) -> None:
    """L13: the kubelet processes what it has already like anything else."""
    lists = opened(feed).lists()
    next(lists)
    assert feed.publish(b"second")
    assert feed.publish(b"first")
    feed.end_streams()
    assert list(lists) == []


def test_a_repeat_is_sent_though_nothing_changed(feed: ListFeed) -> None:
    lists = opened(feed).lists()
    assert next(lists) == b"first"
    assert not feed.publish(b"first")
    feed.repeat()
    assert next(lists) == b"first"


def test_a_new_stream_has_the_list_of_now(feed: ListFeed) -> None:
    feed.publish(b"second")
    feed.repeat()
    assert next(opened(feed).lists()) == b"second"
