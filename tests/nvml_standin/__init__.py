"""A stand-in for NVIDIA's driver library that the real pynvml loads, and the files around it.

    library = build(directory)                      # compiles libnvidia-ml.so.1
    write_sysfs(root, text)                         # /sys, /proc and /dev of the same node
    environ["NVML_STANDIN_NODE"] = str(node_txt)    # the node, in the format of tests/golden/*/node.txt
    environ["NVML_STANDIN_CONTROL"] = str(faults)   # optional: what goes wrong, changed through Control

Set the variables before the program starts (or through os.environ before nvmlInit), and have pynvml find the
library: LD_LIBRARY_PATH for another process, `with bound_pynvml(library, tmp_path):` in this one. What the
stand-in does and does not model stands at the top of core.c.
"""

from tests.nvml_standin.control import Control
from tests.nvml_standin.library import bound_pynvml, build, load
from tests.nvml_standin.node import (
    MODELS,
    PROFILES,
    Model,
    NodeDescription,
    NodeGpu,
    NodeMig,
    Profile,
    parse_node,
)
from tests.nvml_standin.sandbox import DRIVER_ROOT, FILE_OPTIONS, capability_minor, mig_minors, write_sysfs

__all__ = [
    "DRIVER_ROOT",
    "FILE_OPTIONS",
    "MODELS",
    "PROFILES",
    "Control",
    "Model",
    "NodeDescription",
    "NodeGpu",
    "NodeMig",
    "Profile",
    "bound_pynvml",
    "build",
    "capability_minor",
    "load",
    "mig_minors",
    "parse_node",
    "write_sysfs",
]
