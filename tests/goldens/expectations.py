"""What each recorded case must come to: agree, or differ on purpose."""

from copy import deepcopy
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from deviceplugin.config.document import load_document, to_plain
from tests.goldens.case import Case, Json, full_ids
from tests.goldens.compare import Preference

# Design 8, Golden cases: on the shared set the differences are at most these.
PERMITTED: Final = frozenset(
    {"013", "027", "028", "030", "032", "033", "037", "055", "060", "070", "072", "073", "075", "077", "078"}
    | {"115", "135", "140", "142", "170"}
)
# Preferred answers for whole GPUs pass by score (design 8).
BY_SCORE: Final = frozenset(("110", "112", "113", "115", "117", "118"))

UNKNOWN_ID: Final = "GPU-unknown"
OPTIONS: Final = MappingProxyType({"get_preferred_allocation_available": True, "pre_start_required": False})


def differences() -> Json:
    """The cases of differences.yaml by number, as they stand there."""
    path = Path(__file__).with_name("differences.yaml")
    listed: Any = to_plain(load_document(path.read_bytes(), str(path)))
    return dict(listed)


def expected_answers(case: Case, difference: Json | None) -> Json:
    """What a case must come to: its recording, or with a difference our own answers in the same form."""
    recorded: Json = {key: deepcopy(case.expected[key]) for key in ("exit", "resources")}
    recorded["cdi_specs"] = case.expected.get("cdi_specs", {})
    if difference is None:
        return recorded
    if "resources" in difference:
        resources = {
            name: _own_resource(full_ids(words, case.node()), recorded)
            for name, words in difference["resources"].items()
        }
        return {"exit": difference["exit"], "resources": resources, "cdi_specs": {}}
    if not difference.get("repeats", True):
        _leave_out_repeats(recorded)
    for name, answers in full_ids(difference.get("allocate", {}), case.node()).items():
        for index, answer in answers.items():
            response = recorded["resources"][name]["allocate"][int(index)]["response"]
            response["envs"] |= answer["envs"]
            for mount in response["mounts"]:
                mount["host_path"] = answer["host_paths"].get(mount["container_path"], mount["host_path"])
    for name, answers in difference.get("preferred", {}).items():
        for index, answer in answers.items():
            recorded["resources"][name]["preferred"][int(index)]["response"] = answer
    return recorded


def _leave_out_repeats(recorded: Json) -> None:
    """Names each device file once in every answer."""
    answers = (answer["response"] for resource in recorded["resources"].values() for answer in resource["allocate"])
    for response in answers:
        files = response.get("devices", [])
        response["devices"] = [file for number, file in enumerate(files) if file not in files[:number]]


def _own_resource(words: Json, recorded: Json) -> Json:
    if "like" in words:
        other: Json = recorded["resources"][words["like"]]
        return other | {"endpoint": words["socket"]}
    refusal = {"error": {"code": "UNKNOWN", "details": f"invalid request: unknown device: {UNKNOWN_ID}"}}
    return {
        "endpoint": words["socket"],
        "options": dict(OPTIONS),
        "devices": [{"id": id, "health": "Healthy", "numa": words["numa"]} for id in words["devices"]],
        "preferred": [
            {"request": {"available": words["devices"], "must": [], "size": size}, "response": ids}
            for size, ids in words["preferred"]
        ],
        "allocate": [
            *({"request": ids, "response": _env_answer(visible)} for ids, visible in words["allocate"]),
            {"request": [UNKNOWN_ID], "response": refusal},
        ],
    }


def _env_answer(visible: str) -> Json:
    return {
        "annotations": {},
        "cdi": [],
        "devices": [],
        "envs": {"NVIDIA_VISIBLE_DEVICES": visible},
        "mounts": [],
    }


def preference(case: Case) -> Preference:
    """The rule for a case's preferred answers."""
    return Preference.BY_SCORE if case.number in BY_SCORE else Preference.AS_RECORDED
