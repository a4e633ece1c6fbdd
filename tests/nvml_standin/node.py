"""Reads node descriptions, the `node.txt` of the recorded cases (format: tests/golden/README.md).

The C side reads the same format; both take products and MIG profiles from models.def.
"""

import ast
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Final

_CI_SLICES: Final = (1, 2, 3, 4, 7, 8, 6, 1)
TOPOLOGY_LEVELS: Final = ("internal", "single", "multiple", "hostbridge", "node", "system")


@dataclass(frozen=True, slots=True)
class Model:
    """A product, as models.def has it."""

    key: str
    product_name: str
    brand: int
    memory_mib: int
    compute_capability: tuple[int, int]
    pci_device: int
    nvlinks: int
    nvlink_version: int
    ecc: bool
    row_remapping: bool
    fabric: bool
    max_mig_devices: int
    memory_slices: int


@dataclass(frozen=True, slots=True)
class Profile:
    """A GPU instance profile: `index` goes into NVML's queries, `profile_id` comes out of them."""

    model: str
    index: int
    profile_id: int
    name: str
    slices: int
    memory_mib: int
    memory_slices: int
    instances: int
    multiprocessors: int
    copy_engines: int
    decoders: int
    jpeg_engines: int
    ofa_engines: int


@dataclass(frozen=True, slots=True)
class NodeMig:
    """One `mig` line; `profile` is the computed name, `1c.3g.20gb` if it does not fill its GPU instance."""

    gpu: int
    slot: int
    gpu_instance_id: int
    compute_instance_id: int
    gi_profile: int
    ci_profile: int
    start: int
    size: int
    uuid: str
    profile: str
    memory_mib: int


@dataclass(frozen=True, slots=True)
class NodeGpu:
    """One `gpu` line with its MIG devices.

    Attributes:
        bus: as NVML spells it, `00000000:10:00.0`.
        numa: -1 for none.
        mig_current, mig_pending: None where the product does not do MIG.
    """

    index: int
    model: Model
    product_name: str
    uuid: str
    minor: int
    bus: str
    numa: int
    memory_mib: int
    mig_current: bool | None
    mig_pending: bool | None
    events: bool
    ats: bool
    serial: str | None = None
    fabric: str | None = None
    clique: int = 0
    nvswitch_links: int = 0
    migs: tuple[NodeMig, ...] = ()

    @property
    def compute_capability(self) -> tuple[int, int]:
        """CUDA's, as (major, minor)."""
        return self.model.compute_capability

    @property
    def pci_address(self) -> str:
        """As sysfs spells it, `0000:10:00.0`."""
        return self.bus[-12:].lower()


@dataclass(frozen=True, slots=True)
class NodeDescription:
    """A whole `node.txt`.

    Attributes:
        cuda: as NVML counts, 12080 for 12.8.
        init_return: what nvmlInit returns, 0 for success.
        nvlinks: (a, b) with a < b -> how many links.
        topology: the levels that the file names, (a, b) with a < b.
    """

    driver: str
    cuda: int
    init_return: int
    gpus: tuple[NodeGpu, ...]
    nvlinks: Mapping[tuple[int, int], int] = field(default_factory=dict)
    topology: Mapping[tuple[int, int], str] = field(default_factory=dict)

    @property
    def migs(self) -> tuple[NodeMig, ...]:
        """All MIG devices, in order of GPU and slot."""
        return tuple(mig for gpu in self.gpus for mig in gpu.migs)

    def level(self, a: int, b: int) -> str:
        """The closest common PCIe level of two GPUs: what the file says, else by NUMA node."""
        if a == b:
            return "internal"
        by_numa = "node" if self.gpus[a].numa == self.gpus[b].numa else "system"
        return self.topology.get((min(a, b), max(a, b)), by_numa)


def _entries(kind: str) -> list[tuple[str | int, ...]]:
    lines = Path(__file__).with_name("models.def").read_text().splitlines()
    return [ast.literal_eval(line[len(kind) :]) for line in lines if line.startswith(f"{kind}(")]


def _model(*values: object) -> Model:
    key, name, brand, mib, major, minor, pci, nvlinks, version, ecc, rows, fabric, migs, slices = values
    return Model(  # the literals of models.def, in its order
        key=str(key),
        product_name=str(name),
        brand=_int(brand),
        memory_mib=_int(mib),
        compute_capability=(_int(major), _int(minor)),
        pci_device=_int(pci),
        nvlinks=_int(nvlinks),
        nvlink_version=_int(version),
        ecc=bool(ecc),
        row_remapping=bool(rows),
        fabric=bool(fabric),
        max_mig_devices=_int(migs),
        memory_slices=_int(slices),
    )


def _profile(model: object, index: object, profile_id: object, name: object, *numbers: object) -> Profile:
    return Profile(str(model), _int(index), _int(profile_id), str(name), *map(_int, numbers))


def _int(value: object) -> int:
    assert isinstance(value, int)
    return value


MODELS: Final[Mapping[str, Model]] = MappingProxyType(
    {model.key: model for model in (_model(*entry) for entry in _entries("MODEL"))}
)
PROFILES: Final[Mapping[tuple[str, int], Profile]] = MappingProxyType(
    {(profile.model, profile.index): profile for profile in (_profile(*entry) for entry in _entries("PROFILE"))}
)


def _gpu(index: int, options: Mapping[str, str], driver: str) -> NodeGpu:
    model = MODELS[options["model"]]
    name = model.product_name
    if int(driver.partition(".")[0]) < 470:  # the product names got their "NVIDIA " with branch 470
        name = name.removeprefix("NVIDIA ")
    mig = options.get("mig", "0" if model.max_mig_devices else "na")
    current, pending = (None, None) if mig == "na" else (mig[0] == "1", mig[-1] == "1")
    return NodeGpu(
        index=index,
        model=model,
        product_name=options.get("name", name),
        uuid=options["uuid"],
        minor=int(options.get("minor", index)),
        bus=options["bus"],
        numa=int(options.get("numa", "-1")),
        memory_mib=int(options.get("mem", model.memory_mib)),
        mig_current=current,
        mig_pending=pending,
        events=options.get("events") != "0",
        ats=options.get("ats") == "1",
        serial=options.get("serial"),
        fabric=options.get("fabric"),
        clique=int(options.get("clique", "0")),
    )


def _mig(options: Mapping[str, str], model: str) -> NodeMig:
    profile = PROFILES[model, int(options["giprofile"])]
    slices = _CI_SLICES[int(options["ciprofile"])]
    return NodeMig(
        gpu=int(options["gpu"]),
        slot=int(options["slot"]),
        gpu_instance_id=int(options["gi"]),
        compute_instance_id=int(options["ci"]),
        gi_profile=int(options["giprofile"]),
        ci_profile=int(options["ciprofile"]),
        start=int(options["start"]),
        size=int(options["size"]),
        uuid=options["uuid"],
        profile=profile.name if slices == profile.slices else f"{slices}c.{profile.name}",
        memory_mib=profile.memory_mib,
    )


def parse_node(text: str) -> NodeDescription:
    """Reads a node description.

    Raises:
        ValueError: a line is not understood; with its number and text.
    """
    driver, cuda, init_return = "570.133.20", 12080, 0
    gpus: list[NodeGpu] = []
    migs: list[NodeMig] = []
    nvlinks: dict[tuple[int, int], int] = {}
    switches: dict[int, int] = {}
    topology: dict[tuple[int, int], str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = shlex.split(line, comments=True)
        if not words:
            continue
        plain = [word for word in words[1:] if "=" not in word]
        options = dict(word.split("=", 1) for word in words[1:] if "=" in word)
        try:
            match words[0]:
                case "driver":
                    driver, cuda = plain[0], int(options.get("cuda", cuda))
                case "init":
                    init_return = int(options["return"])
                case "gpu":
                    if int(plain[0]) != len(gpus):
                        raise ValueError("GPUs are numbered from 0, in order")
                    gpus.append(_gpu(len(gpus), options, driver))
                case "mig":
                    migs.append(_mig(options, gpus[int(options["gpu"])].model.key))
                case "nvlink":
                    a, b = sorted(map(int, plain[:2]))
                    nvlinks[a, b] = nvlinks.get((a, b), 0) + int(plain[2])
                case "nvswitch":
                    switches[int(plain[0])] = int(plain[1])
                case "topo":
                    a, b = sorted(map(int, plain[:2]))
                    topology[a, b] = TOPOLOGY_LEVELS[TOPOLOGY_LEVELS.index(plain[2])]
                case other:
                    raise ValueError(f"not a directive: {other}")
        except (KeyError, IndexError, ValueError) as error:
            raise ValueError(f"node description, line {number}: {error!r} in {line!r}") from error
    return NodeDescription(
        driver=driver,
        cuda=cuda,
        init_return=init_return,
        gpus=tuple(_complete(gpu, migs, switches.get(gpu.index, 0)) for gpu in gpus),
        nvlinks=MappingProxyType(nvlinks),
        topology=MappingProxyType(topology),
    )


def _complete(gpu: NodeGpu, migs: list[NodeMig], nvswitch_links: int) -> NodeGpu:
    own = sorted((mig for mig in migs if mig.gpu == gpu.index), key=lambda mig: mig.slot)
    return replace(gpu, migs=tuple(own), nvswitch_links=nvswitch_links)
