"""The benchmarks measure what they say: nodes, figures and the echo server, apart from the daemon."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.figures import Figure, percentile, table, write_json
from benchmarks.latency import allocations, echo, preference
from benchmarks.nodes import (
    FIVE_NAMES,
    FIVE_NAMES_DEVICES,
    GPU,
    MIXED,
    SLICE,
    WHOLE,
    Node,
    five_names,
    nvml,
    simulated,
    time_sliced,
)
from benchmarks.process import usage
from deviceplugin.config.load import parse_config
from deviceplugin.driver import open_driver
from deviceplugin.planning.build import build
from tests.project import ROOT

NODES = [Node(), Node(slices=7)]


@pytest.mark.parametrize("node", NODES, ids=["whole", "sliced"])
def test_the_simulated_driver_shows_the_node(node: Node, tmp_path: Path) -> None:
    driver = open_driver(simulated(node, tmp_path).driver, container_driver_root="/driver-root")
    assert driver.snapshot() == node.snapshot()


@pytest.mark.parametrize("node", NODES, ids=["whole", "sliced"])
def test_the_binding_shows_the_same_node(node: Node, tmp_path: Path) -> None:
    source = nvml(node, tmp_path)
    program = (
        "from benchmarks.nodes import Node\n"
        "from deviceplugin.driver import open_driver\n"
        f"driver = open_driver({source.driver!r}, container_driver_root='/driver-root')\n"
        f"assert driver.snapshot() == {node!r}.snapshot()\n"
    )
    subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=os.environ | source.environment, check=True, timeout=30
    )


def planned(node: Node, config: str) -> dict[str, int]:
    """How many devices a config makes of a node, by resource."""
    plan = build(node.snapshot(), parse_config(config.encode(), "config.yaml"))
    return {resource.name: len(resource.devices) for resource in plan.resources}


def test_the_configs_make_what_is_measured() -> None:
    assert planned(Node(), WHOLE) == {GPU: 8}
    assert planned(Node(gpus=16), WHOLE) == {GPU: 16}
    assert planned(Node(slices=7), MIXED) == {SLICE: 56}
    assert planned(Node(), time_sliced(200)) == {GPU: 1600}
    five = planned(Node(), five_names())
    assert set(five) == set(FIVE_NAMES)
    assert sum(five.values()) == FIVE_NAMES_DEVICES


def test_percentiles() -> None:
    samples = [float(number) for number in range(101)]
    assert [percentile(samples, percent) for percent in (50, 95, 99)] == [50, 95, 99]


FIGURES = [Figure("a", 1.5, "ms", at_most=1), Figure("b", 0.5, "x", at_most=1, note="3 runs"), Figure("c", 7, "MiB")]


def test_the_table_says_what_is_missed() -> None:
    header, missed, met, without_aim = table(FIGURES).splitlines()
    assert header.split() == ["figure", "value", "aim", "note"]
    assert missed.split() == ["a", "1.500", "ms", "<=", "1", "MISSED"]
    assert met.split() == ["b", "0.500", "x", "<=", "1", "ok", "3", "runs"]
    assert without_aim.split() == ["c", "7.000", "MiB"]


def test_json_holds_every_figure(tmp_path: Path) -> None:
    write_json(FIGURES, tmp_path / "deep" / "out.json", quick=True)
    document = json.loads((tmp_path / "deep" / "out.json").read_text())
    assert (document["version"], document["quick"]) == (1, True)
    assert [(figure["name"], figure["value"], figure["verdict"]) for figure in document["figures"]] == [
        ("a", 1.5, "MISSED"),
        ("b", 0.5, "ok"),
        ("c", 7, ""),
    ]


def test_the_echo_server_echoes(tmp_path: Path) -> None:
    requests = [*allocations(["GPU-x::0"]), preference(["GPU-x::0", "GPU-x::1"], 1)]
    with echo(tmp_path / "e.sock") as calls:
        assert [calls("Allocate")(request) for request in requests] == requests


def test_usage_sees_descriptors_and_threads() -> None:
    before = usage(os.getpid())
    with open(os.devnull):
        during = usage(os.getpid())
    assert during.descriptors == before.descriptors + 1
    assert before.threads >= 1
    assert 1 < before.pss_mib <= before.rss_mib
