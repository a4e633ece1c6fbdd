"""From the recorded nodes' format (tests/golden/README.md) to node descriptions.

One text then drives both drivers: the stand-in library reads it as it is, the simulated driver its conversion, and
both must show the same snapshot.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import pynvml

from deviceplugin.config.document import Plain
from deviceplugin.driver.capabilities import usual_capabilities
from deviceplugin.driver.described_health import DescribedHealth
from deviceplugin.driver.description import NodeDescription, describe
from deviceplugin.driver.mig import LISTING_NEEDS_PERMISSION
from deviceplugin.model.devicefiles import files_of_all, imex_file
from deviceplugin.model.health import Check, Condition, DriverEvent, Xid
from deviceplugin.model.node import DriverFile, Failure, Gpu, Link, MigInstance, MigMode, PcieLevel, Snapshot
from tests.nvml_standin import NodeDescription as NodeText
from tests.nvml_standin import NodeGpu, parse_node
from tests.nvml_standin import sandbox as sandbox_files

NO_PERMISSION = pynvml.NVML_ERROR_NO_PERMISSION


def node_text_to_description(
    text: str, sandbox: Mapping[str, Any] | None = None, *, faults: Sequence[str] = ()
) -> dict[str, Plain]:
    """The node description of a recorded node.

    Args:
        text: of a `node.txt`.
        sandbox: `sandbox` of the case's cmd.json; what does not show in a snapshot is left aside.
        faults: fault lines of the stand-in (the top of core.c) that apply, later ones prevail; `inject_before`.

    Raises:
        ValueError: a fault that no description can express.
    """
    node = parse_node(text)
    sandbox = sandbox or {}
    no_numa, caps = bool(sandbox.get("no_numa_file")), sandbox.get("caps", True)
    told = _Faults(node)
    for fault in faults:
        told.add(fault)
    added = {*sandbox.get("extra_dev", ()), *(imex_file(channel) for channel in sandbox.get("imex", ()))}
    gpus = tuple(
        lost_gpu(gpu.index) if gpu.index in told.lost else _gpu(gpu, no_numa=no_numa, caps=caps) for gpu in node.gpus
    )
    if told.mig_hidden:
        gpus = tuple(_hide_mig(gpu) if gpu.mig_enabled else gpu for gpu in gpus)
    device_files = (files_of_all(gpus) | added) - set(sandbox.get("no_dev", ()))
    snapshot = Snapshot(
        driver_version=node.driver,
        cuda_version=f"{node.cuda // 1000}.{node.cuda % 1000 // 10}",
        gpus=gpus,
        links=tuple(_links(node, told.lost)),
        driver_files=tuple(_driver_files(node.driver)) if sandbox.get("driver_root") else (),
        cdi_hook=f"/usr/bin/{sandbox_files.HOOK_PROGRAM}" if sandbox.get("driver_root") else None,
        device_files=device_files,
        driver_root_device_files=device_files
        if sandbox.get("driver_root") and sandbox.get("driver_root_dev", True)
        else None,
    )
    init_code = told.init_code or node.init_return
    failure = _failure("nvmlInit", init_code) if init_code else None
    wait_failure = _failure("nvmlEventSetWait", told.wait_code) if told.wait_code else None
    checks = {uuid: check for uuid, check in told.checks.items() if uuid in {gpu.uuid for gpu in gpus}}
    # A GPU that is lost is not named by the description any more; nor is the event that comes for it.
    events = tuple(
        event if event.gpu_uuid in {gpu.uuid for gpu in gpus} else replace(event, gpu_uuid=None)
        for event in told.events
    )
    return describe(NodeDescription(snapshot, failure, DescribedHealth(checks, events, wait_failure)))


class _Faults:
    """What fault lines amount to."""

    def __init__(self, node: NodeText) -> None:
        self._uuid_of = {gpu.index: gpu.uuid for gpu in node.gpus}
        self.init_code = 0
        self.wait_code = 0
        self.mig_hidden = False
        self.lost: set[int] = set()
        self.events: list[DriverEvent] = []
        self.checks = {gpu.uuid: Check(gpu.uuid, events=False) for gpu in node.gpus if not gpu.events}

    def add(self, fault: str) -> None:
        """One more line."""
        match fault.split():
            case ["lost", index]:
                self.lost.add(int(index))
            case ["ok", index]:
                self.lost.discard(int(index))
            case ["init", code]:
                self.init_code = int(code)
            case ["fail", "nvmlDeviceGetMigDeviceHandleByIndex", code] if int(code) in (0, NO_PERMISSION):
                self.mig_hidden = int(code) == NO_PERMISSION
            case ["waiterr", code]:
                self.wait_code = int(code)
            case ["waitok"]:
                self.wait_code = 0
            case ["xid", index, number, *instance]:
                ids = dict(part.split("=") for part in instance)
                gi, ci = (int(ids[key]) if key in ids else None for key in ("gi", "ci"))
                self.events.append(DriverEvent(Xid(int(number)), self._uuid_of[int(index)], gi, ci))
            case ["ecc-double", index]:
                uuid = self._uuid_of[int(index)]
                count = self._check(uuid).uncorrectable_ecc or 0
                self.checks[uuid] = replace(self._check(uuid), uncorrectable_ecc=count + 1)
                self.events.append(DriverEvent(Condition.UNCORRECTABLE_ECC, uuid))
            case ["ecc-single", _]:
                pass  # a corrected error shows in no probe
            case ["remapped", index, pending, failed]:
                uuid = self._uuid_of[int(index)]
                check = self._check(uuid)
                self.checks[uuid] = replace(check, remapping_pending=pending == "1", remapping_failed=failed == "1")
            case ["retiring", index, pending]:
                uuid = self._uuid_of[int(index)]
                self.checks[uuid] = replace(self._check(uuid), retirement_pending=pending == "1")
            case _:
                raise ValueError(f"a node description cannot express the fault {fault!r}")

    def _check(self, uuid: str) -> Check:
        return self.checks.get(uuid, Check(uuid))


def lost_gpu(index: int) -> Gpu:
    """What is left of a GPU that was lost before the first look."""
    return Gpu(index, uuid=None, failure=_failure("nvmlDeviceGetHandleByIndex", pynvml.NVML_ERROR_GPU_IS_LOST))


def _hide_mig(gpu: Gpu) -> Gpu:
    failure = _failure("nvmlDeviceGetMigDeviceHandleByIndex", NO_PERMISSION)
    hidden = replace(failure, message=failure.message + LISTING_NEEDS_PERMISSION)
    return replace(gpu, mig_instances=(), mig_hidden=hidden)


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


def _driver_files(version: str) -> list[DriverFile]:
    """What the sandbox installs."""
    files = [DriverFile(f"/usr/bin/{name}") for name in sandbox_files.PROGRAMS]
    for name, links in sandbox_files.LIBRARY_LINKS.items():
        files.append(DriverFile(f"/{sandbox_files.LIBRARY_DIRECTORY}/{name}.so.{version}", links))
    return sorted(files, key=lambda file: file.path)


def _links(node: NodeText, lost: set[int]) -> list[Link]:
    links = []
    for a, b in combinations((gpu for gpu in node.gpus if gpu.index not in lost), 2):
        first, second = sorted((a, b), key=lambda gpu: gpu.uuid)
        nvlinks = node.nvlinks.get((a.index, b.index), 0)
        links.append(Link(first.uuid, second.uuid, nvlinks, PcieLevel(node.level(a.index, b.index))))
    return sorted(links, key=lambda link: (link.first, link.second))
