"""What a change from NVIDIA's chart to ours makes of its values together with the config file (drop-in.md 4 and 5)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from deviceplugin.config.chart_values import ChartValues
from deviceplugin.config.chart_verdicts import Fate, Verdict
from deviceplugin.config.document import quote_key
from deviceplugin.config.model import Config, MigStrategy
from deviceplugin.planning.delivering import by_cdi
from deviceplugin.planning.nvidia import otherwise


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """A config file that comes with the values.

    Attributes:
        name: for messages.
        config: what it makes, with what the values set above it.
        settings: what it sets itself, by path in it.
    """

    name: str
    config: Config
    settings: Mapping[str, object]


def of_the_file(file: ConfigFile) -> Iterator[Verdict]:
    """What becomes of a config file: each key that means something else, and that the others stay."""
    for one in otherwise(file.config):
        yield Verdict(Fate.CHANGES, one.key, f"NVIDIA's plugin {one.nvidia}; here {one.here}")
    if file.config.mps is not None:
        yield Verdict(
            Fate.CHANGES,
            str(file.config.mps.origin),
            "NVIDIA's plugin has one control daemon for all GPUs of a node, ours one for each, with other pipes: "
            "before the change drain the nodes of pods on MPS shares and delete NVIDIA's DaemonSet, "
            "<release>-nvidia-device-plugin-mps-control-daemon (docs/migration.md)",
        )
    yield Verdict(Fate.STAYS, file.name, "every other key: same key, same meaning")


def of_both(values: ChartValues, file: ConfigFile | None, config: Config) -> Iterator[Verdict]:
    """What the values must say besides because of the file, or change by what it says.

    Takes the values, the file that comes with them (None when there is none, or it is not at hand), and what both make,
    or the values alone.
    """
    yield from _fail_on_init_error(values, file)
    if file is None and values.given.get("config.default") and _is_unseen(values):
        yield _by_name(values)
    if file is not None:
        yield from _rights(values, file)
    yield from _contexts(values, config)
    yield from _driver_files(values, config)
    yield from _mps_values(values, config)


def _fail_on_init_error(values: ChartValues, file: ConfigFile | None) -> Iterator[Verdict]:
    """Our chart sets the flag to false where it sees it nowhere; NVIDIA's leaves it to the plugin's default, true."""
    if values.given.get("failOnInitError") is not None:
        return
    where, said = f"{values.source}: failOnInitError", file.settings.get("flags.failOnInitError") if file else None
    keep = "set failOnInitError: true to keep that"
    if said is None:
        unless = ", unless the file of config.name says false" if _is_unseen(values) and file is None else ""
        text = (
            f"not set: under NVIDIA's chart it is true then{unless}, and a failed start ends the process; under ours "
            f"it is false, and the plugin waits, alive and not ready, and says why; {keep}"
        )
        yield Verdict(Fate.CHANGES, where, text)
    elif said and file and _is_unseen(values):
        text = f"not set: {file.name} says true; our chart can't look into config.name, and sets false above it; {keep}"
        yield Verdict(Fate.CHANGES, where, text)


def _is_unseen(values: ChartValues) -> bool:
    """Whether the file is one that a chart can't look into."""
    return bool(values.given.get("config.name"))


def _by_name(values: ChartValues) -> Verdict:
    name, key = (quote_key(str(values.given[f"config.{one}"])) for one in ("name", "default"))
    namespace = quote_key(str(values.given.get("namespaceOverride") or "NAMESPACE"))
    key = key.replace(".", "\\.")
    command = f"kubectl --namespace {namespace} get configmap {name} --output jsonpath='{{.data.{key}}}' > config.yaml"
    return Verdict(
        Fate.CHANGES,
        values.where("config.default"),
        "our chart can't look into a ConfigMap of yours, so what the file needs must be said by values: give the file "
        f"as well, and they are named ({command})",
    )


def _rights(values: ChartValues, file: ConfigFile) -> Iterator[Verdict]:
    """The values without which the plugin would refuse the file."""
    for value, needed, why in _needs(values, file.config):
        found = values.given.get(value)
        # With the MIG management devices of CDI the instances are listed without the right (docs/install.md, Rights).
        is_denied = found is False and value != "privileges.mig"
        if is_denied or (found is None and _is_unseen(values)):
            said = "found false" if is_denied else "not set"
            yield Verdict(
                Fate.REFUSED, values.where(value), f"{said}: {file.name} has {why}, which needs {value}: {needed}"
            )


def _needs(values: ChartValues, config: Config) -> Iterator[tuple[str, str, str]]:
    """Value, what it must be, and why: what our chart sees to itself where it can look (docs/install.md, Rights)."""
    flags = config.flags
    if config.mps is not None:
        yield "mps.enabled", "true", "sharing.mps"
    if flags.mig_strategy is not MigStrategy.NONE and values.given.get("migStrategy") is None:
        yield "privileges.mig", "true", f"migStrategy {flags.mig_strategy}"
    if values.given.get("deviceListStrategy") is None:
        strategies = ",".join(flags.device_list_strategies)
        if by_cdi(flags):
            yield "cdi.enabled", "true", f"deviceListStrategy {strategies}"
        if "volume-mounts" in flags.device_list_strategies:
            yield "deviceListStrategy", strategies, f"deviceListStrategy {strategies}"


def _contexts(values: ChartValues, config: Config) -> Iterator[Verdict]:
    """A security context that replaces ours, without what NVIDIA's runtime wants where MIG instances are listed."""
    if config.flags.mig_strategy is MigStrategy.NONE or values.given.get("privileges.mig") is False:
        return
    for key in ("securityContext", "mps.securityContext"):
        context = values.given.get(key)
        if not isinstance(context, dict) or not context or context.get("privileged"):
            continue
        capabilities = context.get("capabilities")
        added = capabilities.get("add") if isinstance(capabilities, dict) else None
        if not any(one in ("SYS_ADMIN", "CAP_SYS_ADMIN", "ALL") for one in (added if isinstance(added, list) else ())):
            yield Verdict(
                Fate.REFUSED,
                values.where(key),
                f"without capability SYS_ADMIN, but migStrategy is {config.flags.mig_strategy}, and NVIDIA's runtime "
                "starts no container without it that is to list MIG instances: add it, or set privileges.mig to false "
                "(CDI)",
            )


def _driver_files(values: ChartValues, config: Config) -> Iterator[Verdict]:
    if by_cdi(config.flags) and values.given.get("nvidiaDriverRoot") is None:
        yield Verdict(
            Fate.CHANGES,
            f"{values.source}: nvidiaDriverRoot",
            "not set, so nothing of the driver is mounted: by CDI containers would get device files and no libraries; "
            "set it, to / for a driver on the node itself",
        )


def _mps_values(values: ChartValues, config: Config) -> Iterator[Verdict]:
    """What NVIDIA's chart gives its MPS control daemon, and ours does not."""
    if config.mps is None:
        return
    ours = any(values.given.get(f"resources.{key}") for key in ("requests", "limits", "claims"))
    if ours and values.given.get("mps.resources") is None:
        yield Verdict(
            Fate.CHANGES,
            f"{values.source}: resources",
            "not the MPS control daemon's any more: that has mps.resources, and no limit by itself",
        )
    if values.given.get("mps.shmSize") is None:
        yield Verdict(
            Fate.CHANGES,
            f"{values.source}: mps.shmSize",
            "not set: the /dev/shm of pods on MPS shares, 64 MiB under NVIDIA's chart, is as large as the file system "
            "of mps.root allows under ours; set it, to 8Gi for instance, and it is bounded (docs/mps.md)",
        )
