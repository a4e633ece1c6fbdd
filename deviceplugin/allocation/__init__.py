"""Pure answers to the kubelet: what a container receives, and which devices to prefer. No I/O, no clock."""
