"""Node descriptions: every snapshot written and read back, every mistake found with its place."""

import contextlib
import string
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deviceplugin.config.document import dump_document
from deviceplugin.driver import open_driver
from deviceplugin.driver.capture import description_text
from deviceplugin.driver.described_health import DescribedHealth
from deviceplugin.driver.description import NodeDescription, describe, parse_description
from deviceplugin.errors import ConfigError, DriverError, UsageError
from deviceplugin.model.health import Check, Condition, DriverEvent, Xid
from deviceplugin.model.node import Failure, Gpu, Link, MigInstance, MigMode, PcieLevel, Snapshot

NODES = sorted((Path(__file__).parents[2] / "config/nodes").glob("*.yaml"))

TEXT = st.text(st.characters(blacklist_categories=("Cs", "Cc")), min_size=1, max_size=20) | st.sampled_from(
    ["1:0", "no", "0x10", "1e3", "~", "12.8", "true", "- a", "a: b", "#"]
)
SMALL = st.integers(0, 2**40)
FAILURES = st.builds(Failure, TEXT, TEXT, st.none() | SMALL)


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    count = draw(st.integers(0, 4))
    uuids = draw(st.lists(TEXT, min_size=count * 3, max_size=count * 3, unique=True))
    gpus = tuple(_draw_gpu(draw, index, uuids[3 * index : 3 * index + 3]) for index in range(count))
    named = sorted(gpu.uuid for gpu in gpus if gpu.uuid is not None)
    links = [
        Link(first, second, draw(st.integers(0, 18)), draw(st.none() | st.sampled_from(PcieLevel)))
        for first, second in combinations(named, 2)
    ]
    known = tuple(link for link in links if link.nvlinks or link.pcie)
    return Snapshot(draw(st.none() | TEXT), draw(st.none() | TEXT), gpus, known, draw(st.frozensets(TEXT)))


def _draw_gpu(draw: st.DrawFn, index: int, uuids: list[str]) -> Gpu:
    failure = draw(st.none() | FAILURES)
    instances = tuple(
        MigInstance(
            uuid,
            slot,
            draw(st.none() | SMALL),
            draw(st.none() | SMALL),
            draw(st.none() | TEXT),
            draw(st.none() | SMALL),
            draw(st.none() | st.tuples(SMALL, SMALL)),
            draw(st.none() | FAILURES),
        )
        for slot, uuid in enumerate(uuids[1:])
    )
    return Gpu(
        index=index,
        uuid=None if failure and draw(st.booleans()) else uuids[0],
        minor=draw(st.sampled_from([None, index])),
        pci_address=draw(st.none() | st.from_regex(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.0", fullmatch=True)),
        product_name=draw(st.none() | TEXT),
        memory_mib=draw(st.none() | SMALL),
        compute_capability=draw(st.none() | st.tuples(SMALL, SMALL)),
        numa_node=draw(st.none() | SMALL),
        mig_mode=draw(st.none() | st.builds(MigMode, st.booleans(), st.booleans())),
        mig_instances=instances[: draw(st.integers(0, 2))],
        nvswitch_links=draw(st.integers(0, 18)),
        failure=failure,
    )


@st.composite
def descriptions(draw: st.DrawFn) -> NodeDescription:
    snapshot = draw(snapshots())
    named = [gpu.uuid for gpu in snapshot.gpus if gpu.uuid is not None]
    of_some = st.sampled_from(named) if named else st.nothing()
    checks = [
        Check(
            uuid,
            failure=draw(st.none() | FAILURES),
            uncorrectable_ecc=draw(st.none() | SMALL),
            remapping_pending=draw(st.booleans()),
            remapping_failed=draw(st.booleans()),
            retirement_pending=draw(st.booleans()),
            events=draw(st.booleans()),
        )
        for uuid in draw(st.lists(of_some, unique=True))
    ]
    signals = st.builds(Xid, SMALL) | st.just(Condition.UNCORRECTABLE_ECC)
    events = st.builds(DriverEvent, signals, st.none() | of_some, st.none() | SMALL, st.none() | SMALL)
    health = DescribedHealth(
        checks={check.uuid: check for check in checks},
        events=tuple(draw(st.lists(events, max_size=4))),
        wait_failure=draw(st.none() | FAILURES),
        driver_load=draw(st.none() | SMALL),
    )
    return NodeDescription(snapshot, draw(st.none() | FAILURES), health)


@given(descriptions())
@settings(max_examples=150, deadline=None)
def test_writing_and_reading_is_the_identity(description: NodeDescription) -> None:
    text = dump_document(describe(description))
    assert parse_description(text.encode(), "node.yaml") == description


@pytest.mark.parametrize("path", NODES, ids=lambda path: path.stem)
def test_shipped_nodes_load_and_are_complete(path: Path) -> None:
    description = parse_description(path.read_bytes(), str(path))
    gpus = description.snapshot.gpus
    assert path.read_text().startswith("# ")
    assert [gpu.index for gpu in gpus] == list(range(len(gpus)))
    for gpu in gpus:
        facts = (gpu.uuid, gpu.minor, gpu.pci_address, gpu.product_name, gpu.memory_mib, gpu.compute_capability)
        assert None not in facts or gpu.failure is not None
        assert gpu.mig_enabled == bool(gpu.mig_instances)
    assert len(description.snapshot.links) == len(list(combinations([gpu for gpu in gpus if gpu.uuid], 2)))
    captured = description_text(description.snapshot)
    assert parse_description(captured.encode(), "captured").snapshot == description.snapshot


def test_the_shipped_nodes_are_those_of_the_readme() -> None:
    assert {path.stem for path in NODES} == {
        "a100-mig",
        "a100-nvlink",
        "dgx-station",
        "h100-nvswitch",
        "lost-gpu",
        "mixed-sample",
        "no-driver",
        "no-gpu",
        "t4",
        "v100-t4",
    }


HEAD = "kind: NodeDescription\nversion: v1\n"

MISTAKES = {
    "a config file": ("version: v1\nsharing: {}\n", ["n:1: kind: found nothing", "n:2: sharing: found an unknown key"]),
    "another version": (
        "kind: NodeDescription\nversion: v9\n",
        ["found NodeDescription v9, expected NodeDescription v1"],
    ),
    "an unknown key": (
        HEAD + "gpus:\n- {index: 0, uuid: a, model: T4}\n",
        ["n:4: gpus[0].model: found an unknown key"],
    ),
    "no index": (HEAD + "gpus:\n- uuid: a\n", ["n:4: gpus[0].index: found nothing"]),
    "no uuid": (HEAD + "gpus:\n- index: 0\n", ["gpus[0].uuid: found none, expected a UUID, or the failure"]),
    "text for a number": (
        HEAD + 'gpus:\n- {index: 0, uuid: a, minor: "0"}\n',
        ["gpus[0].minor: found '0', expected a whole"],
    ),
    "a number for text": (
        HEAD + "driver: {version: 570, cudaVersion: 12.8}\n",
        ["driver.version: found 570", "cudaVersion: found 12.8, expected text, in quotes"],
    ),
    "a negative number": (
        HEAD + "gpus:\n- {index: 0, uuid: a, numaNode: -1}\n",
        ["gpus[0].numaNode: found -1, expected a whole number from 0"],
    ),
    "an NVML address": (
        HEAD + 'gpus:\n- {index: 0, uuid: a, pciAddress: "00000000:3B:00.0"}\n',
        ["expected text like 0000:3b:00.0"],
    ),
    "a wrong capability": (
        HEAD + "gpus:\n- {index: 0, uuid: a, computeCapability: [8]}\n",
        ["expected [major, minor]"],
    ),
    "yes": (
        HEAD + "gpus:\n- {index: 0, uuid: a, migMode: {current: yes, pending: true}}\n",
        ["migMode.current: found yes, expected true or false"],
    ),
    "half a mode": (
        HEAD + "gpus:\n- {index: 0, uuid: a, migMode: {current: true}}\n",
        ["migMode.pending: found nothing"],
    ),
    "gpus as a mapping": (HEAD + "gpus: {index: 0}\n", ["n:3: gpus: found a mapping, expected a list"]),
    "a gpu as text": (HEAD + "gpus: [T4]\n", ["n:3: gpus[0]: found T4, expected a mapping"]),
    "a list at the top": ("- a\n", ["n:1: the file: found a list, expected a mapping"]),
    "an empty file": ("", ["n:1: the file: found nothing, expected a mapping"]),
    "an index twice": (
        HEAD + "gpus:\n- {index: 0, uuid: a}\n- {index: 0, uuid: b}\n",
        ["found index 0 more than once"],
    ),
    "a uuid twice": (HEAD + "gpus:\n- {index: 0, uuid: a}\n- {index: 1, uuid: a}\n", ["found uuid a more than once"]),
    "a slot twice": (
        HEAD + "gpus:\n- {index: 0, uuid: a, migInstances: [{slot: 1, uuid: b}, {slot: 1, uuid: c}]}\n",
        ["found migInstances[].slot of GPU 0 1 more than once"],
    ),
    "a link to nowhere": (
        HEAD + "gpus:\n- {index: 0, uuid: a}\nlinks:\n- {gpus: [0, 7]}\n",
        ["n:6: links[0].gpus: found [0, 7]"],
    ),
    "a link to itself": (
        HEAD + "gpus:\n- {index: 0, uuid: a}\nlinks:\n- {gpus: [0, 0]}\n",
        ["links[0].gpus: found [0, 0]"],
    ),
    "an unknown level": (
        HEAD + "gpus:\n- {index: 0, uuid: a}\n- {index: 1, uuid: b}\nlinks:\n- {gpus: [0, 1], pcie: PIX}\n",
        ["links[0].pcie: found PIX, expected one of internal, single, multiple, hostbridge, node, system"],
    ),
    "a key twice": (
        HEAD + "gpus:\n- index: 0\n  uuid: a\n  uuid: b\n",
        ["n:6: gpus[0].uuid: found the key a second time"],
    ),
    "an event of nothing": (HEAD + "events: [{gpu: 0}]\n", ["events[0].xid: found neither or both", "events[0].gpu"]),
    "two signals in one event": (HEAD + "events: [{xid: 79, uncorrectableEcc: true}]\n", ["found neither or both"]),
    "too many events": (HEAD + "events: [{xid: 79, times: 9999999}]\n", ["times: found 9999999, expected at most"]),
    "not YAML": (HEAD + "gpus: [\n", ["found text that is not YAML"]),
    "files around the driver": (
        HEAD
        + """\
deviceFiles: [nvidia0, 7]
driverFiles:
- {path: usr/bin/nvidia-smi}
- {links: x}
cdiHook: nvidia-ctk
gpus:
- {index: 0, uuid: GPU-0, migInstances: [{slot: 0, uuid: MIG-0, capabilities: [12]}]}
""",
        [
            "deviceFiles: found a list, expected names of files below /dev, a list of texts",
            "driverFiles[0].path: found usr/bin/nvidia-smi, expected text like /usr/bin/nvidia-smi",
            "driverFiles[1].path: found nothing",
            "driverFiles[1].links: found x, expected names, a list of texts",
            "cdiHook: found nvidia-ctk, expected text like /usr/bin/nvidia-cdi-hook",
            "gpus[0].migInstances[0].capabilities: found [12], expected two whole numbers, or [] for none",
        ],
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_every_mistake_is_found_with_its_place(mistake: str) -> None:
    text, expected = MISTAKES[mistake]
    with pytest.raises(ConfigError) as raised:
        parse_description(text.encode(), "n")
    for words in expected:
        assert any(words in problem for problem in raised.value.problems), raised.value.problems


@given(st.binary(max_size=200) | st.text(string.printable, max_size=200).map(lambda text: (HEAD + text).encode()))
@settings(max_examples=200, deadline=None)
def test_any_bytes_are_a_node_or_a_list_of_problems(data: bytes) -> None:
    with contextlib.suppress(ConfigError):
        parse_description(data, "node.yaml")


def test_later_links_add_to_earlier_ones() -> None:
    text = HEAD + (
        "gpus:\n- {index: 0, uuid: a}\n- {index: 1, uuid: b}\n- {index: 2, uuid: c}\n"
        "links:\n- {gpus: [0, 1, 2], pcie: system}\n- {gpus: [1, 0], nvlinks: 4}\n- {gpus: [1, 2], pcie: node}\n"
    )
    assert parse_description(text.encode(), "n").snapshot.links == (
        Link("a", "b", 4, PcieLevel.ACROSS_CPUS),
        Link("a", "c", 0, PcieLevel.ACROSS_CPUS),
        Link("b", "c", 0, PcieLevel.SAME_CPU),
    )


def test_an_edit_is_a_change_of_inventory(tmp_path: Path) -> None:
    path = tmp_path / "node.yaml"
    driver = open_driver(f"simulated:{path}", container_driver_root="")
    with pytest.raises(DriverError, match=r"node\.yaml cannot be read"):
        driver.snapshot()
    assert driver.nvidia_device_present()
    path.write_text(HEAD + "gpus: []\n")
    assert driver.snapshot().gpus == ()
    assert not driver.nvidia_device_present()
    path.write_text(HEAD + "gpus: [{index: 0, uuid: a}]\n")
    assert [gpu.uuid for gpu in driver.snapshot().gpus] == ["a"]
    path.write_text("gpus: [")
    with pytest.raises(DriverError, match=r"node\.yaml:\d: "):
        driver.snapshot()
    driver.close()


def test_a_described_driver_that_fails(tmp_path: Path) -> None:
    path = tmp_path / "node.yaml"
    failure = "{call: nvmlInit, message: Driver Not Loaded, code: 9}"
    path.write_text(HEAD + f"driver: {{failure: {failure}}}\ngpus: [{{index: 0, uuid: a}}]\n")
    driver = open_driver(f"simulated:{path}", container_driver_root="")
    with pytest.raises(DriverError, match="install or load the driver") as raised:
        driver.snapshot()
    assert raised.value.code == 9
    assert driver.nvidia_device_present()


@pytest.mark.parametrize("spec", ["", "nvml:", "simulated", "simulated:", "cuda", "NVML"])
def test_a_driver_that_is_none(spec: str) -> None:
    with pytest.raises(UsageError, match="expected nvml, or simulated:FILE"):
        open_driver(spec, container_driver_root="")
