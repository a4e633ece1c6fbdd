"""What each Xid means, by NVIDIA's documents, and what it does unless the config says otherwise.

Sources, named in the table:
    catalogue   NVIDIA, XID Errors, "XID Error Listing" and "Xid Catalog" (docs.nvidia.com/deploy/xid-errors)
    memory      NVIDIA, GPU Memory Error Management: error containment, row remapping (deploy/a100-gpu-mem-error-mgmt)
    plugin      NVIDIA's k8s-device-plugin v0.20.0 ignores it: 13, 31, 43, 45, 68 and 109 are the application's
"""

from dataclasses import dataclass

from deviceplugin.model.health import Response

IGNORE, WARN = Response.IGNORE, Response.WARN
RECOVER, RESET = Response.UNTIL_RECOVERED, Response.UNTIL_RESET

UNKNOWN = RECOVER
"""For an Xid that is not in the table. NVIDIA's plugin takes the GPU out too (golden plain-xid-999), but for good."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One Xid: its name, what it does by default, and the document that says so."""

    name: str
    response: Response
    source: str


TABLE: dict[int, Entry] = {
    13: Entry("graphics engine exception", IGNORE, "plugin"),
    31: Entry("GPU memory page fault", IGNORE, "plugin"),
    32: Entry("invalid or corrupted push buffer stream", RECOVER, "catalogue"),
    38: Entry("driver firmware error", RECOVER, "catalogue"),
    43: Entry("GPU stopped processing", IGNORE, "plugin"),
    44: Entry("graphics engine fault during context switch", RECOVER, "catalogue"),
    45: Entry("preemptive cleanup, due to previous errors", IGNORE, "plugin"),
    46: Entry("GPU stopped processing: timeout", RESET, "catalogue"),
    48: Entry("double-bit ECC error", RESET, "catalogue: reset, at once where rows were remapped (63, 64)"),
    54: Entry("auxiliary power is not connected", RESET, "catalogue"),
    56: Entry("display engine error", RECOVER, "catalogue"),
    57: Entry("error programming the video memory interface", RECOVER, "catalogue"),
    58: Entry("unstable video memory interface", RECOVER, "catalogue"),
    61: Entry("internal micro-controller breakpoint or warning", RESET, "catalogue"),
    62: Entry("internal micro-controller halt", RESET, "catalogue"),
    63: Entry("row remapping or page retirement recorded", RECOVER, "memory: the probe sees what awaits a reset"),
    64: Entry("row remapping or page retirement failed to be recorded", RESET, "memory"),
    65: Entry("video processor exception", RECOVER, "catalogue"),
    66: Entry("illegal access by driver", RECOVER, "catalogue"),
    68: Entry("video processor exception (NVDEC0)", IGNORE, "plugin"),
    69: Entry("graphics engine class error", RECOVER, "catalogue: restart the application"),
    74: Entry("NVLink error", RESET, "catalogue"),
    79: Entry("GPU has fallen off the bus", RESET, "catalogue"),
    92: Entry("high single-bit ECC error rate", WARN, "catalogue: informational, corrected errors"),
    93: Entry("non-fatal violation of provisioned InfoROM wear limit", WARN, "catalogue: informational"),
    94: Entry("contained memory error", RECOVER, "memory: restart the application; a reset can wait"),
    95: Entry("uncontained memory error", RESET, "memory: the GPU must be reset"),
    109: Entry("context switch timeout", IGNORE, "plugin"),
    110: Entry("security fault", RESET, "catalogue"),
    119: Entry("GSP RPC timeout", RESET, "catalogue"),
    120: Entry("GSP error", RESET, "catalogue"),
    121: Entry("C2C link error", WARN, "catalogue: informational, corrected"),
    136: Entry("link training failed", RESET, "catalogue"),
    137: Entry("NVLink privilege error", RECOVER, "catalogue"),
    140: Entry("unrecovered ECC error", RESET, "catalogue"),
    143: Entry("GPU initialisation failed", RESET, "catalogue"),
    144: Entry("NVLink SAW error", RESET, "catalogue"),
    145: Entry("NVLink RLW error", RESET, "catalogue"),
    146: Entry("NVLink TLW error", RESET, "catalogue"),
    147: Entry("NVLink TREX error", RESET, "catalogue"),
    148: Entry("NVLink NVLPW_CTRL error", RESET, "catalogue"),
    149: Entry("NVLink NETIR error", RESET, "catalogue"),
    150: Entry("NVLink MSE error", RESET, "catalogue"),
    154: Entry("GPU recovery action changed", WARN, "catalogue: names what another Xid made necessary"),
}


def name_of(number: int) -> str:
    """What NVIDIA calls an Xid, in words."""
    entry = TABLE.get(number)
    return entry.name if entry else "not in our table of Xids"
