"""One recorded case, as tests/golden/README.md describes it: the node, the config, how it was started, the answers."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.nvml_standin import NodeDescription, parse_node

Json = dict[str, Any]

GOLDEN: Final = Path(__file__).parent.parent / "golden"

_SHORT_ID = re.compile(r"(?P<unit>g(?P<gpu>\d+)|m(?P<parent>\d+)\.(?P<slot>\d+))(?P<replica>::\d+)?")


@dataclass(frozen=True, slots=True)
class Case:
    """A recorded case.

    Attributes:
        name: its folder, `002-four-t4-two-numa`.
        config: the text of the config file; None without one.
        gives_config: whether `--config-file` names it (else a variable may, as `{config}`).
        sandbox: what was missing or added on the node.
        faults: present from the start.
        kubelet_reject: Register fails with this text.
        expected: NVIDIA's answers.
    """

    name: str
    node_text: str
    config: str | None
    gives_config: bool
    args: tuple[str, ...]
    env: Mapping[str, str]
    sandbox: Mapping[str, Any]
    faults: tuple[str, ...]
    kubelet_reject: str | None
    expected: Json = field(repr=False)

    @property
    def number(self) -> str:
        """The three digits that the texts call the case by."""
        return self.name[:3]

    def node(self) -> NodeDescription:
        """The node, parsed."""
        return parse_node(self.node_text)


def read_case(name: str) -> Case:
    """The case in that folder."""
    folder = GOLDEN / name
    cmd: Json = json.loads((folder / "cmd.json").read_text())
    config = folder / "config.yaml"
    return Case(
        name=name,
        node_text=(folder / "node.txt").read_text(),
        config=config.read_text() if config.exists() else None,
        gives_config=cmd.get("config", True),
        args=tuple(cmd.get("args", ())),
        env=cmd.get("env", {}),
        sandbox=cmd.get("sandbox", {}),
        faults=tuple(cmd.get("inject_before", ())),
        kubelet_reject=cmd.get("kubelet_reject"),
        expected=json.loads((folder / "expected.json").read_text()),
    )


def case_names() -> list[str]:
    """The folder of every recorded case, in order of number."""
    return sorted(path.parent.name for path in GOLDEN.glob("*/cmd.json"))


def full_ids(value: Any, node: NodeDescription) -> Any:
    """`value` with every id written as in `calls` (g0, m0.1, g0::2) spelled out, also within comma lists and paths."""
    if isinstance(value, dict):
        return {key: full_ids(item, node) for key, item in value.items()}
    if isinstance(value, list):
        return [full_ids(item, node) for item in value]
    if isinstance(value, str):
        return "/".join(",".join(_full_id(word, node) for word in part.split(",")) for part in value.split("/"))
    return value


def _full_id(word: str, node: NodeDescription) -> str:
    found = _SHORT_ID.fullmatch(word)
    if found is None:
        return word
    if found["gpu"] is not None:
        uuid = node.gpus[int(found["gpu"])].uuid
    else:
        uuid = next(mig.uuid for mig in node.gpus[int(found["parent"])].migs if mig.slot == int(found["slot"]))
    return uuid + (found["replica"] or "")
