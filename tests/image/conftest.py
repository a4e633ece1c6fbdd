"""The image, built once for these tests; where the tools are missing they are skipped, loudly, and fail in CI."""

import os
import shutil
import subprocess
from collections.abc import Iterator

import pytest

from tests.image.sandbox import Image, buildah
from tests.project import ROOT

TOOLS = ("buildah", "mmdebstrap")
SKIPPED = pytest.StashKey[list[str]]()


def missing() -> str:
    """What keeps the image from being built here; empty: nothing."""
    if os.geteuid() != 0:
        return "the image is built as root"
    packages = [tool for tool in TOOLS if shutil.which(tool) is None]
    return f"apt-get install --no-install-recommends {' '.join(packages)}" if packages else ""


@pytest.fixture(scope="session")
def image(request: pytest.FixtureRequest) -> Iterator[Image]:
    """The image of this checkout."""
    if why := missing():
        if os.environ.get("CI"):
            pytest.fail(f"CI must test the image: {why}")
        request.config.stash.setdefault(SKIPPED, []).append(why)
        pytest.skip(why)
    name = f"localhost/gpu-device-plugin:test-{os.getpid()}"
    build = subprocess.run(
        [ROOT / "deploy/image/build.sh", name], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert build.returncode == 0, build.stdout + build.stderr
    try:
        with Image.mounted(name) as mounted:
            yield mounted
    finally:
        buildah("rmi", name)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Says at the very end, where everyone looks, that the image was not tested."""
    for why in config.stash.get(SKIPPED, []):
        terminalreporter.section("THE IMAGE WAS NOT TESTED", red=True)
        terminalreporter.line(why)
