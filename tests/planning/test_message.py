"""The kubelet's message limit (contract R10), counted without making the message."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deviceplugin.errors import ConfigError
from deviceplugin.model.plan import Health, Unit
from deviceplugin.planning.build import build
from deviceplugin.planning.message import KUBELET_LIMIT_BYTES, LIST_LIMIT_BYTES, largest_replicas, list_bytes
from deviceplugin.stubs import deviceplugin_v1beta1_pb2 as pb
from tests.planning.nodes import config, entry, plain, uuid


def real_bytes(units: list[Unit]) -> int:
    """What protobuf makes of the list with every device Unhealthy."""
    devices = []
    for unit in units:
        numa = unit.numa_node
        topology = None if numa is None else pb.TopologyInfo(nodes=[pb.NUMANode(ID=numa)])
        devices += [pb.Device(ID=one, health=Health.UNHEALTHY, topology=topology) for one in unit.device_ids()]
    return len(pb.ListAndWatchResponse(devices=devices).SerializeToString())


units = st.builds(
    lambda name, replicas, numa: Unit(name, name, 0, name, replicas=replicas, numa_node=numa),
    st.text("GPUMIG-/0123456789abcdef", min_size=1, max_size=150),
    st.sampled_from([0, 1, 2, 9, 10, 11, 99, 100, 101, 250]),
    st.sampled_from([None, 0, 1, 127, 128, 20000]),
)


@given(st.lists(units, max_size=5))
def test_the_arithmetic_agrees_with_protobuf(some: list[Unit]) -> None:
    assert list_bytes(some) == real_bytes(some)


def test_the_largest_count_fits_and_one_more_does_not() -> None:
    def sized(replicas: int) -> list[Unit]:
        return [Unit(uuid(n), uuid(n), n, uuid(n), replicas=replicas, numa_node=n % 2) for n in range(8)]

    most = largest_replicas(sized(1))
    assert list_bytes(sized(most)) <= LIST_LIMIT_BYTES < list_bytes(sized(most + 1))
    assert real_bytes(sized(most)) < KUBELET_LIMIT_BYTES


def test_a_list_that_the_kubelet_would_not_receive_is_refused_with_what_fits() -> None:
    with pytest.raises(ConfigError) as caught:
        build(plain(8), config(entry(10**9)))
    (problem,) = caught.value.problems
    assert problem.startswith("config.yaml:10: sharing.timeSlicing.resources[0]: 1000000000 replicas: the list of")
    most = int(problem.rpartition(" ")[2])
    (resource,) = build(plain(8), config(entry(most))).resources
    assert len(resource.devices) == 8 * most
    with pytest.raises(ConfigError):
        build(plain(8), config(entry(most + 1)))
