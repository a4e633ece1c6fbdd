"""The image, built once for these tests."""

import os
import subprocess
from collections.abc import Iterator

import pytest

from tests.image.sandbox import Image, buildah
from tests.image.seccomp import PROFILE
from tests.project import ROOT
from tests.tools import need


@pytest.fixture(scope="session")
def image(request: pytest.FixtureRequest) -> Iterator[Image]:
    """The image of this checkout."""
    need(request.config, "the image", ("buildah", "mmdebstrap"))
    need(request.config, "the image", (), ("golang-github-containers-common", "libseccomp2"), files=(PROFILE,))
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
