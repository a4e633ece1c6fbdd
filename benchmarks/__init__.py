"""Speed and memory of the real daemon, measured against the kubelet stand-in: `make bench`."""
