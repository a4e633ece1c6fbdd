"""The list that ListAndWatch sends, made from an offer. Pure."""

from deviceplugin.model.offer import Offer
from deviceplugin.model.plan import Device, Health
from deviceplugin.stubs import deviceplugin_v1beta1_pb2 as pb


def device_list(offer: Offer, *, settling: bool) -> pb.ListAndWatchResponse:
    """The devices of `offer` as the kubelet takes them, in the offer's order.

    A device without a known NUMA node gets no topology at all: an empty one makes it vanish from PodResources (L19).

    Args:
        settling: the kubelet re-admits its pods now: devices that drain are listed Healthy, since it would fail pods
            with a finished init container otherwise (A29, design 8).
    """
    return pb.ListAndWatchResponse(devices=[_device(device, offer, settling) for device in offer.devices])


def _device(device: Device, offer: Offer, settling: bool) -> pb.Device:
    health = Health.HEALTHY if settling and device.id in offer.draining else device.health
    if device.numa_node is None:
        return pb.Device(ID=device.id, health=health.value)
    return pb.Device(
        ID=device.id, health=health.value, topology=pb.TopologyInfo(nodes=[pb.NUMANode(ID=device.numa_node)])
    )
