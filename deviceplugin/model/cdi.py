"""The names that the Container Device Interface knows our devices by. They are NVIDIA's plugin's: pods that run keep
theirs when one plugin replaces the other.
"""

import re
from dataclasses import dataclass
from typing import Final

VENDOR: Final = "k8s.device-plugin.nvidia.com"
GPU_CLASS: Final = "gpu"
IMEX_CLASS: Final = "imex-channel"
EXTRA_CLASSES: Final = ("gdrcopy", "gds", "mofed")
CLASSES: Final = (GPU_CLASS, IMEX_CLASS, *EXTRA_CLASSES)
ALL: Final = "all"
"""The one device of each class of EXTRA_CLASSES."""
_DEVICE_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?")


def qualified_name(device_class: str, name: str) -> str:
    """The fully qualified name of a device: `k8s.device-plugin.nvidia.com/gpu=GPU-...`."""
    return f"{VENDOR}/{device_class}={name}"


def is_device_name(name: str) -> bool:
    """Whether the CDI specification (0.5.0) allows a device to be called so; one other name costs the whole file.

    A MIG UUID of drivers before 470, `MIG-GPU-<uuid>/<gi>/<ci>`, is none.
    """
    return _DEVICE_NAME.fullmatch(name) is not None


def file_name(device_class: str) -> str:
    """The file that specifies a class of ours."""
    return f"{VENDOR}-{device_class}.json"


@dataclass(frozen=True, slots=True)
class CdiSpec:
    """What stands in one file of the CDI directory.

    Attributes:
        device_class: of CLASSES.
        text: JSON, valid by the CDI specification.
    """

    device_class: str
    text: str
