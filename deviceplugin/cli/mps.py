"""`mps`: the supervisor of MPS control daemons; `mps mount-shm`: their shared memory, before the supervisor starts."""

import os
from pathlib import Path

from deviceplugin.cli.serve import end_at_once_on_signals

MOUNT_SHM = "mount-shm"
DOES = (
    "Runs and watches the MPS control daemons of this node's GPUs, in a container of its own. It takes the flags of "
    f"`serve`, so that both read one config. With {MOUNT_SHM}: mounts the /dev/shm of daemons and of pods on MPS "
    "shares, and ends."
)


def run(words: list[str]) -> int:
    """Supervise until a signal comes; does not return then, but ends the process with 0 (signal) or 1 (could not).

    With `mount-shm` first, as the init container of NVIDIA's chart has it: mount the shared memory and return 0.
    """
    end_at_once_on_signals()
    mounts = words[:1] == [MOUNT_SHM]
    from deviceplugin.config.settings import help_text, parse_settings  # noqa: PLC0415

    if any(word in ("-h", "--help", "-help") for word in words):
        print(help_text(f"gpu-device-plugin mps [{MOUNT_SHM}]", DOES))
        return 0
    settings = parse_settings(words[mounts:], os.environ)
    if mounts:
        from deviceplugin.mps.memory import mount_shm  # noqa: PLC0415

        print(mount_shm(Path(settings.mps_container_root), settings.mps_shm_size_mib))
        return 0
    from deviceplugin.app.supervisor import run_and_exit  # noqa: PLC0415
    from deviceplugin.observe.logs import configure  # noqa: PLC0415

    configure(settings.log_format, settings.log_level)
    run_and_exit(settings)
    return 0
