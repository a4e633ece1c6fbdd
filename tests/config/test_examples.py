"""The files people read first: they load without a warning, say what they do, and agree with the schema for editors."""

import json
from pathlib import Path

import jsonschema  # type: ignore[import-untyped]
import pytest

from deviceplugin.config.document import dump_document, load_document, to_plain
from deviceplugin.config.jsonschema import json_schema, render
from deviceplugin.config.load import load_config
from deviceplugin.config.model import SelectIndex
from deviceplugin.errors import ConfigError
from tests.config.files import EXAMPLES, GOLDEN, ROOT, write

EVERY_GOOD_FILE = (*EXAMPLES, *sorted(GOLDEN.glob("*/config.yaml")))
VALIDATOR = jsonschema.Draft202012Validator(json_schema())


def loads(path: Path) -> bool:
    try:
        load_config(str(path))
    except ConfigError:
        return False
    return True


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_loads_and_explains_itself(path: Path) -> None:
    config = load_config(str(path))
    assert config.warnings == ()
    lines = path.read_text().splitlines()
    assert lines[0] == "# yaml-language-server: $schema=schema.json"
    assert sum(line.lstrip().startswith("#") for line in lines) >= 4
    assert all(len(line) <= 120 for line in lines)


def test_the_examples_cover_what_the_file_can_do() -> None:
    names = {path.stem for path in EXAMPLES}
    assert names >= {"default", "time-slicing", "mps", "mig-mixed", "mode-per-gpu", "by-model", "include-exclude"}
    config = load_config(str(ROOT / "config" / "mode-per-gpu.yaml"))
    assert config.time_slicing is not None
    assert config.mps is not None
    assert config.time_slicing.entries[0].selectors == tuple(SelectIndex(index) for index in (2, 3, 4, 5))
    assert config.mps.entries[0].memory_limit_percent == 10


def test_the_checked_in_schema_is_fresh() -> None:
    stale = "stale: run `python -m deviceplugin.config.jsonschema > config/schema.json`"
    assert (ROOT / "config" / "schema.json").read_text() == render(), stale


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(json_schema())


@pytest.mark.parametrize("path", EVERY_GOOD_FILE, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_the_schema_takes_what_the_loader_takes(path: Path) -> None:
    if loads(path):
        assert [
            error.message for error in VALIDATOR.iter_errors(to_plain(load_document(path.read_bytes(), path.name)))
        ] == []


@pytest.mark.parametrize(
    "value",
    [
        {"flag": {}},
        {"version": "v2"},
        {"flags": {"renameByDefault": True}},
        {"flags": {"failOnInitError": "yes"}},
        {"flags": {"migStrategy": "both"}},
        {"sharing": {"timeSlicing": None}},
        {"sharing": {"timeSlicing": {}}},
        {"sharing": {"timeSlicing": {"resources": []}}},
        {"sharing": {"timeSlicing": {"resources": [{"name": "gpu", "replicas": 1}]}}},
        {"sharing": {"timeSlicing": {"resources": [{"name": "gpu", "replicas": "4"}]}}},
        {"sharing": {"timeSlicing": {"resources": [{"name": "gpu", "replicas": 4, "memoryLimit": "8Gi"}]}}},
        {"sharing": {"mps": {"resources": [{"replicas": 4}]}}},
        {"sharing": {"mps": {"resources": [{"name": "gpu", "replicas": 4, "devices": []}]}}},
        {"imex": {"channelIDs": [1]}},
        {"health": {"xids": {"never": [79]}}},
        {"health": {"xids": {"ignore": ["79"]}}},
        {"health": {"conditions": {"uncorrectableEcc": "maybe"}}},
        {"health": {"conditions": {"failedCall": "ignore"}}},
        {"health": {"quietTime": "1 minute"}},
        {"health": {"quietTime": 60}},
    ],
    ids=lambda value: json.dumps(value)[:60],
)
def test_the_schema_and_the_loader_refuse_the_same(tmp_path: Path, value: dict[str, object]) -> None:
    assert not VALIDATOR.is_valid(value)
    with pytest.raises(ConfigError):
        load_config(write(tmp_path, dump_document(value)))  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [{}, {"version": None, "flags": {"migStrategy": None}, "sharing": None, "imex": {}}])
def test_null_means_unset_to_both(tmp_path: Path, value: dict[str, object]) -> None:
    assert VALIDATOR.is_valid(value)
    load_config(write(tmp_path, dump_document(value)))  # type: ignore[arg-type]
