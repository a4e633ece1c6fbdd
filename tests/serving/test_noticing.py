"""Where inotify can't be had, and where it has too much to say (issue 5, 1): for real, with a lowered kernel limit."""

import os
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.serving.harness import Node
from tests.serving.test_reload import GPU, has, shared


def with_limit(limit: str, value: int) -> Sequence[str]:
    """Run a command in a user namespace of its own in which this limit of inotify is lowered."""
    script = f'echo {value} > /proc/sys/user/{limit} && exec "$@"'
    return ("unshare", "--user", "--map-root-user", "sh", "-c", script, "sh")


def descriptors(node: Node) -> int:
    assert node.process is not None
    return len(os.listdir(f"/proc/{node.process.pid}/fd"))


@pytest.mark.parametrize(
    ("limit", "value", "advice"),
    [
        ("max_inotify_instances", 0, "fs.inotify.max_user_instances"),
        ("max_inotify_watches", 0, "fs.inotify.max_user_watches"),
        ("max_inotify_watches", 2, "fs.inotify.max_user_watches"),
    ],
)
def test_an_exhausted_inotify_slows_it_down_and_costs_nothing_else(limit: str, value: int, advice: str) -> None:
    with Node(config=shared(2), launcher=with_limit(limit, value)).run() as node:
        node.wait_ready()
        node.wait_log(advice)
        before = descriptors(node)
        for replicas in (3, 4, 2, 3):
            node.write_config(shared(replicas))
            node.wait_list(has(2 * replicas))
        node.kubelet.restart()
        node.kubelet.wait_for(lambda: len(node.kubelet.resources[GPU].registrations) == 2)
        node.wait_ready()
        assert node.log.count(advice) <= 4, "said once for each thing that can't be watched"
        assert descriptors(node) <= before + 4


def test_a_replaced_directory_and_a_new_one_beside_it() -> None:
    """watchdog goes silent, its thread alive, when the watched directory is replaced (design 8, File watching)."""
    with Node(config=shared(2)).run() as node:
        node.wait_ready()
        assert node.config_path is not None
        directory = node.config_path.parent
        for replicas in (3, 4, 5):
            fresh = directory.with_name("fresh")
            fresh.mkdir()
            (fresh / "config.yaml").write_text(shared(replicas))
            directory.rename(directory.with_name(f"old-{replicas}"))
            fresh.rename(directory)
            node.wait_list(has(2 * replicas))


def test_a_link_to_another_directory_is_followed() -> None:
    with Node(config=shared(2)) as node:
        assert node.config_path is not None
        original = node.config_path
        linked = node.root / "linked"
        os.symlink(original.parent, linked)
        node.config_path = linked / "config.yaml"
        node.run()
        node.wait_ready()
        other = node.root / "other"
        other.mkdir()
        (other / "config.yaml").write_text(shared(4))
        os.symlink(other, node.root / "next")
        os.rename(node.root / "next", linked)
        node.wait_list(has(8))
        (other / "config.yaml").write_text(shared(3))
        node.wait_list(has(6))


def usage(node: Node) -> tuple[int, int, int]:
    """Threads, descriptors and inotify watches of the daemon."""
    assert node.process is not None
    process = Path(f"/proc/{node.process.pid}")
    watches = sum(line.startswith("inotify ") for file in (process / "fdinfo").iterdir() for line in _lines(file))
    return len(list((process / "task").iterdir())), len(list((process / "fd").iterdir())), watches


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text().splitlines()
    except OSError:  # closed meanwhile
        return []


def test_flapping_between_two_configs_grows_nothing_and_sends_few_lists() -> None:
    """200 edits as fast as they can be written, each with a SIGHUP: lists are bounded by the debounce (L13)."""
    with Node(config=shared(2)).run() as node:
        node.wait_ready()
        assert node.process is not None
        for round_ in range(5):
            for number in range(40):
                node.write_config(shared(3 + number % 2))
                node.process.send_signal(signal.SIGHUP)
            node.write_config(shared(5 + round_))
            node.wait_list(has(2 * (5 + round_)))
            if round_ == 0:
                warm = usage(node)
        lists = node.kubelet.resources[GPU].lists
        assert len(lists) < 60, "205 edits"
        assert len(node.kubelet.resources[GPU].registrations) == 1
        after = usage(node)
        assert all(now <= then + 2 for now, then in zip(after, warm, strict=True)), (warm, after)
