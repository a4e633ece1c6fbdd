"""The list, as a pure function of the offer."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from deviceplugin.kubelet.lists import device_list
from deviceplugin.model.offer import Offer
from deviceplugin.model.plan import Device, Health
from tests.allocation.offers import gpu, ids_of, offer


def test_a_device_without_numa_node_has_no_topology() -> None:
    """An empty TopologyInfo makes it vanish from PodResources (L19); node 0 is a node like any other."""
    none, zero = device_list(offer(replace(gpu(0)), replace(gpu(1), numa_node=0)), settling=False).devices
    assert not none.HasField("topology")
    assert [node.ID for node in zero.topology.nodes] == [0]


def test_draining_devices_are_healthy_while_the_kubelet_settles() -> None:
    shared = offer(gpu(0, 3))
    first, second, third = ids_of(shared)
    draining = replace(
        shared,
        devices=tuple(replace(d, health=Health.UNHEALTHY, reason="draining") for d in shared.devices),
        draining=frozenset({first, third}),
    )
    settling = {d.ID: d.health for d in device_list(draining, settling=True).devices}
    assert settling == {first: "Healthy", second: "Unhealthy", third: "Healthy"}
    assert {d.health for d in device_list(draining, settling=False).devices} == {"Unhealthy"}


@given(
    st.lists(
        st.builds(
            Device,
            st.text(max_size=20),
            st.just("GPU-0"),
            st.sampled_from(Health),
            st.just(""),
            st.none() | st.integers(0, 7),
        ),
        unique_by=lambda device: device.id,
    )
)
def test_every_device_is_listed_once_in_order_with_its_health(devices: list[Device]) -> None:
    listed = device_list(Offer(offer(gpu(0)).resource, tuple(devices)), settling=False).devices
    assert [(d.ID, d.health) for d in listed] == [(d.id, d.health.value) for d in devices]


def test_nothing_is_an_empty_list() -> None:
    """The way to say "none at present" (L5)."""
    assert device_list(replace(offer(gpu(0)), devices=()), settling=True).SerializeToString() == b""
