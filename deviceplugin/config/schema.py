"""What the config file may say. With config.options the one set of definitions.

The loader's checks and suggestions, the flags and variables with their help, and `config/schema.json` are all made from
them. A superset of NVIDIA's file (drop-in.md section 4): every key and value that theirs understands.
"""

from deviceplugin.config.model import HeldPolicy
from deviceplugin.config.options import PATH, PLUGIN_SETTINGS
from deviceplugin.config.types import (
    Boolean,
    Choice,
    Duration,
    GpuList,
    Key,
    ListOf,
    MemoryLimit,
    Period,
    ResourceName,
    Section,
    SharedDevices,
    Text,
    Whole,
)
from deviceplugin.model.health import Condition, Response
from deviceplugin.model.mps import MPS_CLIENTS
from deviceplugin.model.plan import AllocationPolicy

VERSION = "v1"

# The kubelet takes lists of at most 4 MiB (contract R10). A device `UUID::n` costs 60 bytes of it when n has five
# digits: 2 for the entry, 2 + 47 for the id, 2 + 7 for `Healthy`. More replicas can't fit for even one device; what
# fits on a node with several is for planning to say.
KUBELET_MESSAGE_BYTES = 4 * 1024 * 1024
MAX_REPLICAS = KUBELET_MESSAGE_BYTES // 60


def _keys_of(section: str) -> tuple[Key, ...]:
    """The settings that the file holds directly below `section`."""
    return tuple(setting.key for setting in PLUGIN_SETTINGS if setting.path.rpartition(".")[0] == section)


_NOT_OURS = "Read by NVIDIA's GPU feature discovery from the same file; no effect here."

_FLAGS = Section(
    (
        *_keys_of("flags"),
        Key("useNodeFeatureAPI", Boolean(), _NOT_OURS),
        Key("plugin", Section(_keys_of("flags.plugin")), "Settings of the device plugin alone."),
        Key(
            "gfd",
            Section(
                (
                    Key("oneshot", Boolean(), _NOT_OURS),
                    Key("noTimestamp", Boolean(), _NOT_OURS),
                    Key("sleepInterval", Duration(words=("infinite",)), _NOT_OURS),
                    Key("outputFile", PATH, _NOT_OURS),
                    Key("machineTypeFile", PATH, _NOT_OURS),
                )
            ),
            _NOT_OURS,
        ),
    )
)

_ENTRY_START = (
    Key(
        "name", ResourceName(), "The resource whose devices are shared: nvidia.com/gpu or a MIG profile's.", None, True
    ),
    Key(
        "rename",
        ResourceName(),
        "The name that the shares get. Unset: <name>.shared with renameByDefault; else the plain name if the entry "
        "takes every device of the resource; else <name>.shared for time-slicing and <name>.mps for MPS.",
    ),
    Key(
        "devices",
        SharedDevices(),
        "Which devices of the resource this entry shares. A count: so many, the first that no other entry names. rest: "
        "all that no other entry names.",
        "all",
    ),
)
_ABOVE = (
    "one list to the kubelet has at most 4 MiB, which more replicas of even one device exceed (kubelet contract R10)"
)
_POLICY = Key(
    "allocationPolicy",
    Choice(tuple(AllocationPolicy)),
    "Which free shares are preferred. distributed: evenly over GPUs. packed: on few GPUs. spread: no two on one GPU; "
    "a container with two is refused. Unset: flags.plugin.sharedDevicesAllocationPolicy.",
)


def _sharing(kind: str, entry_keys: tuple[Key, ...], refuse_more_than_one: bool, doc: str) -> Key:
    return Key(
        kind,
        Section(
            (
                Key("renameByDefault", Boolean(), "Whether shares are offered as <name>.shared.", False),
                Key(
                    "failRequestsGreaterThanOne",
                    Boolean(),
                    "Whether a container that asks for more than one share is refused: more shares give it no more "
                    "compute.",
                    refuse_more_than_one,
                ),
                Key("resources", ListOf(Section(entry_keys), minimum=1), "What is shared, and how.", None, True),
            ),
            null_hint="a key with nothing below it shares nothing, most likely lost indentation; remove the key to "
            "share nothing",
        ),
        doc,
    )


_SHARING = Section(
    (
        _sharing(
            "timeSlicing",
            (
                *_ENTRY_START,
                Key(
                    "replicas",
                    Whole(2, MAX_REPLICAS, "one replica is not sharing: to share nothing leave the entry out", _ABOVE),
                    "How many pods share each device, taking turns. Nothing isolates them: neither memory nor faults.",
                    None,
                    True,
                ),
                _POLICY,
            ),
            False,
            "Devices that pods share by taking turns.",
        ),
        _sharing(
            "mps",
            (
                *_ENTRY_START,
                Key(
                    "replicas",
                    Whole(
                        1,
                        MAX_REPLICAS,
                        "an entry offers at least one share",
                        _ABOVE,
                        useful=MPS_CLIENTS,
                        beyond="MPS serves no more clients on one GPU: a GPU that this entry takes is left out",
                    ),
                    "How many pods share each device through CUDA MPS. A GPU that is to serve more clients than MPS "
                    "can is left out.",
                    None,
                    True,
                ),
                _POLICY,
                Key(
                    "memoryLimit",
                    MemoryLimit(),
                    "Device memory that each process of a share may pin. Unset: an equal part.",
                ),
                Key(
                    "activeThreadPercentage",
                    Whole(1, 100),
                    "Part of a device's threads that each process of a share may use. Unset: an equal part.",
                ),
            ),
            True,
            "Devices that pods share at the same time, through CUDA MPS control daemons.",
        ),
        Key(
            "transition",
            Choice(tuple(HeldPolicy)),
            "What a new config does that changes a device which a pod holds. drain: it comes into force, and what is "
            "held stays as it is until its pods have ended. refuse: it is not taken at all.",
            HeldPolicy.DRAIN.value,
        ),
    )
)


def _patterns(kind: str, pattern: str, doc: str) -> Key:
    entry = Section(
        (
            Key("pattern", Text(f"a pattern such as {pattern}"), "Pattern: * is any run, ? one character.", None, True),
            Key("name", ResourceName(), "The name that what matches gets.", None, True),
        )
    )
    return Key(kind, ListOf(entry), doc)


MAX_XID = 2**64 - 1

_RESPONSES = {
    Response.IGNORE: "Xids that say nothing about a GPU, as those of applications.",
    Response.WARN: "Xids that are logged and change nothing.",
    Response.UNTIL_RECOVERED: "Xids after which a GPU is unhealthy until it has been quiet and a probe passes.",
    Response.UNTIL_RESET: "Xids after which a GPU is unhealthy until it has been reset, too.",
}
_CONDITIONS = {
    Condition.UNCORRECTABLE_ECC: "A double-bit ECC event, or a counter of uncorrectable ECC errors that grew.",
    Condition.REMAPPING_PENDING: "A row remapping that awaits a reset.",
    Condition.REMAPPING_FAILED: "A row remapping that failed.",
    Condition.RETIREMENT_PENDING: "A page retirement that awaits a reset.",
}

_HEALTH = Section(
    (
        Key(
            "xids",
            Section(tuple(Key(response.value, ListOf(Whole(0, MAX_XID)), doc) for response, doc in _RESPONSES.items())),
            "What single Xids do, where it is not what the plugin's table says (docs/health.md).",
        ),
        Key(
            "conditions",
            Section(
                tuple(
                    Key(condition.value, Choice(tuple(Response)), doc, Response.UNTIL_RECOVERED.value)
                    for condition, doc in _CONDITIONS.items()
                )
            ),
            "What the driver's other signals do.",
        ),
        Key("pollInterval", Period(1, 3600), "How often each GPU is looked at; Xids are heard at once.", "10s"),
        Key("quietTime", Period(1, 86400), "How long a GPU must be quiet before it may recover.", "60s"),
        Key(
            "liveAfter",
            Period(5, 86400),
            "How long what watches the driver may hang before `status --live` fails.",
            "60s",
        ),
    )
)

ROOT = Section(
    (
        Key("version", Choice((VERSION,)), "Version of this file's format.", VERSION),
        Key("flags", _FLAGS, "Settings that flags and variables can set too: flag > variable > file."),
        Key(
            "devices",
            Section(
                (
                    Key("include", GpuList(), "GPUs that are managed at all. Unset: every one."),
                    Key("exclude", GpuList(), "GPUs that are left alone, even if included."),
                )
            ),
            "Which GPUs of the node are managed, before anything else looks at them.",
        ),
        Key(
            "resources",
            Section(
                (
                    _patterns("gpus", '"*T4*"', "Names for whole GPUs by product name; the first match counts."),
                    _patterns("mig", '"1g.*"', "Names for MIG instances by profile; the first match counts."),
                )
            ),
            "Other names than nvidia.com/gpu and nvidia.com/mig-<profile>.",
        ),
        Key("sharing", _SHARING, "Devices that several pods share. Both kinds may stand together."),
        Key("imex", Section(_keys_of("imex")), "IMEX channels, for memory shared between nodes."),
        Key("health", _HEALTH, "Which signals of the driver mean what, and how a GPU recovers. Followed at once."),
    )
)
