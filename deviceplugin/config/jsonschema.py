"""The JSON Schema of the config file, for editors: `python -m deviceplugin.config.jsonschema > config/schema.json`.

Made from config.schema, so that it says what the loader does, but for what JSON Schema can't say (which device is
claimed twice, which name the kubelet refuses in which place, what is not offered yet by value).
"""

import json
import sys
from typing import Any

from deviceplugin.config.scalars import PERIOD_PART
from deviceplugin.config.schema import ROOT
from deviceplugin.config.selectors import MAX_GPU_INDEX
from deviceplugin.config.types import (
    Boolean,
    Choice,
    Duration,
    GpuList,
    Key,
    ListOf,
    MemoryLimit,
    Period,
    ResourceName,
    Section,
    SharedDevices,
    Text,
    Type,
    Whole,
)

_TEXT = {"type": "string", "minLength": 1}
_INDEX = {"type": "integer", "minimum": 0, "maximum": MAX_GPU_INDEX}
_SELECTORS = {"type": "array", "items": {"anyOf": [_INDEX, _TEXT]}}
_SCALARS: dict[type, dict[str, Any]] = {
    Boolean: {"type": "boolean"},
    Duration: {"type": ["string", "number"]},
    MemoryLimit: _TEXT,
    Period: {"type": "string", "pattern": f"^({PERIOD_PART})+$"},
    ResourceName: _TEXT,
    Text: {"type": "string"},
}


def json_schema() -> dict[str, Any]:
    """The schema as plain data, draft 2020-12."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Config of gpu-device-plugin",
        **_of_type(ROOT),
    }


def render() -> str:
    """The schema as the text of `config/schema.json`."""
    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"


def _of_key(key: Key) -> dict[str, Any]:
    schema: dict[str, Any] = {"description": key.doc}
    if key.default is not None:
        schema["default"] = key.default
    return {**schema, **_of_type(key.type)}


def _of_type(kind: Type) -> dict[str, Any]:
    match kind:
        case Section():
            return _of_section(kind)
        case ListOf():
            items = {"type": "array", "items": _of_type(kind.item), "minItems": kind.minimum}
            return {"anyOf": [_TEXT, items]} if kind.alone else items
        case SharedDevices():
            count = {"type": "integer", "minimum": 1, "maximum": MAX_GPU_INDEX}
            return {"description": kind.expected, "anyOf": [count, _TEXT, {**_SELECTORS, "minItems": 1}]}
        case GpuList():
            return {"description": kind.expected, "anyOf": [_TEXT, _SELECTORS]}
    return _of_scalar(kind)


def _of_scalar(kind: Type) -> dict[str, Any]:
    match kind:
        case Choice(options=options):
            return {"enum": list(options)}
        case Whole(minimum=minimum, maximum=maximum):
            return {"type": "integer", "minimum": minimum, "maximum": maximum}
    return _SCALARS[type(kind)]


def _of_section(section: Section) -> dict[str, Any]:
    required = [key.name for key in section.keys if key.required]
    return {
        "type": "object",
        "additionalProperties": False,
        **({"required": required} if required else {}),
        "properties": {key.name: _or_null(key) for key in section.keys},
    }


def _or_null(key: Key) -> dict[str, Any]:
    """Null means unset, where the loader lets it."""
    schema = _of_key(key)
    if key.required or (isinstance(key.type, Section) and key.type.null_hint):
        return schema
    if isinstance(schema.get("type"), str):
        return {**schema, "type": [schema["type"], "null"]}
    if isinstance(schema.get("type"), list):
        return {**schema, "type": [*schema["type"], "null"]}
    if "enum" in schema:
        return {**schema, "enum": [*schema["enum"], None]}
    return {**schema, "anyOf": [*schema["anyOf"], {"type": "null"}]}


if __name__ == "__main__":
    sys.stdout.write(render())
