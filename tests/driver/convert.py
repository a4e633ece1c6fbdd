"""From the recorded nodes' format (tests/golden/README.md) to node descriptions.

One text then drives both drivers: the stand-in library reads it as it is, the simulated driver its conversion, and
both must show the same snapshot.
"""

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import pynvml

from deviceplugin.config.document import Plain
from deviceplugin.driver.capabilities import usual_capabilities
from deviceplugin.driver.description import NodeDescription, describe
from deviceplugin.model.devicefiles import files_of_all, imex_file
from deviceplugin.model.node import Failure, Gpu, Link, MigInstance, MigMode, PcieLevel, Snapshot
from tests.nvml_standin import NodeDescription as NodeText
from tests.nvml_standin import NodeGpu, parse_node


def node_text_to_description(
    text: str, sandbox: Mapping[str, Any] | None = None, *, faults: Sequence[str] = ()
) -> dict[str, Plain]:
    """The node description of a recorded node.

    Args:
        text: of a `node.txt`.
        sandbox: `sandbox` of the case's cmd.json; what does not show in a snapshot is left aside.
        faults: fault lines present from the start (`inject_before`): `lost GPU` and `init CODE`.

    Raises:
        ValueError: a fault that no description can express.
    """
    node = parse_node(text)
    sandbox = sandbox or {}
    no_numa, caps = bool(sandbox.get("no_numa_file")), sandbox.get("caps", True)
    init_code = node.init_return
    lost = set()
    for fault in faults:
        match fault.split():
            case ["lost", index]:
                lost.add(int(index))
            case ["init", code]:
                init_code = int(code)
            case _:
                raise ValueError(f"a node description cannot express the fault {fault!r}")
    added = {*sandbox.get("extra_dev", ()), *(imex_file(channel) for channel in sandbox.get("imex", ()))}
    gpus = tuple(
        lost_gpu(gpu.index) if gpu.index in lost else _gpu(gpu, no_numa=no_numa, caps=caps) for gpu in node.gpus
    )
    snapshot = Snapshot(
        driver_version=node.driver,
        cuda_version=f"{node.cuda // 1000}.{node.cuda % 1000 // 10}",
        gpus=gpus,
        links=tuple(_links(node, lost)),
        device_files=(files_of_all(gpus) | added) - set(sandbox.get("no_dev", ())),
    )
    failure = _failure("nvmlInit", init_code) if init_code else None
    return describe(NodeDescription(snapshot, failure))


def lost_gpu(index: int) -> Gpu:
    """What is left of a GPU that was lost before the first look."""
    return Gpu(index, uuid=None, failure=_failure("nvmlDeviceGetHandleByIndex", pynvml.NVML_ERROR_GPU_IS_LOST))


def _failure(call: str, code: int) -> Failure:
    return Failure(call, str(pynvml.NVMLError(code)), code)


def _gpu(gpu: NodeGpu, *, no_numa: bool, caps: bool) -> Gpu:
    mode = None
    if gpu.mig_current is not None and gpu.mig_pending is not None:
        mode = MigMode(gpu.mig_current, gpu.mig_pending)
    return Gpu(
        index=gpu.index,
        uuid=gpu.uuid,
        minor=gpu.minor,
        pci_address=gpu.pci_address,
        product_name=gpu.product_name,
        memory_mib=gpu.memory_mib,
        compute_capability=gpu.compute_capability,
        numa_node=None if no_numa or gpu.numa < 0 else gpu.numa,
        mig_mode=mode,
        mig_instances=tuple(
            MigInstance(
                mig.uuid,
                mig.slot,
                mig.gpu_instance_id,
                mig.compute_instance_id,
                mig.profile,
                mig.memory_mib,
                usual_capabilities(gpu.minor, mig.gpu_instance_id, mig.compute_instance_id) if caps else None,
            )
            for mig in gpu.migs
        ),
        nvswitch_links=gpu.nvswitch_links,
    )


def _links(node: NodeText, lost: set[int]) -> list[Link]:
    links = []
    for a, b in combinations((gpu for gpu in node.gpus if gpu.index not in lost), 2):
        first, second = sorted((a, b), key=lambda gpu: gpu.uuid)
        nvlinks = node.nvlinks.get((a.index, b.index), 0)
        links.append(Link(first.uuid, second.uuid, nvlinks, PcieLevel(node.level(a.index, b.index))))
    return sorted(links, key=lambda link: (link.first, link.second))
