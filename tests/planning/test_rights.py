"""What a config needs that the container has not: by GPU, for MIG, MPS and CDI."""

from dataclasses import replace

import pytest

from deviceplugin.config.model import Config, DeviceFilter, MigStrategy
from deviceplugin.model.node import Failure, Snapshot
from deviceplugin.model.plan import Mode
from deviceplugin.planning.build import build
from deviceplugin.planning.rights import Container, Lack, in_words, lacking
from tests.planning.nodes import A100, ON, config, entry, gpu, indices, node, plain, uuid

HIDDEN = Failure("nvmlDeviceGetMigDeviceHandleByIndex", "Insufficient Permissions; set privileges.mig", 4)
NO_LACK = Container()
NO_ROOT = Container(mps_root="no root: set mps.enabled")
NO_CDI = Container(cdi="no place: set cdi.enabled")


def mig_node() -> Snapshot:
    return node(gpu(0), *(replace(gpu(n, A100, mig=ON), mig_hidden=HIDDEN) for n in (1, 2)))


def lacks(snapshot: Snapshot, wanted: Config, container: Container) -> tuple[Lack, ...]:
    return lacking(snapshot, wanted, build(snapshot, wanted), container)


def needs(snapshot: Snapshot, wanted: Config, container: Container = NO_LACK) -> list[tuple[str, str]]:
    return [(one.value, one.need) for one in lacks(snapshot, wanted, container)]


@pytest.mark.parametrize("strategy", MigStrategy)
def test_mig_needs_to_be_listed_where_it_is_split(strategy: MigStrategy) -> None:
    expected = [] if strategy is MigStrategy.NONE else [("privileges.mig", uuid(1)), ("privileges.mig", uuid(2))]
    assert needs(mig_node(), config(strategy=strategy)) == expected


def test_a_gpu_that_is_not_managed_needs_nothing() -> None:
    some = config(strategy=MigStrategy.MIXED, devices=DeviceFilter(exclude=indices(1)))
    assert needs(mig_node(), some) == [("privileges.mig", uuid(2))]


def test_what_cannot_be_listed_is_left_out_with_the_reason_and_the_rest_is_planned() -> None:
    plan = build(mig_node(), config(strategy=MigStrategy.MIXED))
    assert [one.uuid for one in plan.left_out] == [uuid(1), uuid(2)]
    assert all("privileges.mig" in one.reason for one in plan.left_out)
    assert [unit.uuid for one in plan.resources for unit in one.units] == [uuid(0)]


def test_mps_needs_its_root_for_each_gpu() -> None:
    shared = config(entry(2, *indices(0, 2), mode=Mode.MPS))
    assert needs(plain(3), shared) == []
    assert needs(plain(3), shared, NO_ROOT) == [("mps.enabled", uuid(0)), ("mps.enabled", uuid(2))]
    assert needs(plain(3), config(entry(2)), NO_ROOT) == []


def test_cdi_needs_a_place_once() -> None:
    by_cdi = config()
    by_cdi = replace(by_cdi, flags=replace(by_cdi.flags, device_list_strategies=("cdi-cri", "envvar")))
    assert needs(plain(2), by_cdi, NO_CDI) == [("cdi.enabled", "")]
    assert needs(plain(2), by_cdi) == needs(plain(2), config(), NO_CDI) == []
    assert needs(Snapshot(), by_cdi, NO_CDI) == [], "a node without GPUs"


def test_each_reason_is_said_once_with_all_that_it_concerns() -> None:
    (line,) = in_words(lacks(plain(2), config(entry(2, mode=Mode.MPS)), NO_ROOT))
    assert line == "MPS on GPU 0 (nvidia.com/gpu), MPS on GPU 1 (nvidia.com/gpu): no root: set mps.enabled"
