"""A Kubernetes device plugin for NVIDIA GPUs: whole GPUs, time-sliced replicas, MIG instances and MPS shares."""

__version__ = "0.1.0"
