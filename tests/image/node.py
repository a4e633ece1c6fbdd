"""A node on which every pod of a rendering runs from the image, each with its own rights, and a kubelet."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from deviceplugin.config.document import dump_document
from deviceplugin.simulator import Clock, Kubelet
from tests.deploy.chart import pods
from tests.driver.convert import node_text_to_description
from tests.image.sandbox import Image, Manifest, Sandbox
from tests.mps_standin.handles import NAME, PROGRAM
from tests.serving.harness import TWO_T4

PLUGIN = "nvidia-device-plugin-ctr"


class Node:
    """Two GPUs, what the pods mount, and the stand-in of the MPS control daemon; nothing runs yet but the kubelet.

    Args:
        image: what the containers run.
        root: a directory of its own, with a short path: a unix socket's has 107 bytes.
        manifests: what is applied.
        file: the config file where the manifests name a ConfigMap that they don't bring.
    """

    def __init__(self, image: Image, root: Path, manifests: Sequence[Manifest], file: str = "version: v1\n") -> None:
        self.root = root
        self._file = file
        self._config_maps = {one["metadata"]["name"]: one["data"] for one in manifests if one["kind"] == "ConfigMap"}
        description, programs = root / "node", root / "bin"
        for directory in (description, programs, root / "dp", root / "pod-resources"):
            directory.mkdir()
        self.compute_modes = description / "node.yaml.compute-modes"
        described = node_text_to_description(TWO_T4) | {"driverFiles": [{"path": "/usr/lib/libnvidia-ml.so.1"}]}
        (description / "node.yaml").write_text(dump_document(described))
        (programs / NAME).write_text(f'#!/bin/sh\nexec -a {NAME} /usr/bin/python3 -S {PROGRAM} "$@"\n')
        (programs / NAME).chmod(0o755)
        variables = {"GPU_DRIVER": f"simulated:{description}/node.yaml", "PATH": f"{programs}:/usr/bin:/bin"}
        self.kubelet = Kubelet(device_plugins_dir=root / "dp", root_dir=root, clock=Clock(scale=10), seed=7)
        self.kubelet.start()
        self.sandboxes = {
            pod["containers"][0]["name"]: Sandbox(
                image,
                _with(pod, variables),
                {volume["name"]: self._place(volume, name) for volume in pod["volumes"]},
                [programs, PROGRAM.parent],
                shared=[description],
            )
            for name, pod in pods(list(manifests))
        }

    def _place(self, volume: Manifest, owner: str) -> Path:
        """Where a volume is here."""
        path = Path(volume.get("hostPath", {}).get("path", ""))
        if path == Path("/dev/null"):
            return path
        if path.name in {"device-plugins", "pod-resources"}:
            return self.root / {"device-plugins": "dp"}.get(path.name, path.name)
        place = self.root / (
            "mps/shm" if volume["name"] == "mps-shm" else "mps" if volume["name"] == "mps-root" else ""
        )
        if place == self.root:
            place = self.root / f"{owner[-4:]}-{volume['name']}"
        place.mkdir(parents=True, exist_ok=True)
        if "configMap" in volume:
            data = self._config_maps.get(volume["configMap"]["name"])
            keys = volume["configMap"].get("items") or [{"key": key, "path": key} for key in data or ()]
            for item in keys:
                (place / item["path"]).write_text(data[item["key"]] if data else self._file)
        return place


def _with(pod: Manifest, variables: Mapping[str, str]) -> Manifest:
    """A pod whose containers have these variables as well."""
    more = [{"name": name, "value": value} for name, value in variables.items()]
    return pod | {"containers": [container | {"env": container["env"] + more} for container in pod["containers"]]}
