"""When a case passes: the fields that must agree, in one table, and the comparison by it (design 8, Golden cases)."""

from collections import Counter
from collections.abc import Callable, Iterator
from enum import Enum, auto
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from deviceplugin.model.ids import unit_of
from tests.goldens.case import Json
from tests.goldens.cdi import compare_specs

COMPARED: Final = MappingProxyType(
    {
        "exit": "zero, not zero, or null: still serving at the end",
        "resources": "the names that the kubelet accepted",
        "cdi_specs": "the files, their devices, nodes, mounts, hooks and variables (tests.goldens.cdi)",
        "resources.endpoint": "the socket's name, which drop-in.md 1 wants byte for byte",
        "resources.options": "what GetDevicePluginOptions answers, the only options that count (contract R9)",
        "resources.devices": "ids with health and NUMA nodes, as a set: NVIDIA's order is random",
        "resources.preferred.response": "the ids as a set; where NVIDIA's vary, the counts per device (shapes)",
        "resources.preferred.shapes": "as above; any that was seen will do",
        "resources.allocate.response": "envs, mounts, devices, annotations, cdi; lists sorted where order_varies",
        "resources.allocate.response.error": "the gRPC code, and NVIDIA's phrase from `invalid request:` on",
    }
)
INFORMATION: Final = MappingProxyType(
    {
        "log": "other words",
        "fatal": "other words; `exit` says whether it ended",
        "effective_config": "ours is `plan` and `status`",
        "resources.register_options": "the kubelet ignores them (contract R9)",
        "resources.version": "the kubelet stand-in refuses another one (contract R3)",
    }
)

Score = Callable[[list[str]], int]


class Preference(Enum):
    """What a preferred answer must be."""

    AS_RECORDED = auto()
    """The recorded ids, or a recorded shape."""
    BY_SCORE = auto()
    """A set that the request allows and whose links score at least as high as the recorded one's."""


def compare(
    expected: Json, got: Json, *, preference: Preference = Preference.AS_RECORDED, score: Score | None = None
) -> list[str]:
    """Every point in which `got` is not what `expected` says, in words; none when the case passes.

    Args:
        expected, got: as in an expected.json; of `got` the fields of COMPARED.
        preference: the rule for preferred answers.
        score: the link score of a set of ids; for BY_SCORE.
    """
    return [
        *_exits(expected["exit"], got["exit"]),
        *_resources(expected, got, preference, score),
        *compare_specs(expected["cdi_specs"], got["cdi_specs"]),
    ]


def _exits(expected: int | None, got: int | None) -> Iterator[str]:
    if _manner(expected) != _manner(got):
        yield f"exit: expected {_manner(expected)} ({expected}), got {_manner(got)} ({got})"


def _manner(status: int | None) -> str:
    if status is None:
        return "still serving"
    return "exit with zero" if status == 0 else "exit with an error"


def _resources(expected: Json, got: Json, preference: Preference, score: Score | None) -> Iterator[str]:
    wanted, served = expected["resources"], got["resources"]
    for name in sorted(wanted.keys() - served.keys()):
        yield f"{name}: not served"
    for name in sorted(served.keys() - wanted.keys()):
        yield f"{name}: served, not expected"
    for name in sorted(wanted.keys() & served.keys()):
        for finding in _resource(wanted[name], served[name], preference, score):
            yield f"{name}: {finding}"


def _resource(expected: Json, got: Json, preference: Preference, score: Score | None) -> Iterator[str]:
    for key in ("endpoint", "options"):
        if expected[key] != got[key]:
            yield f"{key}: expected {expected[key]}, got {got[key]}"
    yield from _devices(expected["devices"], got["devices"])
    for key, findings_of in (("preferred", partial(_preferred, preference, score)), ("allocate", _allocated)):
        asked, answered = ([answer["request"] for answer in answers[key]] for answers in (expected, got))
        if asked != answered:
            yield f"{key}: these are answers to other requests: {answered}, not {asked}"
            continue
        for i, (wanted, answer) in enumerate(zip(expected[key], got[key], strict=True)):
            for finding in findings_of(wanted, answer["response"]):
                yield f"{key}[{i}], asked for {_brief(wanted['request'])}: {finding}"


def _brief(request: Any) -> str:
    if isinstance(request, list):
        return str(request)
    return f"{request['size']} of {len(request['available'])} that include {request['must']}"


def _devices(expected: list[Json], got: list[Json]) -> Iterator[str]:
    for device_id, times in Counter(device["id"] for device in got).items():
        if times > 1:
            yield f"device {device_id} listed {times} times"
    wanted, listed = ({device["id"]: device for device in devices} for devices in (expected, got))
    for device_id in sorted(wanted.keys() | listed.keys()):
        if device_id not in listed:
            yield f"device {device_id} missing"
        elif device_id not in wanted:
            yield f"device {device_id} listed, not expected"
        elif wanted[device_id] != listed[device_id]:
            yield f"device expected {wanted[device_id]}, got {listed[device_id]}"


def _preferred(preference: Preference, score: Score | None, expected: Json, got: Any) -> Iterator[str]:
    response = expected["response"]
    if isinstance(response, dict) or isinstance(got, dict):
        yield from _error(response, got)
        return
    if response == [] or got == []:
        if response != got:
            yield f"expected {response or 'an answer'}, got {got or 'none'}"
        return
    forbidden = list(_allowed(expected["request"], got))
    yield from forbidden
    if forbidden:
        return
    if preference is Preference.BY_SCORE:
        assert score is not None, "BY_SCORE needs a score"
        if score(got) < score(response):
            yield f"{got} scores {score(got)}, the recorded {response} {score(response)}"
    elif response is None:
        if shape(got) not in expected["shapes"]:
            yield f"expected a shape of {expected['shapes']}, got {shape(got)}: {got}"
    elif sorted(response) != sorted(got):
        yield f"expected {response}, got {got}"


def shape(ids: list[str]) -> list[int]:
    """How many of the ids each physical device (GPU or MIG instance) has, largest first."""
    return sorted(Counter(unit_of(device_id) for device_id in ids).values(), reverse=True)


def _allowed(request: Json, got: list[str]) -> Iterator[str]:
    """What a request rules out. More must-include ids than asked for come back as they are (golden 032)."""
    must = set(request["must"])
    if len(set(got)) != len(got):
        yield f"ids repeat: {got}"
    if len(got) != max(request["size"], len(must)):
        yield f"asked for {request['size']}, got {len(got)}"
    if missing := must - set(got):
        yield f"must-include ids are missing: {sorted(missing)}"
    if strange := set(got) - set(request["available"]) - must:
        yield f"ids that are not available: {sorted(strange)}"


def _allocated(expected: Json, got: Json) -> Iterator[str]:
    response = expected["response"]
    if "error" in response or "error" in got:
        yield from _error(response, got)
        return
    if ("containers" in response) != ("containers" in got):
        yield f"expected {response}, got {got}"
        return
    wanted, answers = (answer.get("containers", [answer]) for answer in (response, got))
    if len(wanted) != len(answers):
        yield f"expected answers for {len(wanted)} containers, got {len(answers)}"
        return
    for container, answer in zip(wanted, answers, strict=True):
        yield from _container(container, answer, order_varies=expected.get("order_varies", False))


def _container(expected: Json, got: Json, *, order_varies: bool) -> Iterator[str]:
    def shown(answer: Json, key: str) -> object:
        value = answer[key]
        if not order_varies:
            return value
        if key == "cdi":
            return sorted(value)
        return {name: sorted(text.split(",")) for name, text in value.items()} if key == "envs" else value

    for key in ("envs", "mounts", "devices", "annotations", "cdi"):
        if shown(expected, key) != shown(got, key):
            yield f"{key}: expected {expected[key]}, got {got[key]}"


def _error(expected: Any, got: Any) -> Iterator[str]:
    wanted, answered = (answer.get("error") if isinstance(answer, dict) else None for answer in (expected, got))
    if wanted is None or answered is None:
        yield f"expected {expected}, got {got}"
        return
    if wanted["code"] != answered["code"]:
        yield f"expected the code {wanted['code']}, got {answered['code']} ({answered['details']})"
    if phrase(wanted["details"]) not in answered["details"]:
        yield f"expected the phrase {phrase(wanted['details'])!r}, got {answered['details']!r}"


def phrase(details: str) -> str:
    """What people and tools recognise in NVIDIA's refusal: all from `invalid request:` on, which names no resource."""
    found = details.find("invalid request:")
    return details[max(found, 0) :]
