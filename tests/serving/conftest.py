"""Every serving case runs on both drivers: the replayed description, and the real binding on the stand-in library."""

import pytest

from tests.serving.harness import DRIVERS


@pytest.fixture(params=DRIVERS)
def driver(request: pytest.FixtureRequest) -> str:
    """The driver's kind."""
    kind: str = request.param
    return kind
