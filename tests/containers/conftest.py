"""Nothing here runs without a runtime, and a machine on which it can start containers."""

import tempfile
from pathlib import Path

import pytest

from tests.containers.host import start_container
from tests.tools import cannot, need


@pytest.fixture(autouse=True, scope="session")
def runtime(request: pytest.FixtureRequest) -> None:
    """Podman is here and starts a container without any device; its program is busybox, which must need no library."""
    subject = "CDI with a real container runtime"
    need(request.config, subject, ("podman", "crun", "busybox", "unshare"), ("podman", "crun", "busybox-static"))
    # Podman takes paths of up to 50 characters.
    with tempfile.TemporaryDirectory(prefix="dp-", dir="/tmp") as place:
        done = start_container(Path(place) / "probe", Path(place), (), "echo started")
    if done.stdout != "started\n":
        cannot(request.config, subject, f"this machine lets podman start no container at all: {done.stderr.strip()}")
