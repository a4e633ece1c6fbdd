"""How a container learns which devices it got, and gets them: the same for every device of a resource."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Delivery:
    """The list strategies and extras of a config on a node; several strategies add up (drop-in.md 3).

    Files are named below /dev, as in Unit.

    Attributes:
        envvar: NVIDIA_VISIBLE_DEVICES names the devices.
        volume_mounts: mounts name them.
        cdi_annotation_prefix: an annotation under it names them for CDI; None: none does.
        cdi_field: the response's own field names them for CDI.
        device_root: directory on the host below which device files lie that Allocate passes on; None: it passes none.
        common_files: device files that come with every GPU, as far as the node has them.
        imex_channels: asked for and there.
        extras: of `gdrcopy`, `gds` and `mofed` those asked for.
        cdi_extras: of these the ones whose device files the node has, so that their CDI names resolve.
    """

    envvar: bool = True
    volume_mounts: bool = False
    cdi_annotation_prefix: str | None = None
    cdi_field: bool = False
    device_root: str | None = None
    common_files: tuple[str, ...] = ()
    imex_channels: tuple[int, ...] = ()
    extras: tuple[str, ...] = ()
    cdi_extras: tuple[str, ...] = ()

    @property
    def cdi(self) -> bool:
        """Whether containers are told CDI names in any way."""
        return self.cdi_field or self.cdi_annotation_prefix is not None


ENVVAR_ONLY: Final = Delivery()
