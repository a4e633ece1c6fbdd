"""Which processes may use a GPU at a time, by NVML's numbers (nvmlComputeMode_t)."""

from enum import IntEnum


class ComputeMode(IntEnum):
    """A GPU's compute mode. EXCLUSIVE_THREAD (1) is a thing of the past that no driver sets any more."""

    DEFAULT = 0
    PROHIBITED = 2
    EXCLUSIVE_PROCESS = 3
