"""Every right that any manifest gives, with the feature that needs it. What is not in these tables is a mistake."""

from collections.abc import Iterator

import pytest

from tests.deploy.chart import Manifest, Values, cases, pods, render, static_manifests
from tests.deploy.test_values import CHANGES
from tests.project import ROOT

PLUGIN = "nvidia-device-plugin-ctr"

# What the plugin needs in every installation (design 8, privileges): it is root on paper only.
PLAIN = {
    "runs as root": "the kubelet's directories are root's (0755 and 0750)",
    "/var/lib/kubelet/device-plugins, writable": "its sockets, beside the kubelet's",
    "/var/lib/kubelet/pod-resources, read-only": "which pod holds which device",
}
MIG = {"capability SYS_ADMIN": "privileges.mig: NVIDIA's runtime lets nobody else list MIG instances"}
MPS = {
    "/run/nvidia/mps, writable": "mps.enabled: pipes, logs and records of the control daemons",
    "/run/nvidia/mps/shm, writable": "mps.enabled: the memory that whoever talks to them shares",
    "/var/lib/kubelet/device-plugins, read-only": "mps.enabled: the kubelet's checkpoint says what is held",
    "hostPID": "mps.enableHostPID: the MPS server looks itself up by the number that the driver knows",
    "capability SYS_ADMIN": "mps.enabled: compute modes",
    **{
        f"capability {name}": "mps.enabled: servers that run as their clients' users"
        for name in ("SETUID", "SETGID", "CHOWN", "FOWNER", "KILL")
    },
}
SHM_SIZE = {
    "privileged": "mps.shmSize: mounting for the node, in an init container",
    "/run/nvidia/mps, writable, Bidirectional": "mps.shmSize: the mount reaches the node",
    "/run/nvidia/mps/shm, writable, HostToContainer": "mps.shmSize: the plugin sees the mount that comes later",
}
NAMED: dict[str, dict[str, str]] = {
    "no-values": PLAIN,
    "nvidia-values": PLAIN,
    "k3s": PLAIN,
    "time-slicing": PLAIN,
    "external-configmap": PLAIN,
    "mps": PLAIN | MPS,
    "mps-shm-size": PLAIN | MPS | SHM_SIZE,
    "mig-mixed": PLAIN | MIG,
    "mig-in-file": PLAIN | MIG,
    "microk8s": {
        "runs as root": PLAIN["runs as root"],
        "/var/snap/microk8s/common/var/lib/kubelet/device-plugins, writable": "its sockets",
        "/var/snap/microk8s/common/var/lib/kubelet/pod-resources, read-only": "which pod holds which device",
    },
    "cpu-manager": PLAIN | {"privileged": "compatWithCPUManager: a CPU set update would take the GPUs from it"},
    "volume-mounts": PLAIN
    | {"/dev/null, writable": "deviceListStrategy volume-mounts: asks NVIDIA's runtime for GPUs"},
    "cdi": PLAIN
    | {
        "/var/run/cdi, writable": "cdi.enabled: the specifications that it writes",
        "/run/nvidia/driver, read-only, HostToContainer": "nvidiaDriverRoot: the driver's files, once they are there",
    },
    "nvidia-device-plugin.yml": PLAIN,
    "nvidia-device-plugin-config.yml": PLAIN,
    "nvidia-device-plugin-mig.yml": PLAIN | MIG,
    "nvidia-device-plugin-mps.yml": PLAIN | MPS,
    "nvidia-device-plugin-compat-with-cpumanager.yml": PLAIN
    | {"privileged": "PASS_DEVICE_SPECS: a CPU set update would take the GPUs from it"},
}

MANIFESTS = static_manifests() | {name: render(values) for name, values in cases().items()}


def rights(pod: Manifest) -> Iterator[str]:
    """Everything that a pod may do beyond what any pod without a word may do."""
    for key in ("hostPID", "hostNetwork", "hostIPC", "shareProcessNamespace"):
        if pod.get(key):
            yield key
    if pod.get("automountServiceAccountToken") is not False:
        yield "service-account token"
    if pod.get("securityContext", {}).get("seccompProfile") != {"type": "RuntimeDefault"}:
        yield "no seccomp profile"
    paths = {volume["name"]: volume["hostPath"]["path"] for volume in pod["volumes"] if "hostPath" in volume}
    for container in (*pod.get("initContainers", ()), *pod["containers"]):
        context = container.get("securityContext", {})
        capabilities = context.get("capabilities", {})
        if context.get("privileged"):
            yield "privileged"
        else:
            if capabilities.get("drop") != ["ALL"]:
                yield "the runtime's usual capabilities"
            # Kubernetes lets nobody forbid it beside SYS_ADMIN.
            if context.get("allowPrivilegeEscalation") is not False and "SYS_ADMIN" not in capabilities.get("add", ()):
                yield "privilege escalation"
        yield from (f"capability {name}" for name in capabilities.get("add", ()))
        if not context.get("readOnlyRootFilesystem"):
            yield "writable root file system"
        if context.get("runAsUser", 0) == 0:
            yield "runs as root"
        for mount in container["volumeMounts"]:
            if mount["name"] in paths:
                how = "read-only" if mount.get("readOnly") else "writable"
                shared = f", {mount['mountPropagation']}" if "mountPropagation" in mount else ""
                yield f"{paths[mount['name']]}, {how}{shared}"


def test_every_manifest_is_in_the_table() -> None:
    assert NAMED.keys() == MANIFESTS.keys()


@pytest.mark.parametrize("name", MANIFESTS)
def test_each_right_is_needed_by_a_feature(name: str) -> None:
    given = sorted({right for _, pod in pods(MANIFESTS[name]) for right in rights(pod)})
    assert given == sorted(NAMED[name])


@pytest.mark.parametrize("name", MANIFESTS)
def test_nothing_may_ask_the_api_server(name: str) -> None:
    kinds = {manifest["kind"] for manifest in MANIFESTS[name]}
    assert kinds <= {"DaemonSet", "ServiceAccount", "ConfigMap"}, "no role, no binding"


@pytest.mark.parametrize("name", MANIFESTS)
def test_the_seen_rights_are_all_that_there_are(name: str) -> None:
    """`rights` knows every field that gives some; a new field must be judged there."""
    known_of_pods = {
        *("automountServiceAccountToken", "securityContext", "volumes", "containers", "initContainers", "hostPID"),
        *("affinity", "nodeSelector", "tolerations", "priorityClassName", "runtimeClassName", "serviceAccountName"),
        *("enableServiceLinks", "terminationGracePeriodSeconds"),
    }
    known_of_contexts = {
        *("runAsUser", "readOnlyRootFilesystem", "allowPrivilegeEscalation", "capabilities", "privileged"),
    }
    for _, pod in pods(MANIFESTS[name]):
        assert set(pod) <= known_of_pods
        for container in pod["containers"]:
            assert set(container["securityContext"]) <= known_of_contexts


# Value that is set alone -> the rights that it adds. Every other value must add none.
ADDED = {
    "compatWithCPUManager": {"privileged"},
    "migStrategy": set(MIG),
    "privileges.mig": set(MIG),
    "deviceListStrategy": {"/dev/null, writable"},
    "nvidiaDriverRoot": {"/run/nvidia/driver, read-only, HostToContainer"},
    "cdi.enabled": {"/var/run/cdi, writable"},
    "mps.enabled": set(MPS),
    "mps.shmSize": set(SHM_SIZE),
    "devicePlugin.enableHostNetwork": {"hostNetwork"},
    "mps.enableHostNetwork": {"hostNetwork"},
    "kubelet.rootDir": {"/var/lib/k0s/kubelet/pod-resources, read-only"},
    "kubelet.devicePluginsDir": {"/snap/device-plugins, writable"},
    "mps.root": {"/var/mps, writable", "/var/mps/shm, writable"},
    # What is set replaces ours as a whole.
    "podSecurityContext": {"no seccomp profile"},
    "securityContext": {"privileged", "writable root file system"},
    "mps.securityContext": {"privileged", "writable root file system"},
}
OF_THE_KUBELET = {"kubelet.rootDir", "kubelet.devicePluginsDir", "mps.root"}


def rights_of(values: Values) -> set[str]:
    return {right for _, pod in pods(render(values)) for right in rights(pod)}


@pytest.mark.parametrize("path", CHANGES)
def test_a_value_adds_the_rights_that_it_is_for_and_no_others(path: str) -> None:
    values, without = CHANGES[path]
    if path == "mps.root":
        values, without = ({**mine, "mps": {**mine.get("mps", {}), "enabled": True}} for mine in (values, without))
    assert rights_of(values) - rights_of(without) == ADDED.get(path, set())


@pytest.mark.parametrize("path", sorted(ADDED.keys() - OF_THE_KUBELET))
def test_the_guide_names_every_value_that_adds_rights(path: str) -> None:
    guide = (ROOT / "docs/install.md").read_text()
    section = guide.partition("\n## Rights\n")[2].partition("\n## ")[0]
    assert path in section


def test_a_right_too_many_is_seen() -> None:
    ((_, pod),) = pods(MANIFESTS["no-values"])
    (container,) = pod["containers"]
    worse = container | {"securityContext": {"runAsUser": 0}}
    seen = set(
        rights({"containers": [worse], "volumes": [], "hostPID": True} | {"containers": [worse | {"volumeMounts": []}]})
    )
    assert seen == {
        *("hostPID", "service-account token", "no seccomp profile", "the runtime's usual capabilities"),
        *("privilege escalation", "writable root file system", "runs as root"),
    }
