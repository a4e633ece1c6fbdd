"""What the tests of the driver share: a node to put under it, and a way to wait."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deviceplugin.driver.nvml import NvmlDriver
from deviceplugin.model.node import Gpu, Snapshot
from tests.nvml_standin import Control, write_sysfs

PATIENCE_S = 20.0
"""No test waits this long unless it fails."""


@dataclass(frozen=True, slots=True)
class Bench:
    """The driver under test and what lies under it."""

    driver: NvmlDriver
    node_file: Path
    root: Path
    control: Control

    def put(self, node_text: str, *faults: str, **sandbox: Any) -> None:
        """Make this the node; `sandbox` are options of write_sysfs."""
        self.node_file.write_text(node_text)
        write_sysfs(self.root, node_text, **sandbox)
        self.control.append(*faults)

    def look(self, node_text: str, *faults: str, **sandbox: Any) -> Snapshot:
        """The snapshot of a node."""
        self.put(node_text, *faults, **sandbox)
        return self.driver.snapshot()


def gpu_line(index: int, model: str = "t4", options: str = "") -> str:
    """A `gpu` line of a node text: minor and bus follow the index, NUMA node 0."""
    defaults = f"uuid={uuid(index)} minor={index} bus=00000000:{0x10 + index:02x}:00.0 numa=0"
    given = {option.partition("=")[0] for option in options.split()}
    kept = " ".join(option for option in defaults.split() if option.partition("=")[0] not in given)
    return f"gpu {index} model={model} {kept} {options}\n"


def uuid(index: int) -> str:
    """The UUID that `gpu_line` gives."""
    return f"GPU-{index:08x}-0000-4000-8000-000000000000"


def only(snapshot: Snapshot) -> Gpu:
    """The one GPU of a node of one."""
    (gpu,) = snapshot.gpus
    return gpu


def wait_until(condition: Callable[[], bool]) -> None:
    """Return once the condition holds; fails the test when it does not in time."""
    pause = threading.Event()
    for _ in range(int(PATIENCE_S / 0.005)):
        if condition():
            return
        pause.wait(0.005)
    raise AssertionError(f"not within {PATIENCE_S:.0f} s")
