"""Signals at any moment of the start: the first process of a container gets only those that it has handlers for."""

import signal
import subprocess
import sys

import pytest

from tests.serving.harness import Node, deadline, t4s

# Modules in the order in which a start imports them; `-X importtime` names each as it is done.
MOMENTS = ("deviceplugin.config.settings", "grpc", "deviceplugin.app.daemon", "deviceplugin.observe.logs")


def start_and_wait_for(module: str, node: Node) -> subprocess.Popen[str]:
    """The daemon, at the moment in which it has imported `module`."""
    process = subprocess.Popen(
        [sys.executable, "-X", "importtime", "-m", "deviceplugin.cli.main", "serve", *node.flags()],
        env=node.environ(),
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if line.rstrip().rpartition("|")[2].strip() == module:
            return process
    raise AssertionError(f"the start ended before it imported {module}")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGQUIT])
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_signal_ends_it_with_status_0(moment: str, number: signal.Signals) -> None:
    with Node(t4s(1)) as node:
        node.kubelet.start()
        process = start_and_wait_for(moment, node)
        with deadline(2.5):
            process.send_signal(number)
            _, rest = process.communicate(timeout=10)
        assert process.returncode == 0, rest
        assert not node.sockets()
        assert not node.status_socket.exists()


def test_a_reload_that_comes_too_early_is_not_the_end() -> None:
    with Node(t4s(1)) as node:
        node.kubelet.start()
        process = start_and_wait_for(MOMENTS[0], node)
        process.send_signal(signal.SIGHUP)
        node.wait_listed("nvidia.com/gpu")
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=10)
        assert process.returncode == 0
