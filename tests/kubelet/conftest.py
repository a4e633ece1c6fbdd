"""Fixtures; paths are short enough for unix sockets."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kubelet.node import Node


@pytest.fixture
def root() -> Iterator[Path]:
    """A short directory."""
    made = Path(tempfile.mkdtemp(prefix="k"))
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture
def node(root: Path) -> Iterator[Node]:
    """A node whose kubelet is not started yet."""
    made = Node(root)
    yield made
    made.close()
