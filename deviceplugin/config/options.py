"""Every setting that flags and environment variables know, most of them known to the file as well.

With config.schema the one set of definitions that everything about settings is made from. Flags and variables are
those of NVIDIA's plugin (drop-in.md section 4), with ours besides.
"""

from dataclasses import dataclass
from typing import Any

from deviceplugin.config.types import Boolean, Choice, Key, ListOf, MemorySize, Text, Type, Whole
from deviceplugin.model.plan import AllocationPolicy


@dataclass(frozen=True, slots=True)
class Setting:
    """One thing that can be set from outside.

    Attributes:
        id: our name for it; of the field where a dataclass holds it.
        path: its key in the file, empty when the file can't set it.
        flags: its command-line names without dashes; the first is the usual one.
        variables: its environment names; the first that is set counts, as in NVIDIA's plugin.
        default: as the file would write it, None where unset has a meaning of its own.
        doc: one or two sentences for people.
    """

    id: str
    type: Type
    doc: str
    path: str = ""
    flags: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    default: Any = None

    @property
    def key(self) -> Key:
        """The setting as a key of its section in the file."""
        return Key(self.path.rpartition(".")[2], self.type, self.doc, self.default)


PATH = Text("a path")
# What NVIDIA's container toolkit calls features and hooks.
_CDI_FEATURES = (
    *("disable-nvsandbox-utils", "disable-ipc-discoverer", "disable-multiple-csv-devices"),
    *("no-additional-gids-for-device-nodes", "enable-coherent-annotations", "enable-explicit-driver-libraries"),
)
_CDI_HOOKS = (
    *("all", "chmod", "create-soname-symlinks", "create-symlinks", "disable-device-node-modification"),
    *("enable-cuda-compat", "update-application-profile", "update-ldcache"),
)
_LIST_STRATEGIES = Choice(("envvar", "volume-mounts", "cdi-annotations", "cdi-cri"))

# What NVIDIA's plugin calls flags: the file, a variable and a flag can set (most of) them. Flag > variable > file.
PLUGIN_SETTINGS: tuple[Setting, ...] = (
    Setting(
        "mig_strategy",
        Choice(("none", "single", "mixed")),
        "How MIG instances are offered. none: not at all, a GPU with MIG on counts as a whole one. single: as "
        "nvidia.com/gpu, on nodes where all are alike. mixed: each under its profile, as nvidia.com/mig-1g.10gb.",
        "flags.migStrategy",
        ("mig-strategy",),
        ("MIG_STRATEGY",),
        "none",
    ),
    Setting(
        "fail_on_init_error",
        Boolean(),
        "Whether a missing driver or a MIG layout that the strategy can't offer ends the process at start. With false "
        "it waits, alive but not ready.",
        "flags.failOnInitError",
        ("fail-on-init-error",),
        ("FAIL_ON_INIT_ERROR",),
        True,
    ),
    Setting(
        "mps_root",
        PATH,
        "Directory on the host that holds the pipes, logs and shared memory of MPS control daemons.",
        "flags.mpsRoot",
        ("mps-root",),
        ("MPS_ROOT",),
        "",
    ),
    Setting(
        "nvidia_driver_root",
        PATH,
        "Root of the NVIDIA driver's installation on the host.",
        "flags.nvidiaDriverRoot",
        ("driver-root", "nvidia-driver-root"),
        ("NVIDIA_DRIVER_ROOT",),
        "/",
    ),
    Setting(
        "nvidia_dev_root",
        PATH,
        "Root of the NVIDIA device files on the host. Unset: the driver root, or / if it has none.",
        "flags.nvidiaDevRoot",
        ("dev-root", "nvidia-dev-root"),
        ("NVIDIA_DEV_ROOT",),
    ),
    Setting(
        "gdrcopy_enabled",
        Boolean(),
        "Whether containers get GDRCopy's device file.",
        "flags.gdrcopyEnabled",
        ("gdrcopy-enabled",),
        ("GDRCOPY_ENABLED",),
        False,
    ),
    Setting(
        "gds_enabled",
        Boolean(),
        "Whether containers get GPUDirect Storage's device files.",
        "flags.gdsEnabled",
        ("gds-enabled",),
        ("GDS_ENABLED",),
        False,
    ),
    Setting(
        "mofed_enabled",
        Boolean(),
        "Whether containers get Mellanox OFED's device files.",
        "flags.mofedEnabled",
        ("mofed-enabled",),
        ("MOFED_ENABLED",),
        False,
    ),
    Setting(
        "device_discovery_strategy",
        Choice(("auto", "nvml", "tegra", "wsl")),
        "How devices are found.",
        "flags.deviceDiscoveryStrategy",
        ("device-discovery-strategy",),
        ("DEVICE_DISCOVERY_STRATEGY",),
        "auto",
    ),
    Setting(
        "pass_device_specs",
        Boolean(),
        "Whether Allocate answers with device files too, as the static CPU manager policy needs.",
        "flags.plugin.passDeviceSpecs",
        ("pass-device-specs",),
        ("PASS_DEVICE_SPECS",),
        False,
    ),
    Setting(
        "device_list_strategy",
        ListOf(_LIST_STRATEGIES, alone=True, minimum=1),
        "How the container runtime learns which devices a container gets; several add up.",
        "flags.plugin.deviceListStrategy",
        ("device-list-strategy",),
        ("DEVICE_LIST_STRATEGY",),
        ["envvar"],
    ),
    Setting(
        "device_id_strategy",
        Choice(("uuid", "index")),
        "What NVIDIA_VISIBLE_DEVICES names devices by.",
        "flags.plugin.deviceIDStrategy",
        ("device-id-strategy",),
        ("DEVICE_ID_STRATEGY",),
        "uuid",
    ),
    Setting(
        "cdi_annotation_prefix",
        Text(),
        "Prefix of the annotation that carries CDI names.",
        "flags.plugin.cdiAnnotationPrefix",
        ("cdi-annotation-prefix",),
        ("CDI_ANNOTATION_PREFIX",),
        "cdi.k8s.io/",
    ),
    Setting(
        "cdi_hook_path",
        PATH,
        "The program on the host that CDI hooks run, nvidia-cdi-hook or nvidia-ctk. Unset: the one in /usr/bin below "
        "the driver root; where there is none, specifications are written that need no hooks.",
        "flags.plugin.nvidiaCTKPath",
        ("nvidia-cdi-hook-path", "nvidia-ctk-path"),
        ("NVIDIA_CDI_HOOK_PATH", "NVIDIA_CTK_PATH"),
    ),
    Setting(
        "container_driver_root",
        PATH,
        "Where the driver root is mounted in this process's own container.",
        "flags.plugin.containerDriverRoot",
        ("driver-root-ctr-path", "container-driver-root"),
        ("DRIVER_ROOT_CTR_PATH", "CONTAINER_DRIVER_ROOT"),
        "/driver-root",
    ),
    Setting(
        "shared_devices_allocation_policy",
        Choice(tuple(AllocationPolicy)),
        "Which free shares and MIG instances are preferred. distributed: evenly over GPUs. packed: on few GPUs. "
        "spread: no two on one GPU; a container with two is refused.",
        "flags.plugin.sharedDevicesAllocationPolicy",
        ("shared-devices-allocation-policy",),
        ("SHARED_DEVICES_ALLOCATION_POLICY",),
        "distributed",
    ),
    Setting(
        "imex_channel_ids",
        ListOf(Whole(0, 0, above="only channel 0 is given to containers")),
        "IMEX channels that containers get.",
        "imex.channelIDs",
        ("imex-channel-ids",),
        ("IMEX_CHANNEL_IDS",),
        [],
    ),
    Setting(
        "imex_required",
        Boolean(),
        "Whether a missing IMEX channel is an error.",
        "imex.required",
        ("imex-required",),
        ("IMEX_REQUIRED",),
        False,
    ),
    Setting(
        "cdi_feature_flags",
        ListOf(Choice(_CDI_FEATURES)),
        "Optional features of the CDI specifications that are written. The disable- and no- ones are taken: what they "
        "switch off is never done here.",
        flags=("cdi-feature-flags",),
        variables=("CDI_FEATURE_FLAGS",),
        default=[],
    ),
    Setting(
        "cdi_disable_hooks",
        ListOf(Choice(_CDI_HOOKS)),
        "CDI hooks that are left out of the specifications.",
        flags=("cdi-disable-hooks",),
        variables=("CDI_DISABLE_HOOKS",),
        default=[],
    ),
)

# What belongs to the process, not to what it offers: the file can't say it.
PROCESS_SETTINGS: tuple[Setting, ...] = (
    Setting(
        "config_file",
        PATH,
        "The config file, YAML or JSON. Without one: whole GPUs as nvidia.com/gpu.",
        flags=("config-file",),
        variables=("CONFIG_FILE",),
    ),
    Setting(
        "config_strictness",
        Choice(("strict", "lenient")),
        "strict: unknown and repeated keys in the file are errors. lenient: they are warnings, as a help to migrate.",
        flags=("config-strictness",),
        variables=("CONFIG_STRICTNESS",),
        default="strict",
    ),
    Setting(
        "driver",
        Text("nvml or simulated:FILE"),
        "Where devices come from: the NVIDIA driver, or a node description that is replayed.",
        flags=("driver",),
        variables=("GPU_DRIVER",),
        default="nvml",
    ),
    Setting(
        "kubelet_root_dir",
        PATH,
        "The kubelet's --root-dir; its pod-resources socket is below it.",
        flags=("kubelet-root-dir",),
        variables=("KUBELET_ROOT_DIR",),
        default="/var/lib/kubelet",
    ),
    Setting(
        "kubelet_socket",
        PATH,
        "The kubelet's registration socket; our sockets lie beside it. It does not follow the root directory.",
        flags=("kubelet-socket",),
        variables=("KUBELET_SOCKET",),
        default="/var/lib/kubelet/device-plugins/kubelet.sock",
    ),
    Setting(
        "mps_container_root",
        PATH,
        "Where the MPS root is mounted in this process's own container.",
        flags=("mps-container-root",),
        variables=("MPS_CONTAINER_ROOT",),
        default="/mps",
    ),
    Setting(
        "cdi_root",
        PATH,
        "The directory that container runtimes read CDI specifications from; ours are written there.",
        flags=("cdi-root",),
        variables=("CDI_ROOT",),
        default="/var/run/cdi",
    ),
    Setting(
        "mps_multiuser",
        Boolean(),
        "Whether MPS control daemons are started with -multiuser-server: one server, run by root, for pods of every "
        "user id. Without it pods of different user ids on one GPU wait for each other. Only for the mps command.",
        flags=("mps-multiuser",),
        variables=("MPS_MULTIUSER",),
        default=True,
    ),
    Setting(
        "mps_shm_size",
        MemorySize(16 << 20),
        "How large the tmpfs is that `mps mount-shm` mounts for MPS daemons and clients, the /dev/shm of all pods on "
        "MPS shares. Only for that command.",
        flags=("mps-shm-size",),
        variables=("MPS_SHM_SIZE",),
        default="64Mi",
    ),
    Setting(
        "status_socket",
        PATH,
        "Where this process answers the status command.",
        flags=("status-socket",),
        variables=("STATUS_SOCKET",),
        default="/run/gpu-device-plugin/status.sock",
    ),
    Setting(
        "log_format",
        Choice(("text", "json")),
        "One line of text, or one JSON object, for each message.",
        flags=("log-format",),
        variables=("LOG_FORMAT",),
        default="text",
    ),
    Setting(
        "log_level",
        Choice(("debug", "info", "warning", "error")),
        "The least severe messages that are logged.",
        flags=("log-level",),
        variables=("LOG_LEVEL",),
        default="info",
    ),
    Setting(
        "disabled_health_checks",
        Text("all, xids, or a list of Xids with commas"),
        "Xids that say nothing about a device's health; all or xids: none says anything.",
        variables=("DP_DISABLE_HEALTHCHECKS",),
        default="",
    ),
    Setting(
        "enabled_health_checks",
        Text("all, xids, or a list of Xids with commas"),
        "Xids that are watched even if disabled.",
        variables=("DP_ENABLE_HEALTHCHECKS",),
        default="",
    ),
)
