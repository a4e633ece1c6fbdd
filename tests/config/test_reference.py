"""docs/configuration.md: up to date, with every key, and examples that the loader takes."""

from typing import Any

import pytest

from deviceplugin.config.document import dump_document, load_document, to_plain
from deviceplugin.config.load import parse_config
from deviceplugin.config.reference import EXAMPLES, render
from deviceplugin.config.suggest import KNOWN_KEYS
from deviceplugin.config.types import ListOf, Section
from tests.project import ROOT

LEAVES = [
    path
    for path, key in KNOWN_KEYS.items()
    if not isinstance(key.type, Section) and not (isinstance(key.type, ListOf) and isinstance(key.type.item, Section))
]
# What stands beside a key of an entry, since the entry is incomplete without it.
BESIDE: dict[str, dict[str, Any]] = {
    "sharing.timeSlicing.resources[]": {"name": "nvidia.com/gpu", "replicas": 2},
    "sharing.mps.resources[]": {"name": "nvidia.com/gpu", "replicas": 2},
    "resources.gpus[]": {"pattern": "*", "name": "nvidia.com/gpu"},
    "resources.mig[]": {"pattern": "*", "name": "nvidia.com/mig"},
}


def test_the_page_is_up_to_date() -> None:
    assert (ROOT / "docs/configuration.md").read_text() == render(), "make configuration-docs"


def test_every_key_has_an_example() -> None:
    assert sorted(EXAMPLES) == sorted(LEAVES), "write the example into deviceplugin/config/reference.py"


def file_with(path: str, value: Any) -> dict[str, Any]:
    """A file that sets one key, and what must stand beside it."""
    parent, _, name = path.rpartition(".")
    here = {**BESIDE.get(parent, {}), name: value}
    if parent in {"sharing.timeSlicing", "sharing.mps"}:
        here["resources"] = [BESIDE[f"{parent}.resources[]"]]
    below: Any = here
    for key in reversed(parent.split(".")) if parent else ():
        below = {key.removesuffix("[]"): [below] if key.endswith("[]") else below}
    return {"version": "v1", **below}


@pytest.mark.parametrize("path", LEAVES)
def test_the_loader_takes_each_example(path: str) -> None:
    value = to_plain(load_document(EXAMPLES[path].encode(), "example"))
    parse_config(dump_document(file_with(path, value)).encode(), "example.yaml")
    assert f"| `{path.rpartition('.')[2]}: {EXAMPLES[path]}` |" in render()
