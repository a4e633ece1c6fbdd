"""The runner itself: what it takes down is what the daemon did, and a daemon that crashed has refused nothing."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.goldens.case import read_case
from tests.goldens.compare import compare
from tests.goldens.expectations import expected_answers
from tests.goldens.runner import run_case


def test_a_daemon_with_another_config_is_found() -> None:
    case = read_case("022-ts-fail-gt-one")
    expected = expected_answers(case, None)
    lenient = read_case("020-ts-two-by-four").config
    findings = compare(expected, run_case(replace(case, config=lenient), "simulated", expected).result)
    assert [finding.partition(", asked")[0] for finding in findings] == [
        f"nvidia.com/gpu: allocate[{i}]" for i in (1, 2, 3)
    ]


def test_a_daemon_that_forgets_a_gpu_is_found() -> None:
    case = read_case("002-four-t4-two-numa")
    expected = expected_answers(case, None)
    forgetful = replace(case, node_text=case.node_text.rstrip().rpartition("\n")[0])
    findings = compare(expected, run_case(forgetful, "nvml", expected).result)
    assert "nvidia.com/gpu: device GPU-00000003-0000-4000-8000-000000000000 missing" in findings


def test_a_crash_is_not_taken_for_a_refusal(tmp_path: Path) -> None:
    (tmp_path / "grpc.py").write_text("raise RuntimeError('planted')")
    case = replace(read_case("120-bad-version"), env={"PYTHONPATH": str(tmp_path)})
    with pytest.raises(AssertionError, match=r"did not refuse but crash[\s\S]*planted"):
        run_case(case, "simulated", case.expected)
