"""What concerns a running plugin is tried on both drivers."""

import pytest

from tests.serving.harness import DRIVERS


@pytest.fixture(params=DRIVERS)
def driver(request: pytest.FixtureRequest) -> str:
    """The driver's kind."""
    kind: str = request.param
    return kind
