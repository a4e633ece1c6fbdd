"""One pool of running cases for the whole folder."""

from collections.abc import Iterator

import pytest

from tests.goldens.pool import CasePool
from tests.serving.harness import DRIVERS


@pytest.fixture(scope="package")
def pool(request: pytest.FixtureRequest) -> Iterator[CasePool]:
    """Runs every case that a collected test will ask for, ahead of the tests."""
    with CasePool() as cases:
        cases.announce(run for item in request.session.items for run in _runs(item))
        yield cases


def _runs(item: pytest.Item) -> Iterator[tuple[str, str]]:
    """The pairs of case and driver that a test will ask the pool for: of both drivers unless it names one."""
    if not isinstance(item, pytest.Function) or "pool" not in item.fixturenames:
        return
    params = item.callspec.params
    for driver in [params["driver"]] if "driver" in params else DRIVERS:
        yield str(params["name"]), str(driver)
