"""Containers that podman and crun start by the CDI names of Allocate, with nothing else that knows of GPUs."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from deviceplugin.model.devicefiles import CONTROL
from deviceplugin.planning.cdi import HOOKS
from deviceplugin.simulator import Container, Pod, RunOptions
from tests.containers.host import Host
from tests.nvml_standin.sandbox import LIBRARY_DIRECTORY
from tests.serving.harness import DRIVERS, MIG_NODE, TWO_T4, Node, gpu_uuid
from tests.serving.test_cdi import FILE, names

pytestmark = pytest.mark.parametrize("driver", DRIVERS)

GPU = "nvidia.com/gpu"
LIBRARIES = f"/{LIBRARY_DIRECTORY}"
CUDA = f"{LIBRARIES}/libcuda.so.570.133.20"


@contextmanager
def running(
    driver: str,
    text: str,
    *resources: str,
    flags: str = "",
    more: str = "",
    strategy: str = "cdi-cri",
    ids: str = "uuid",
    sandbox: Mapping[str, Any] | None = None,
    hook: bool = True,
) -> Iterator[tuple[Node, Host]]:
    """A plugin at work on a host that has what its snapshot says."""
    sandbox = {"driver_root": True, **(sandbox or {})}
    with Node(text, "", driver=driver, sandbox=sandbox) as node:
        host = Host(node, text, sandbox, hook=hook)
        plugin = f"{{deviceListStrategy: {strategy}, deviceIDStrategy: {ids}, containerDriverRoot: {host.driver_root}}}"
        node.write_config(
            f"version: v1\nflags: {{{flags}nvidiaDriverRoot: {host.driver_root}, plugin: {plugin}}}\n{more}\n"
        )
        node.run(*resources)
        yield node, host


def given(node: Node, limits: Mapping[str, int]) -> RunOptions:
    """What the only container of a pod with these limits got."""
    pod = node.kubelet.admit(Pod("pod", containers=(Container("main", limits),)))
    (container,) = pod.containers.values()
    assert container.options is not None, pod.message
    return container.options


@pytest.mark.parametrize("strategy", ["cdi-cri", "cdi-annotations"])
def test_a_gpu_is_there_with_its_libraries_and_nothing_of_another_gpu(driver: str, strategy: str) -> None:
    with running(driver, TWO_T4, strategy=strategy) as (node, host):
        (name,) = names(given(node, {GPU: 1}))
        own = "nvidia0" if name.endswith(gpu_uuid(0)) else "nvidia1"
        inside = host.run([name], environ={"NVIDIA_VISIBLE_DEVICES": "all"})
        assert inside.devices == host.numbers([*CONTROL, own])
        assert inside.environ["NVIDIA_VISIBLE_DEVICES"] == "void", "whatever the image says"
        assert inside.environ["NVIDIA_CTK_LIBCUDA_DIR"] == LIBRARIES
        assert {"ro", "nosuid", "nodev"} <= inside.mounts[CUDA]
        assert "/usr/bin/nvidia-smi" in inside.mounts


def test_a_container_starts_again_by_its_old_name_when_the_plugin_has_stopped(driver: str) -> None:
    with running(driver, TWO_T4) as (node, host):
        given_names = names(given(node, {GPU: 2}))
        assert len(given_names) == 2
        assert node.stop() == 0
        assert host.run(given_names).devices == host.numbers([*CONTROL, "nvidia0", "nvidia1"])


@pytest.mark.parametrize("ids", ["uuid", "index"])
def test_a_mig_instance_comes_with_its_two_capabilities_and_no_others(driver: str, ids: str) -> None:
    resources = ["nvidia.com/mig-1g.5gb", "nvidia.com/mig-3g.20gb"]
    flags = "migStrategy: mixed, "
    with running(driver, MIG_NODE, *resources, flags=flags, ids=ids) as (node, host):
        parts = [host.run(names(given(node, {resource: 1}))).devices for resource in resources]
        for devices in parts:
            assert devices == host.numbers(devices)
            capabilities = {name for name in devices if name.startswith("nvidia-caps/")}
            assert len(capabilities) == 2
            assert devices.keys() == {*CONTROL, "nvidia1", *capabilities}
        assert parts[0].keys() & parts[1].keys() == {*CONTROL, "nvidia1"}


def test_extras_and_an_imex_channel_come_with_the_gpu(driver: str) -> None:
    extras = ["gdrdrv", "infiniband/rdma_cm", "infiniband/uverbs0", "nvidia-fs0", "nvidia-fs1"]
    flags = "gdrcopyEnabled: true, gdsEnabled: true, mofedEnabled: true, "
    sandbox = {"extra_dev": extras, "imex": [0]}
    with running(driver, TWO_T4, flags=flags, sandbox=sandbox, more="imex: {channelIDs: [0]}") as (node, host):
        given_names = names(given(node, {GPU: 2}))
        assert len(given_names) == 6
        inside = host.run(given_names)
        channel = "nvidia-caps-imex-channels/channel0"
        assert inside.devices == host.numbers([*CONTROL, "nvidia0", "nvidia1", *extras, channel])
        if driver == "nvml":  # node descriptions here name no such files
            assert {"/etc/cufile.json", "/run/udev"} <= inside.mounts.keys()
        assert (
            host.run([name for name in given_names if "/gpu=" not in name]).environ["NVIDIA_VISIBLE_DEVICES"] == "void"
        )


def test_hooks_run_in_order_and_do_their_work(driver: str) -> None:
    with running(driver, TWO_T4) as (node, host):
        links = (
            f"[ -f {LIBRARIES}/libcuda.so.1 ] && [ -f {LIBRARIES}/libcuda.so ] && [ -f {LIBRARIES}/libnvidia-ml.so.1 ]"
        )
        host.run(names(given(node, {GPU: 1})), links)
        calls = [json.loads(line) for line in host.hook_calls()]
        assert [words[1:3] for words, _ in calls] == [["hook", hook] for hook in HOOKS]
        assert all(environ["NVIDIA_CTK_DEBUG"] == "false" for _, environ in calls)


def test_a_hook_program_that_may_run_only_later_is_used_without_a_signal(driver: str) -> None:
    """Within health.pollInterval; the described driver sees what its file says instead."""
    with running(driver, TWO_T4, more="health: {pollInterval: 1s}", hook=False) as (node, host):
        given_names = names(given(node, {GPU: 1}))
        host.run(given_names)
        assert host.hook_calls() == []
        host.allow_hook()
        node.kubelet.wait_for(lambda: "hooks" in node.cdi_specs()[FILE]["containerEdits"], 15)
        host.run(given_names)
        assert len(host.hook_calls()) == len(HOOKS)


def test_without_a_hook_program_libraries_have_all_their_names(driver: str) -> None:
    with running(driver, TWO_T4, hook=False) as (node, host):
        script = "\n".join(
            f'[ "$(busybox cat {directory}/{name})" = "the driver\'s libcuda.so.570.133.20" ]'
            for directory in (LIBRARIES, "/usr/local/nvidia/lib64")
            for name in ("libcuda.so", "libcuda.so.1")
        )
        host.run(names(given(node, {GPU: 1})), script)
        assert host.hook_calls() == []
