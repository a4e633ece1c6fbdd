"""Checks a specification by schema.json."""

import json
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]

_SCHEMA = json.loads(Path(__file__).with_name("schema.json").read_text())
_VALIDATOR = jsonschema.Draft7Validator(_SCHEMA)


def violations(spec: Any) -> list[str]:
    """What a specification, as parsed JSON, does against the schema."""
    return [f"{error.json_path}: {error.message}" for error in _VALIDATOR.iter_errors(spec)]
