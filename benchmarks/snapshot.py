"""How long one look at the node takes, and the CDI specifications that follow from it.

`python -m benchmarks.snapshot DRIVER DRIVER_ROOT TIMES` takes them in a process of its own, since the dynamic loader
finds the stand-in library by a variable that is read at its start; it prints two lists of seconds as JSON.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.figures import Figure, percentile
from benchmarks.nodes import Node, nvml, simulated
from deviceplugin.config.model import Flags
from deviceplugin.driver import open_driver
from deviceplugin.planning.cdi import cdi_specs
from tests.nvml_standin.sandbox import DRIVER_ROOT

MILLISECONDS = 1e3
NODE = Node(slices=7)
INSTANCES = 56


def measure(*, quick: bool) -> list[Figure]:
    """8 GPUs of 7 MIG instances each, on both drivers. The first look, which opens the library, does not count."""
    times = 20 if quick else 200
    figures = []
    for source, driver in ((simulated, "simulated"), (nvml, "NVML binding on a stand-in")):
        with tempfile.TemporaryDirectory(prefix="gdp-") as folder:
            place = Path(folder)
            seen = source(NODE, place)
            command = [sys.executable, "-m", "benchmarks.snapshot", seen.driver, str(place / "host" / DRIVER_ROOT)]
            answer = subprocess.run(
                [*command, str(times)], env=os.environ | seen.environment, check=True, capture_output=True, text=True
            )
        looks, specs = json.loads(answer.stdout)
        for name, samples in (("snapshot", looks), ("CDI specifications", specs)):
            title = f"{name} of {INSTANCES} MIG instances, {driver}"
            figures += [
                Figure(f"{title}: p50", statistics.median(samples) * MILLISECONDS, "ms", note=f"{times} times"),
                Figure(f"{title}: p95", percentile(samples, 95) * MILLISECONDS, "ms", note=f"{times} times"),
            ]
    return figures


def main() -> None:
    """Look at the node as often as the command line says, and print what each look and each making took."""
    driver = open_driver(sys.argv[1], container_driver_root=sys.argv[2])
    flags = Flags(device_list_strategies=("cdi-cri",))
    driver.snapshot()
    looks, specs = [], []
    for _ in range(int(sys.argv[3])):
        started = time.perf_counter()
        snapshot = driver.snapshot()
        looked = time.perf_counter()
        made = cdi_specs(snapshot, flags)
        ended = time.perf_counter()
        assert sum(spec.text.count("MIG-") for spec in made) >= INSTANCES, "not every MIG instance has a CDI name"
        looks.append(looked - started)
        specs.append(ended - looked)
    driver.close()
    json.dump([looks, specs], sys.stdout)


if __name__ == "__main__":
    main()
