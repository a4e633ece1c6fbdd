"""The package keeps the import rules of design section 3, and the checker sees what breaks them."""

from pathlib import Path

import pytest

from tests.project import ROOT
from tests.project.imports import LEVEL, PACKAGE, module_name, third_party, violations

MODULES = sorted(path for path in (ROOT / PACKAGE).rglob("*.py") if "stubs" not in path.parts)


def test_every_part_has_its_place() -> None:
    parts = {path.parent.name for path in (ROOT / PACKAGE).glob("*/__init__.py")} - {"stubs"}
    assert parts <= set(LEVEL)


def test_every_folder_is_a_package() -> None:
    folders = {path.parent for path in MODULES}
    assert [str(folder.relative_to(ROOT)) for folder in folders if not (folder / "__init__.py").exists()] == []


@pytest.mark.parametrize("path", MODULES, ids=lambda path: module_name(path, ROOT))
def test_imports_point_down(path: Path) -> None:
    assert violations(path.read_text(), module_name(path, ROOT), is_package=path.name == "__init__.py") == []


# Each line breaks one rule; what the checker says must contain the words beside it.
PLANTED = [
    ("deviceplugin.model.plan", "from deviceplugin.config.model import Config", "config, which lies above"),
    ("deviceplugin.model.plan", "import deviceplugin.config.model", "config, which lies above"),
    ("deviceplugin.errors", "from deviceplugin.model import ids", "model, which lies above"),
    ("deviceplugin.config.load", "from deviceplugin import planning", "planning, which lies above"),
    ("deviceplugin.config.load", "from ..planning.build import build", "planning, which lies above"),
    ("deviceplugin.app.loop", "def f():\n    from deviceplugin.cli import main", "cli, which lies above"),
    ("deviceplugin.driver.nvml", "from deviceplugin.health.rules import Rule", "sibling health"),
    ("deviceplugin.allocation.env", "from deviceplugin.planning.build import build", "sibling planning"),
    (
        "deviceplugin.observe.status",
        "if TYPE_CHECKING:\n    from deviceplugin.kubelet import server",
        "sibling kubelet",
    ),
    ("deviceplugin.simulator.node", "import importlib\nimportlib.import_module('deviceplugin.mps')", "sibling mps"),
    ("deviceplugin.simulator.node", "__import__('deviceplugin.app')", "app, which lies above"),
    ("deviceplugin.app.loop", "from importlib import import_module\nimport_module(name)", "only known when it runs"),
    ("deviceplugin.app.loop", "importlib.import_module(f'deviceplugin.{name}')", "only known when it runs"),
    ("deviceplugin.app.loop", "importlib.import_module(f'deviceplugin.cli.{name}')", "cli, which lies above"),
    ("deviceplugin.cli.main", "import pynvml", "only driver may"),
    ("deviceplugin.driver.nodes", "from yaml import CSafeLoader", "only config may"),
    ("deviceplugin.config.watch", "from watchdog.observers import Observer", "only app may"),
    ("deviceplugin.app.loop", "import prometheus_client as p", "only observe may"),
    ("deviceplugin.app.loop", "import grpc", "only kubelet and simulator may"),
    ("deviceplugin.planning.size", "from google.protobuf import message", "only kubelet and simulator may"),
    ("deviceplugin.app.loop", "from deviceplugin.stubs import podresources_v1_pb2", "only kubelet and simulator may"),
    ("deviceplugin.app.loop", "from deviceplugin import stubs", "only kubelet and simulator may"),
    ("deviceplugin.model.ids", "import time", "pure, but imports time"),
    ("deviceplugin.planning.build", "from os.path import exists", "pure, but imports os"),
    ("deviceplugin.allocation.env", "text = open('/proc/mounts')", "pure, but calls open()"),
    ("deviceplugin.helpers", "", "LAYERS does not name"),
]


@pytest.mark.parametrize(("module", "source", "words"), PLANTED, ids=[f"{m}-{w}" for m, _, w in PLANTED])
def test_the_checker_sees(module: str, source: str, words: str) -> None:
    assert [problem for problem in violations(source, module) if words in problem]


def test_the_checker_sees_relative_imports_of_a_package() -> None:
    assert violations("from ..app import loop", "deviceplugin.model", is_package=True) == [
        "deviceplugin.model:1: model imports app, which lies above it"
    ]


ALLOWED = [
    ("deviceplugin.cli.main", "importlib.import_module(f'deviceplugin.cli.{command}')"),
    ("deviceplugin.cli.main", "from deviceplugin.app.loop import Loop\nfrom deviceplugin.errors import UsageError"),
    ("deviceplugin.kubelet.server", "import grpc\nfrom deviceplugin.stubs import deviceplugin_v1beta1_pb2 as pb"),
    ("deviceplugin.driver.nvml", "import pynvml\nimport os\nfrom deviceplugin.model.node import Gpu"),
    ("deviceplugin.planning.build", "from deviceplugin import __version__\nimport dataclasses, fnmatch"),
    ("deviceplugin.model.plan", "from deviceplugin.model.ids import replica_id\nfrom .ids import replica_id"),
]


@pytest.mark.parametrize(("module", "source"), ALLOWED, ids=[f"{m}-{number}" for number, (m, _) in enumerate(ALLOWED)])
def test_the_checker_lets_pass(module: str, source: str) -> None:
    assert violations(source, module) == []


def test_only_declared_dependencies_are_imported() -> None:
    declared = {"grpc", "google", "pynvml", "yaml", "watchdog"}
    imported: dict[str, list[str]] = {}
    for path in MODULES:
        module = module_name(path, ROOT)
        for top in third_party(path.read_text(), module, is_package=path.name == "__init__.py"):
            imported.setdefault(top, []).append(module)
    assert {top: modules for top, modules in imported.items() if top not in declared} == {}
