"""What is remembered of a GPU that the driver no longer describes (reports H5; design 8, names don't flip)."""

from dataclasses import replace

from deviceplugin.config.model import MigStrategy
from deviceplugin.model.node import Failure, Gpu, MigMode
from deviceplugin.model.plan import Health
from deviceplugin.planning.build import build
from deviceplugin.planning.identity import all_failed, remember
from tests.planning.nodes import A100, LOST, OFF, T4, config, entry, gpu, hidden, node, plain, uuid


def test_a_first_snapshot_is_taken_as_it_is() -> None:
    snapshot = node(gpu(0), hidden(1))
    assert remember(None, snapshot) is snapshot


def test_a_lost_gpu_keeps_its_identity_and_its_resource() -> None:
    before = node(*(gpu(n, A100, "1g.5gb", "1g.5gb") for n in range(3)))
    after = remember(before, node(before.gpus[0], hidden(1), before.gpus[2]))
    assert after.gpus[1] == replace(before.gpus[1], failure=LOST)
    (resource,) = build(after, config(strategy=MigStrategy.MIXED)).resources
    assert [device.health for device in resource.devices].count(Health.UNHEALTHY) == 2
    assert len(resource.devices) == 6


def test_the_memory_outlives_several_snapshots_and_yields_to_the_driver() -> None:
    before = plain(2)
    lost = remember(before, node(before.gpus[0], hidden(1)))
    assert remember(lost, node(before.gpus[0], hidden(1))) == lost
    assert remember(lost, before) == before


def test_another_pci_address_is_another_gpu() -> None:
    stranger = replace(hidden(1), pci_address="0000:aa:00.0")
    assert remember(plain(2), node(gpu(0, T4), stranger)).gpus[1] == stranger


def test_a_gpu_that_shows_up_under_another_index_is_not_the_lost_one() -> None:
    before = plain(3)
    after = remember(before, node(hidden(0), replace(before.gpus[0], index=1), replace(before.gpus[2], index=2)))
    assert after.gpus[0].uuid is None


def test_an_unknown_index_stays_unknown() -> None:
    assert remember(plain(1), node(gpu(0, T4), hidden(1))).gpus[1] == hidden(1)


def test_a_gpu_with_a_uuid_gets_back_what_its_failure_hides() -> None:
    before = node(gpu(0, A100, "1g.5gb"))
    broken = Gpu(index=4, uuid=uuid(0), failure=LOST)
    (after,) = remember(before, node(broken)).gpus
    assert after == replace(before.gpus[0], index=4, failure=LOST)


def test_what_the_driver_states_wins() -> None:
    before = node(gpu(0, A100, "1g.5gb"))
    mig_off = Gpu(index=0, uuid=uuid(0), numa_node=1, mig_mode=OFF, failure=LOST)
    (after,) = remember(before, node(mig_off)).gpus
    assert (after.mig_mode, after.mig_instances, after.numa_node, after.minor) == (OFF, (), 1, 0)
    healthy = node(replace(gpu(0), minor=None, mig_mode=MigMode(current=True, pending=True)))
    assert remember(before, healthy) == healthy


def test_an_instance_that_fails_keeps_its_profile() -> None:
    before = node(gpu(0, A100, "1g.5gb", "1g.5gb"))
    (whole,) = before.gpus
    dim = replace(whole.mig_instances[1], profile=None, memory_mib=None, gpu_instance_id=None, failure=LOST)
    (after,) = remember(before, node(replace(whole, mig_instances=(whole.mig_instances[0], dim)))).gpus
    assert after.mig_instances[1] == replace(whole.mig_instances[1], failure=LOST)


def test_a_lost_gpu_that_never_did_mig_counts_as_one_without() -> None:
    before = node(gpu(0, T4), gpu(1, A100, "7g.40gb"))
    single = config(strategy=MigStrategy.SINGLE)
    after = remember(before, node(hidden(0), before.gpus[1]))
    assert (build(after, single).resources, build(before, single).resources) == ((), ())
    assert build(all_failed(before, "gone"), single).resources == ()


def test_a_driver_that_is_gone_fails_every_gpu_and_drops_none() -> None:
    snapshot = all_failed(plain(3), "nvmlInit_v2: Driver Not Loaded")
    (resource,) = build(snapshot, config(entry(2))).resources
    assert [device.health for device in resource.devices] == [Health.UNHEALTHY] * 6
    assert resource.devices[0].reason == "driver: nvmlInit_v2: Driver Not Loaded"
    assert snapshot.gpus[0].failure == Failure("driver", "nvmlInit_v2: Driver Not Loaded")
