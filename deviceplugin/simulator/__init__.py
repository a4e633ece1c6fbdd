"""A kubelet stand-in that keeps the contract (docs/kubelet-contract.md); the demo and the tests run on it.

Real gRPC over real unix sockets in a real directory tree. Numbers such as R6 or A20 in this package cite the contract.
Not modelled: the plugin-watcher path (W1 to W10), S8 and S9, order-sensitive status comparison (H7), DRA (H9), hint
generation itself (a pod brings its hint along), v1alpha1 PodResources and its CPU, memory and DRA fields, the fsync of
the checkpoint. A pod is bound directly; `Kubelet.fits` says what the scheduler would have done.

    clock = Clock(scale=10)
    with Kubelet(device_plugins_dir=root / "device-plugins", root_dir=root, clock=clock) as kubelet:
        kubelet.start()
        ...                                     # start a plugin on root / "device-plugins"
        kubelet.wait_for(lambda: kubelet.resources["nvidia.com/gpu"].lists)
        pod = kubelet.admit(Pod("p", containers=(Container("c", {"nvidia.com/gpu": 1}),)))
        assert pod.phase == "Running", pod.message
"""

from deviceplugin.simulator.clock import Clock
from deviceplugin.simulator.devicemanager import LocalResource
from deviceplugin.simulator.history import ResourceHistory, Resources
from deviceplugin.simulator.journal import (
    Fault,
    HeldDeviceDropped,
    KubeletPanic,
    KubeletStopped,
    ListRecord,
    PodEvent,
    RegistrationRecord,
    RpcRecord,
    SimulatorError,
    StatusSnapshot,
)
from deviceplugin.simulator.kubelet import Kubelet
from deviceplugin.simulator.pods import (
    AdmittedPod,
    Container,
    ContainerView,
    DeviceNode,
    MountSpec,
    Pod,
    RunOptions,
)
from deviceplugin.simulator.process import Parts

__all__ = [
    "AdmittedPod",
    "Clock",
    "Container",
    "ContainerView",
    "DeviceNode",
    "Fault",
    "HeldDeviceDropped",
    "Kubelet",
    "KubeletPanic",
    "KubeletStopped",
    "ListRecord",
    "LocalResource",
    "MountSpec",
    "Parts",
    "Pod",
    "PodEvent",
    "RegistrationRecord",
    "ResourceHistory",
    "Resources",
    "RpcRecord",
    "RunOptions",
    "SimulatorError",
    "StatusSnapshot",
]
