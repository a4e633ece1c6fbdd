"""Generates deviceplugin/stubs from protos/: `make protos`, or `python -m tests.project.protos`."""

import subprocess
import sys
from pathlib import Path

from tests.project import ROOT

STUBS = "deviceplugin/stubs"


def generate(destination: Path) -> list[Path]:
    """Writes the stubs of every file in protos/ below `destination` and returns their paths relative to it.

    The virtual path of the protos is that of the stubs, so that the generated modules import each other by their
    place in the package.
    """
    protos = sorted((ROOT / "protos").glob("*.proto"))
    subprocess.run(
        [
            *(sys.executable, "-m", "grpc_tools.protoc", f"-I{STUBS}=protos"),
            *(f"--{kind}_out={destination}" for kind in ("python", "pyi", "grpc_python")),
            *(str(proto.relative_to(ROOT)) for proto in protos),
        ],
        cwd=ROOT,
        check=True,
    )
    return sorted(path.relative_to(destination) for path in (destination / STUBS).glob("*_pb2*.py*"))


if __name__ == "__main__":
    for path in generate(ROOT):
        print(path)
