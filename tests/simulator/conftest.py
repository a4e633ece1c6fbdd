"""The fixtures `node` and `nodes`, with paths short enough for unix sockets."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.simulator.node import Node


@pytest.fixture
def nodes() -> Iterator[Callable[[], Node]]:
    """Makes fresh nodes; all of them end with the test."""
    made: list[Node] = []

    def make() -> Node:
        made.append(Node(Path(tempfile.mkdtemp(prefix="k"))))
        return made[-1]

    try:
        yield make
    finally:
        problems = []
        for one in made:
            try:
                one.close()
            except Exception as problem:
                problems.append(problem)
            shutil.rmtree(one.root, ignore_errors=True)
        if problems:
            raise problems[0]


@pytest.fixture
def node(nodes: Callable[[], Node]) -> Node:
    """A fresh node."""
    return nodes()
