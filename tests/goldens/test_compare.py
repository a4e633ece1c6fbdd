"""The comparison itself: each thing that a wrong plugin could get wrong, planted, is found, and nothing else is."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

from tests.cdi.schema import violations
from tests.goldens.case import Json, case_names, full_ids, read_case
from tests.goldens.compare import Preference, compare, phrase, shape
from tests.goldens.expectations import expected_answers
from tests.goldens.links import pair_score, set_score

Plant = Callable[[Json], Any]


def gpu(answers: Json) -> Json:
    """The answers for nvidia.com/gpu."""
    resource: Json = answers["resources"]["nvidia.com/gpu"]
    return resource


def envs(answers: Json) -> Json:
    """The variables of the first container answered."""
    found: Json = gpu(answers)["allocate"][0]["response"]["envs"]
    return found


def recorded(name: str) -> Json:
    """A case's recorded answers, as our own would look if they agreed."""
    answers = expected_answers(read_case(name), None)
    for resource in answers["resources"].values():
        for question in resource["preferred"]:
            if question["response"] is None:
                question["response"] = _of_shape(question["request"]["available"], question["shapes"][0])
    return answers


def _of_shape(available: list[str], counts: list[int]) -> list[str]:
    by_device: dict[str, list[str]] = {}
    for device_id in available:
        by_device.setdefault(device_id.partition("::")[0], []).append(device_id)
    fullest = sorted(by_device.values(), key=len, reverse=True)
    return [device_id for ids, count in zip(fullest, counts, strict=False) for device_id in ids[:count]]


# Without 032 and 067, whose shapes depend on must-include ids.
@pytest.mark.parametrize("name", [name for name in case_names() if name[:3] not in ("032", "067")])
def test_a_recording_agrees_with_itself(name: str) -> None:
    assert compare(expected_answers(read_case(name), None), recorded(name)) == []


PLANTS: dict[str, tuple[Plant, str]] = {
    "ends": (lambda a: a.update(exit=0), "exit: expected still serving"),
    "resource missing": (lambda a: a["resources"].clear(), "not served"),
    "resource too many": (lambda a: a["resources"].update({"nvidia.com/x": gpu(a)}), "served, not expected"),
    "other socket": (lambda a: gpu(a).update(endpoint="gpu.sock"), "endpoint"),
    "pre-start": (lambda a: gpu(a)["options"].update(pre_start_required=True), "options"),
    "device missing": (lambda a: gpu(a)["devices"].pop(), "missing"),
    "device twice": (lambda a: gpu(a)["devices"].append(gpu(a)["devices"][0]), "listed 2 times"),
    "wrong id": (lambda a: gpu(a)["devices"][0].update(id="GPU-0"), "GPU-0 listed, not expected"),
    "unhealthy": (lambda a: gpu(a)["devices"][0].update(health="Unhealthy"), "'health': 'Unhealthy'"),
    "NUMA node 0 for none": (lambda a: gpu(a)["devices"][3].update(numa=[0]), "'numa': [0]"),
    "other preferred": (
        lambda a: gpu(a)["preferred"][0].update(response=[gpu(a)["devices"][1]["id"]]),
        "preferred[0], asked for 1 of 4",
    ),
    "too few preferred": (lambda a: gpu(a)["preferred"][1]["response"].pop(), "asked for 2, got 1"),
    "none preferred": (lambda a: gpu(a)["preferred"][1].update(response=[]), "got none"),
    "repeated preferred": (
        lambda a: gpu(a)["preferred"][1].update(response=[gpu(a)["devices"][0]["id"]] * 2),
        "ids repeat",
    ),
    "unavailable preferred": (lambda a: gpu(a)["preferred"][0].update(response=["GPU-0"]), "not available"),
    "preferred fails": (
        lambda a: gpu(a)["preferred"][0].update(response={"error": {"code": "UNKNOWN", "details": ""}}),
        "preferred[0]",
    ),
    "other question": (lambda a: gpu(a)["preferred"].pop(), "other requests"),
    "other variable": (lambda a: envs(a).update(NVIDIA_VISIBLE_DEVICES="all"), "envs"),
    "one variable more": (lambda a: envs(a).update(X=""), "envs"),
    "other order": (
        lambda a: gpu(a)["allocate"][1]["response"]["envs"].update(
            NVIDIA_VISIBLE_DEVICES=",".join(reversed(gpu(a)["allocate"][1]["request"]))
        ),
        "allocate[1]",
    ),
    "a mount": (lambda a: gpu(a)["allocate"][0]["response"]["mounts"].append({}), "mounts"),
    "a device file": (lambda a: gpu(a)["allocate"][0]["response"]["devices"].append({}), "devices"),
    "an annotation": (lambda a: gpu(a)["allocate"][0]["response"]["annotations"].update(a=""), "annotations"),
    "a CDI name": (lambda a: gpu(a)["allocate"][0]["response"]["cdi"].append("a/b=c"), "cdi"),
    "unknown id allowed": (
        lambda a: gpu(a)["allocate"][3].update(response=gpu(a)["allocate"][0]["response"]),
        "allocate[3]",
    ),
    "other code": (lambda a: gpu(a)["allocate"][3]["response"]["error"].update(code="INTERNAL"), "the code UNKNOWN"),
    "other words": (lambda a: gpu(a)["allocate"][3]["response"]["error"].update(details="no"), "the phrase"),
    "known id refused": (
        lambda a: gpu(a)["allocate"][0].update(response={"error": {"code": "UNKNOWN", "details": ""}}),
        "allocate[0]",
    ),
}


@pytest.mark.parametrize("plant", PLANTS)
def test_a_planted_mistake_is_found(plant: str) -> None:
    change, said = PLANTS[plant]
    expected = expected_answers(read_case("002-four-t4-two-numa"), None)
    got = deepcopy(expected)
    change(got)
    findings = compare(expected, got)
    assert any(said in finding for finding in findings), findings


def test_any_exit_but_zero_will_do() -> None:
    ended: Json = {"exit": 1, "resources": {}, "cdi_specs": {}}
    assert compare(ended, ended | {"exit": 2}) == []
    assert compare(ended, ended | {"exit": 0})
    assert compare(ended, ended | {"exit": None})


def test_another_shape_is_found() -> None:
    expected = expected_answers(read_case("020-ts-two-by-four"), None)
    got = recorded("020-ts-two-by-four")
    two = gpu(got)["preferred"][1]
    two["response"] = two["request"]["available"][:2]
    assert compare(expected, got) == [
        "nvidia.com/gpu: preferred[1], asked for 2 of 8 that include []: "
        f"expected a shape of [[1, 1]], got [2]: {two['response']}"
    ]


def test_a_missing_must_include_id_is_found() -> None:
    expected = expected_answers(read_case("112-preferred-bridges"), None)
    got = deepcopy(expected)
    answer = gpu(got)["preferred"][3]
    (must,) = answer["request"]["must"]
    answer["response"] = [device_id for device_id in answer["request"]["available"] if device_id != must][:2]
    assert any("must-include ids are missing" in finding for finding in compare(expected, got))


def test_the_order_inside_lists_counts_unless_it_varied() -> None:
    expected = expected_answers(read_case("092-index-ids"), None)
    got = deepcopy(expected)
    two = gpu(got)["allocate"][1]
    two["response"]["envs"]["NVIDIA_VISIBLE_DEVICES"] = "1,0"
    assert compare(expected, got) == []
    del gpu(expected)["allocate"][1]["order_varies"]
    assert compare(expected, got)


def test_a_container_that_is_not_answered_is_found() -> None:
    expected = expected_answers(read_case("115-preferred-edges"), None)
    got = deepcopy(expected)
    assert gpu(got)["allocate"][4]["response"]["containers"].pop()
    assert compare(expected, got) == [
        f"nvidia.com/gpu: allocate[4], asked for {gpu(got)['allocate'][4]['request']}: "
        "expected answers for 2 containers, got 1"
    ]


def test_preferred_by_score_takes_an_equal_set_and_refuses_a_worse_one() -> None:
    case = read_case("112-preferred-bridges")
    node = case.node()
    expected = expected_answers(case, None)
    best = gpu(expected)["preferred"][1]
    scores = {pair: pair_score(node, *pair) for pair in ((0, 1), (0, 2), (1, 3), (2, 3), (0, 3), (1, 2))}
    top = max(scores.values())
    for (a, b), score in scores.items():
        got = deepcopy(expected)
        gpu(got)["preferred"][1]["response"] = [node.gpus[a].uuid, node.gpus[b].uuid]
        findings = compare(expected, got, preference=Preference.BY_SCORE, score=lambda ids: set_score(node, ids))
        assert bool(findings) == (score < top), (a, b)
    assert set_score(node, best["response"]) == top


def test_the_score_of_a_pair_is_the_table_of_the_design() -> None:
    bridged = read_case("112-preferred-bridges").node()
    assert {pair_score(bridged, a, b) // 100 for a in range(4) for b in range(a)} == {0, *bridged.nvlinks.values()}
    switched = read_case("113-preferred-hgx-a100").node()
    links = switched.gpus[0].nvswitch_links
    assert links
    assert pair_score(switched, 0, 7) // 100 == links
    apart = read_case("002-four-t4-two-numa").node()
    assert (pair_score(apart, 0, 1), pair_score(apart, 0, 2)) == (20, 10)


def test_the_phrase_is_all_that_names_no_resource() -> None:
    assert phrase('invalid allocation request for "a/b": invalid request: unknown device: x') == (
        "invalid request: unknown device: x"
    )
    assert phrase("no such phrase") == "no such phrase"


def test_a_shape_counts_per_device() -> None:
    assert shape(["a::0", "b::1", "a::3"]) == [2, 1]
    assert shape([]) == []


def test_short_ids_are_spelled_out() -> None:
    node = read_case("047-mig-mixed").node()
    first, second = node.migs[:2]
    short = {"a": [f"g{first.gpu}::2", f"m{first.gpu}.{first.slot},m{second.gpu}.{second.slot}"], "b": "GPU-x", "c": 1}
    assert full_ids(short, node) == {
        "a": [f"{node.gpus[first.gpu].uuid}::2", f"{first.uuid},{second.uuid}"],
        "b": "GPU-x",
        "c": 1,
    }


Spec = dict[str, Any]
SPEC_PLANTS: dict[str, tuple[Callable[[Json, Spec], Any], str]] = {
    "file missing": (lambda specs, spec: specs.clear(), "not written"),
    "file too many": (
        lambda specs, spec: specs.update({"k8s.device-plugin.nvidia.com-gds.json": spec}),
        "not expected",
    ),
    "other kind": (lambda specs, spec: spec.update(kind="nvidia.com/gpu"), "kind"),
    "device missing": (lambda specs, spec: spec["devices"].pop(), "missing"),
    "device twice": (lambda specs, spec: spec["devices"].append(spec["devices"][0]), "two devices"),
    "other node": (
        lambda specs, spec: spec["devices"][0]["containerEdits"]["deviceNodes"][0].update(hostPath="/dev/nvidia7"),
        "deviceNodes",
    ),
    "node missing": (lambda specs, spec: spec["containerEdits"]["deviceNodes"].pop(), "deviceNodes"),
    "library missing": (lambda specs, spec: spec["containerEdits"]["mounts"].pop(), "mounts"),
    "writable library": (lambda specs, spec: spec["containerEdits"]["mounts"][0].update(options=["rw"]), "mounts"),
    "hook missing": (lambda specs, spec: spec["containerEdits"]["hooks"].pop(), "hooks"),
    "other folder": (lambda specs, spec: spec["containerEdits"]["hooks"][2]["args"].append("/x"), "hooks"),
    "not void": (lambda specs, spec: spec["containerEdits"]["env"].pop(), "env"),
}


@pytest.mark.parametrize("plant", SPEC_PLANTS)
def test_a_wrong_specification_is_found(plant: str) -> None:
    name = "083-cdi-cri"
    got = deepcopy(recorded(name))
    change, finding = SPEC_PLANTS[plant]
    change(got["cdi_specs"], got["cdi_specs"]["k8s.device-plugin.nvidia.com-gpu.json"])
    findings = compare(expected_answers(read_case(name), None), got)
    assert findings
    assert all(finding in one for one in findings), findings


def test_every_recorded_specification_is_valid() -> None:
    """Else the schema is stricter than what runtimes take."""
    specs = [spec for name in case_names() for spec in read_case(name).expected.get("cdi_specs", {}).values()]
    assert len(specs) == 10
    assert [finding for spec in specs for finding in violations(spec)] == []
