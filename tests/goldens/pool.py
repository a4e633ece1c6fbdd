"""Runs cases ahead of the tests that look at them, several daemons at once."""

from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, Self

from tests.goldens.case import read_case
from tests.goldens.expectations import differences, expected_answers
from tests.goldens.runner import Outcome, run_case

DAEMONS_AT_ONCE: Final = 4


class CasePool:
    """Outcomes of cases by folder and driver; each is run once, in the order in which they were announced."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(DAEMONS_AT_ONCE, thread_name_prefix="golden")
        self._differences = differences()
        self._runs: dict[tuple[str, str], Future[Outcome]] = {}

    def announce(self, runs: Iterable[tuple[str, str]]) -> None:
        """Begin with these pairs of folder and driver."""
        for name, driver in runs:
            if (name, driver) not in self._runs:
                self._runs[name, driver] = self._threads.submit(self._run, name, driver)

    def outcome(self, name: str, driver: str) -> Outcome:
        """What a case came to. Raises what its run raised."""
        self.announce([(name, driver)])
        return self._runs[name, driver].result()

    def _run(self, name: str, driver: str) -> Outcome:
        case = read_case(name)
        return run_case(case, driver, expected_answers(case, self._differences.get(case.number)))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._threads.shutdown(cancel_futures=True)
