"""A plan that outlives the fit of its config: what it offers stays, in the health of now."""

from dataclasses import replace

import pytest

from deviceplugin.config.model import Config, SelectIndex
from deviceplugin.errors import ConfigError
from deviceplugin.model.node import Snapshot
from deviceplugin.model.plan import Health, Plan
from deviceplugin.planning.build import build
from deviceplugin.planning.carry_on import GONE, NOT_PLANNED, carry_on
from tests.planning.nodes import LOST, config, entry, gpu, hidden, node, plain, uuid

# Fits a node of one GPU; with a second one it would be whole under the same name.
ONE_SHARED = config(entry(2, SelectIndex(0), rename="nvidia.com/gpu"))


def carried(snapshot: Snapshot, settings: Config = ONE_SHARED) -> Plan:
    """The plan of a node of one GPU on a node that the config does not fit."""
    with pytest.raises(ConfigError):
        build(snapshot, settings)
    return carry_on(build(plain(1), settings), snapshot, settings)


def test_what_is_offered_stays_and_what_is_new_is_left_out_with_the_reason() -> None:
    after = carried(plain(2))
    assert after.resources == build(plain(1), ONE_SHARED).resources
    assert [(one.uuid, one.reason) for one in after.left_out] == [(uuid(1), NOT_PLANNED)]


def test_carrying_on_again_changes_nothing() -> None:
    """Also not for a GPU without a UUID, which nothing but its index tells from another."""
    once = carried(node(gpu(0, "Tesla T4"), gpu(1, "Tesla T4"), hidden(2)))
    assert [one.what for one in once.left_out] == [f"GPU 1 ({uuid(1)}, Tesla T4)", "GPU 2"]
    assert carry_on(once, node(gpu(0, "Tesla T4"), gpu(1, "Tesla T4"), hidden(2)), ONE_SHARED) == once


def test_a_gpu_that_fails_is_unhealthy_with_the_reason_and_comes_back() -> None:
    lost = node(replace(gpu(0, "Tesla T4"), failure=LOST), gpu(1, "Tesla T4"))
    (resource,) = carried(lost).resources
    assert {(one.health, one.reason) for one in resource.devices} == {(Health.UNHEALTHY, str(LOST))}
    again = carry_on(carried(lost), plain(2), ONE_SHARED)
    assert again.resources == build(plain(1), ONE_SHARED).resources


def test_a_gpu_that_has_gone_is_unhealthy() -> None:
    others = node(*(replace(gpu(index, "Tesla T4"), uuid=f"GPU-other-{index}") for index in (0, 1)))
    (resource,) = carried(others).resources
    assert {(one.unit_uuid, one.health, one.reason) for one in resource.devices} == {(uuid(0), Health.UNHEALTHY, GONE)}


def test_containers_get_what_the_driver_says_now() -> None:
    """After a reload of the driver a GPU can have another index and minor number: never another tenant's file."""
    moved = node(replace(gpu(0, "Tesla T4"), uuid=uuid(1)), replace(gpu(1, "Tesla T4"), uuid=uuid(0), minor=7))
    (resource,) = carried(moved).resources
    (unit,) = resource.units
    assert (unit.uuid, unit.gpu_index) == (uuid(0), 1)
    assert unit.device_files == ("nvidia7",)
