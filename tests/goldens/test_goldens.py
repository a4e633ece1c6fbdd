"""Every recorded case passes, or differs with a reason; on both drivers."""

import pytest

from tests.cdi.schema import violations
from tests.goldens.case import Json, case_names, read_case
from tests.goldens.cdi import unresolved
from tests.goldens.compare import COMPARED, INFORMATION, Preference, compare
from tests.goldens.expectations import (
    PERMITTED,
    differences,
    expected_answers,
    preference,
)
from tests.goldens.links import set_score
from tests.goldens.pool import CasePool
from tests.serving.harness import DRIVERS

NAMES = case_names()
DIFFERENCES = differences()
both_drivers = pytest.mark.parametrize("driver", DRIVERS)


def by_folder(numbers: object) -> list[str]:
    """The folders of these case numbers."""
    assert hasattr(numbers, "__contains__")
    return [name for name in NAMES if name[:3] in numbers]


def disagreements(name: str, result: Json, expected: Json, rule: Preference) -> list[str]:
    """In what a result is not as expected."""
    node = read_case(name).node()
    return compare(expected, result, preference=rule, score=lambda ids: set_score(node, ids))


@both_drivers
@pytest.mark.parametrize("name", NAMES)
def test_agrees_or_differs_as_stated(name: str, driver: str, pool: CasePool) -> None:
    case = read_case(name)
    expected = expected_answers(case, DIFFERENCES.get(case.number))
    outcome = pool.outcome(name, driver)
    assert disagreements(name, outcome.result, expected, preference(case)) == [], outcome.log


@pytest.mark.parametrize("name", NAMES)
def test_both_drivers_come_to_the_same(name: str, pool: CasePool) -> None:
    simulated, nvml = (pool.outcome(name, driver) for driver in DRIVERS)
    assert simulated.result == nvml.result
    assert simulated.ready.get("ok") == nvml.ready.get("ok")


@both_drivers
@pytest.mark.parametrize("name", [name for name in NAMES if read_case(name).expected.get("cdi_specs")])
def test_cdi_names_resolve_in_valid_specifications(name: str, driver: str, pool: CasePool) -> None:
    result = pool.outcome(name, driver).result
    specs = result["cdi_specs"]
    assert [finding for spec in specs.values() for finding in violations(spec)] == []
    answers = [answer["response"] for resource in result["resources"].values() for answer in resource["allocate"]]
    names = [cdi_name for answer in answers for cdi_name in answer.get("cdi", ())]
    assert names
    assert unresolved(specs, names) == []


@both_drivers
@pytest.mark.parametrize(
    ("name", "ready"), [("008-driver-not-loaded-no-fail", True), ("010-no-nvml-library-no-fail", False)]
)
def test_a_node_without_gpus_is_ready_and_one_without_driver_is_not(
    name: str, ready: bool, driver: str, pool: CasePool
) -> None:
    assert pool.outcome(name, driver).ready["ok"] is ready


# The lists are right themselves.


@pytest.mark.parametrize("name", by_folder(DIFFERENCES))
def test_a_stated_difference_differs(name: str, pool: CasePool) -> None:
    """Else it is stale: the case agrees with its recording and leaves the list."""
    case = read_case(name)
    result = pool.outcome(name, "simulated").result
    assert DIFFERENCES[case.number]["reason"]
    assert disagreements(name, result, expected_answers(case, None), preference(case))


def test_differences_are_among_the_permitted() -> None:
    assert DIFFERENCES.keys() <= PERMITTED


def test_no_difference_is_made_up() -> None:
    """What is not on the list must agree with its recording, so no case goes unjudged."""
    assert DIFFERENCES.keys() <= {name[:3] for name in NAMES}
    assert len(NAMES) == len({name[:3] for name in NAMES}) == 96


def test_every_recorded_field_is_compared_or_declared_information() -> None:
    answer = {"response", "shapes"}
    declared = COMPARED.keys() | INFORMATION.keys()
    for name in NAMES:
        expected = read_case(name).expected
        assert expected.keys() <= {key.partition(".")[0] for key in declared}
        for resource in expected["resources"].values():
            assert {f"resources.{key}" for key in resource} <= {".".join(key.split(".")[:2]) for key in declared}
            for question in (*resource["preferred"], *resource["allocate"]):
                assert question.keys() <= answer | {"request", "random", "order_varies"}
