"""A real container runtime (podman with crun) starts containers by what the plugin answers."""
