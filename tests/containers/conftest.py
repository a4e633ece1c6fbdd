"""Nothing here runs without a runtime."""

import pytest

from tests.tools import need


@pytest.fixture(autouse=True, scope="session")
def runtime(request: pytest.FixtureRequest) -> None:
    """Podman is here; the program in the containers is busybox, which must need no library."""
    programs = ("podman", "crun", "busybox", "unshare")
    need(request.config, "CDI with a real container runtime", programs, ("podman", "crun", "busybox-static"))
