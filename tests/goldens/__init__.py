"""The recorded answers of NVIDIA's plugin (tests/golden/), put to ours on both drivers (design 8, Golden cases)."""
