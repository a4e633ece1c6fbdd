"""What a GPU could be offered as: itself, or its MIG instances. The unit of every planning step before naming ends."""

from dataclasses import dataclass

from deviceplugin.model.node import Gpu, MigInstance
from deviceplugin.model.plan import LeftOut


@dataclass(frozen=True, slots=True)
class Candidate:
    """A GPU or MIG instance on its way into a resource.

    Attributes:
        instance: None for a whole GPU.
        name: the unshared resource that it belongs to, after patterns: what a sharing entry's `name` refers to.
        origin: the config key that gave the name; `default` without one.
    """

    gpu: Gpu
    instance: MigInstance | None
    name: str
    origin: str

    @property
    def uuid(self) -> str | None:
        """None for a whole GPU whose UUID the driver would not say."""
        return self.instance.uuid if self.instance else self.gpu.uuid

    @property
    def order(self) -> tuple[int, int]:
        """GPU index, then MIG slot: the order of devices everywhere."""
        return self.gpu.index, self.instance.slot if self.instance else -1

    @property
    def profile(self) -> str | None:
        """MIG profile; None for a whole GPU."""
        return self.instance.profile if self.instance else None

    def describe(self) -> str:
        """For messages: the GPU, or `MIG instance 0:1 (MIG-..., 1g.5gb)`."""
        return describe(self.gpu, self.instance)

    def left_out(self, reason: str) -> LeftOut:
        """The entry that says why no resource offers it."""
        return LeftOut(self.describe(), self.uuid, reason)


def describe(gpu: Gpu, instance: MigInstance | None) -> str:
    """A GPU or MIG instance for messages."""
    if instance is None:
        return gpu.describe()
    known = ", ".join(part for part in (instance.uuid, instance.profile) if part)
    return f"MIG instance {gpu.index}:{instance.slot} ({known})"
