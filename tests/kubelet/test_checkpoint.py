"""The kubelet's checkpoint: read as it is written, and garbage told apart from nothing."""

import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deviceplugin.errors import KubeletError
from deviceplugin.kubelet.checkpoint import MAX_BYTES, Checkpoint, read_checkpoint
from deviceplugin.kubelet.held_sources import HeldSources
from deviceplugin.kubelet.paths import KubeletPaths
from deviceplugin.model.held import Held
from tests.allocation.offers import gpu, offer
from tests.kubelet.node import GPU, Node, pod, runs


def test_what_pods_hold_and_what_was_registered(node: Node) -> None:
    node.registered(offer(gpu(0, 4)), offer(gpu(1), name="nvidia.com/whole"))
    held = runs(node.kubelet.admit(pod(count=2)))
    paths = KubeletPaths(node.directory / "kubelet.sock", node.root)
    checkpoint = read_checkpoint(paths.checkpoint)
    assert checkpoint is not None
    assert checkpoint.held == Held({GPU: held})
    assert checkpoint.registered == Held(
        {GPU: frozenset(offer(gpu(0, 4)).device_by_id), "nvidia.com/whole": frozenset({gpu(1).uuid})}
    )


def test_an_id_on_two_numa_nodes_counts_once(root: Path) -> None:
    entry = {"PodUID": "u", "ContainerName": "c", "ResourceName": GPU, "DeviceIDs": {"0": ["a"], "1": ["a", "b"]}}
    text = {"Data": {"PodDeviceEntries": [entry], "RegisteredDevices": {GPU: ["a"]}}, "Checksum": 1}
    (root / "file").write_text(json.dumps(text))
    checkpoint = read_checkpoint(root / "file")
    assert checkpoint is not None
    assert checkpoint.held.of(GPU) == {"a", "b"}


def test_no_file_is_none_and_no_entries_are_nothing(root: Path) -> None:
    assert read_checkpoint(root / "file") is None
    (root / "file").write_text('{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{}},"Checksum":0}')
    assert read_checkpoint(root / "file") == Checkpoint(Held(), Held())


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b"{}",
        b'{"Data":[]}',
        b'{"Data":{"PodDeviceEntries":{}}}',
        b'{"Data":{"PodDeviceEntries":["x"]}}',
        b'{"Data":{"PodDeviceEntries":[{"ResourceName":1,"DeviceIDs":{}}]}}',
        b'{"Data":{"PodDeviceEntries":[{"ResourceName":"r","DeviceIDs":["a"]}]}}',  # the layout before NUMA (C4)
        b'{"Data":{"PodDeviceEntries":[{"ResourceName":"r","DeviceIDs":{"-1":[1]}}]}}',
        b'{"Data":{"RegisteredDevices":{"r":"a"}}}',
        b'{"Data":{"PodDeviceEntries":[{"ResourceName":"r","DeviceIDs":{"-1":["\\ud800"]}}]}}',
        b'{"Data":{"PodDeviceEntries":[{"ResourceName":"\\ud800","DeviceIDs":{"-1":["a"]}}]}}',
        b"[" * 100_000,
    ],
)
def test_garbage_is_an_error_that_names_the_file(root: Path, text: bytes) -> None:
    (root / "file").write_bytes(text)
    with pytest.raises(KubeletError, match=rf"{root}/file: not a kubelet checkpoint"):
        read_checkpoint(root / "file")


def test_a_place_that_cannot_be_looked_at_is_an_error(root: Path) -> None:
    """As a directory that this process may not search; the name here is longer than any may be."""
    with pytest.raises(KubeletError, match="File name too long"):
        HeldSources(KubeletPaths(root / ("x" * 300) / "kubelet.sock", root)).checkpoint()


def test_no_checkpoint_proves_nothing(root: Path) -> None:
    with pytest.raises(KubeletError, match="has written no checkpoint"):
        HeldSources(KubeletPaths(root / "kubelet.sock", root)).checkpoint()


def test_a_huge_file_and_a_directory_are_errors(root: Path) -> None:
    with (root / "huge").open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    with pytest.raises(KubeletError, match="larger than 64 MiB"):
        read_checkpoint(root / "huge")
    with pytest.raises(KubeletError, match="Is a directory"):
        read_checkpoint(root)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["Data", "PodDeviceEntries", "RegisteredDevices", "ResourceName", "DeviceIDs", "-1", "nvidia.com/gpu"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(JSON)
def test_any_json_is_a_checkpoint_or_an_error(root: Path, document: object) -> None:
    (root / "file").write_text(json.dumps({"Data": document}))
    with contextlib.suppress(KubeletError):
        assert isinstance(read_checkpoint(root / "file"), Checkpoint)
