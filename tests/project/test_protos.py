"""The checked-in stubs are those that protos/ gives."""

import re
from pathlib import Path

from tests.project import ROOT
from tests.project.protos import STUBS, generate


def test_stubs_are_fresh(tmp_path: Path) -> None:
    fresh = generate(tmp_path)
    checked_in = sorted(path.relative_to(ROOT) for path in (ROOT / STUBS).glob("*_pb2*.py*"))
    assert checked_in == fresh
    stale = [str(path) for path in fresh if (tmp_path / path).read_text() != (ROOT / path).read_text()]
    assert stale == [], "run `make protos`"


def test_the_wire_says_v1beta1() -> None:
    """The kubelet compares the service names and the version with its own to the letter (contract R3)."""
    packages = {
        path.name: match.group(1)
        for path in (ROOT / "protos").glob("*.proto")
        if (match := re.search(r"^package (\w+);", path.read_text(), re.MULTILINE))
    }
    assert packages == {"deviceplugin_v1beta1.proto": "v1beta1", "podresources_v1.proto": "v1"}
