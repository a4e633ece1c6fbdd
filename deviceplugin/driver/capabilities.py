"""The capability files of MIG instances: who may open /dev/nvidia-caps/nvidia-capN may use the instance.

The driver numbers the files of every instance that could be (/proc/driver/nvidia-caps/mig-minors: thousands of lines,
read once for a whole snapshot), and says the number of each instance that is below /proc/driver/nvidia/capabilities,
of which a container may see only a part.
"""

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from deviceplugin.model.node import Gpu, MigInstance

# How the driver counts: 15 GPU instances of a GPU, 8 compute instances of each; 1 and 2 are `config` and `monitor`.
_GPU_INSTANCES, _COMPUTE_INSTANCES, _FIRST = 15, 8, 3


def usual_capabilities(
    gpu_minor: int | None, gpu_instance: int | None, compute_instance: int | None
) -> tuple[int, int] | None:
    """The numbers that drivers give an instance; None where one that is needed is unknown."""
    if gpu_minor is None or gpu_instance is None or compute_instance is None:
        return None
    own = _FIRST + (gpu_minor * _GPU_INSTANCES + gpu_instance) * (1 + _COMPUTE_INSTANCES)
    return own, own + 1 + compute_instance


def with_capabilities(root: Path, gpus: tuple[Gpu, ...]) -> tuple[Gpu, ...]:
    """The GPUs with the capability numbers of their MIG instances, as far as the driver tells.

    Args:
        root: what /proc lies under, `/` but in tests.
    """
    wanted = {name for gpu in gpus for one in gpu.mig_instances for name in _names(gpu, one)}
    if not wanted:
        return gpus
    driver = root / "proc/driver"
    numbers = _mig_minors(driver / "nvidia-caps/mig-minors", wanted)
    for name in wanted - numbers.keys():
        gpu_name, _, rest = name.partition("/")
        number = _device_file_minor(driver / "nvidia/capabilities" / gpu_name / "mig" / rest)
        if number is not None:
            numbers[name] = number
    return tuple(
        replace(gpu, mig_instances=tuple(_numbered(gpu, one, numbers) for one in gpu.mig_instances))
        if gpu.mig_instances
        else gpu
        for gpu in gpus
    )


def _names(gpu: Gpu, instance: MigInstance) -> tuple[str, ...]:
    """`gpu0/gi1/access` and `gpu0/gi1/ci0/access`, counting GPUs by minor."""
    gi, ci = instance.gpu_instance_id, instance.compute_instance_id
    if gpu.minor is None or gi is None or ci is None:
        return ()
    return f"gpu{gpu.minor}/gi{gi}/access", f"gpu{gpu.minor}/gi{gi}/ci{ci}/access"


def _numbered(gpu: Gpu, instance: MigInstance, numbers: dict[str, int]) -> MigInstance:
    found = [numbers[name] for name in _names(gpu, instance) if name in numbers]
    return replace(instance, capabilities=(found[0], found[1])) if len(found) == 2 else instance


def _mig_minors(path: Path, wanted: Collection[str]) -> dict[str, int]:
    """Of lines like `gpu0/gi1/ci0/access 13` those that are wanted; nothing of a file that is not there."""
    found: dict[str, int] = {}
    try:
        with path.open(encoding="ascii", errors="replace") as lines:
            for line in lines:
                name, _, number = line.partition(" ")
                if name in wanted and number.strip().isdecimal():
                    found[name] = int(number)
    except OSError:
        return found
    return found


def _device_file_minor(path: Path) -> int | None:
    try:
        lines = path.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return None
    values = (line.partition(":")[2].strip() for line in lines if line.startswith("DeviceFileMinor:"))
    return next((int(value) for value in values if value.isdecimal()), None)
