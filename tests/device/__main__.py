"""Runs the checks in order and writes what they found; exit status 0 only when every one passed."""

import argparse
import faulthandler
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from deviceplugin.driver import open_driver
from tests.device import steps

LIMIT_S = 170
"""A call of the driver that hangs ends the run here, with a traceback that shows which."""

Found = TypeVar("Found")


def main() -> int:
    """See the package."""
    parser = argparse.ArgumentParser(prog="make test-device", description=steps.__doc__)
    parser.add_argument("--driver", default="nvml", help="as of `serve`: nvml, or nvml:ROOT to try the check itself")
    parser.add_argument("--container-driver-root", default="/driver-root")
    parser.add_argument("--out", type=Path, default=Path("build/device"), help="node.yaml and report.json go here")
    arguments = parser.parse_args()
    faulthandler.dump_traceback_later(LIMIT_S, exit=True)
    arguments.out.mkdir(parents=True, exist_ok=True)
    try:
        run(arguments.driver, arguments.container_driver_root, arguments.out)
    except steps.CheckFailed as error:
        print(f"FAILED: {error}", file=sys.stderr)
        return 1
    return 0


def run(spec: str, container_driver_root: str, out: Path) -> None:
    """All the checks. Raises CheckFailed at the first that does not pass."""
    driver = open_driver(spec, container_driver_root=container_driver_root)
    seconds: dict[str, float] = {}

    def step(name: str, check: Callable[[], Found]) -> Found:
        began = time.perf_counter()
        found = check()
        seconds[name] = round(time.perf_counter() - began, 3)
        print(f"ok  {name} ({seconds[name]:.3f} s)")
        return found

    first = step("snapshot, NVML opened", lambda: steps.snapshot_of_gpus(driver))
    for gpu in first.gpus:
        mig = "no MIG" if gpu.mig_mode is None else f"MIG {'on' if gpu.mig_enabled else 'off'}"
        print(f"    {gpu.describe()}, {gpu.memory_mib} MiB, NUMA node {gpu.numa_node}, {mig}")
    before = step("settings read", lambda: steps.settings(first))
    again = step("snapshot again", lambda: steps.snapshot_of_gpus(driver))
    if again != first:
        raise steps.CheckFailed(f"two snapshots differ:\n{first}\n{again}")
    print("    " + step("events", lambda: steps.events_registered(first)))
    plan = step("description replayed to the same plan", lambda: steps.replayed(first, out))
    measures = step("served to a pod", lambda: steps.served(spec, plan))
    print(f"    {measures}")
    after = step("settings unchanged", lambda: steps.settings(first))
    if after != before:
        changed = {name: (before[name], after[name]) for name in before if before[name] != after[name]}
        raise steps.CheckFailed(f"the check changed settings (before, after): {changed}")
    driver.close()
    report = {
        "driver_version": first.driver_version,
        "cuda_version": first.cuda_version,
        "products": [gpu.product_name for gpu in first.gpus],
        "machine": steps.machine(),
        "seconds": seconds,
        "served": measures,
        "settings": {name: str(value) for name, value in before.items()},
    }
    (out / "report.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    print(f"passed; {out / 'node.yaml'} describes this node, {out / 'report.json'} has the measures")


if __name__ == "__main__":
    sys.exit(main())
