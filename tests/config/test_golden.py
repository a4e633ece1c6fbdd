"""What NVIDIA's plugin answered to configs, flags and variables: ours loads what it took, refuses what it refused.

Only loading is compared here; what a node then makes of a config is for planning.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from deviceplugin.config.load import load_config
from deviceplugin.config.model import Config
from deviceplugin.config.settings import parse_settings
from deviceplugin.errors import ConfigError, NotOfferedError, UsageError
from tests.config.files import GOLDEN

CASES = sorted(path.name for path in GOLDEN.iterdir() if (path / "cmd.json").exists())
# NVIDIA's plugin ended for what it found on the node, not for what was written.
ENDED_BY_THE_NODE = {"007", "013", "042", "043", "055", "057", "065", "075", "077", "103"}
# Differ on purpose (design 8): a resource listed twice is a GPU claimed twice; a repeated key is an error; the
# kubelet's rule decides about names, and lets 63 characters follow the domain; an empty variable counts as unset.
STRICTER = {"030", "140"}
MORE_TOLERANT = {"142", "170"}


def load(name: str) -> Config:
    case = GOLDEN / name
    command: dict[str, Any] = json.loads((case / "cmd.json").read_text())
    config = case / "config.yaml"
    environment = {key: value.replace("{config}", str(config)) for key, value in command.get("env", {}).items()}
    arguments = list(command.get("args", []))
    if config.exists() and command.get("config", True):
        arguments.append(f"--config-file={config}")
    settings = parse_settings(arguments, environment)
    return load_config(settings.config_file, settings.overrides, lenient=settings.lenient)


def recorded(name: str) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads((GOLDEN / name / "expected.json").read_text())
    return answer


@pytest.mark.parametrize("name", CASES)
def test_what_was_taken_loads_and_what_was_refused_does_not(name: str) -> None:
    number = name[:3]
    refused_there = recorded(name)["exit"] is not None and number not in ENDED_BY_THE_NODE
    try:
        load(name)
    except NotOfferedError:
        assert not refused_there, "what NVIDIA's plugin refuses is an error, not something to come"
    except (ConfigError, UsageError):
        assert refused_there != (number in STRICTER)
    else:
        assert refused_there == (number in MORE_TOLERANT)


@pytest.mark.parametrize("name", [name for name in CASES if recorded(name).get("effective_config")])
def test_flags_in_force_are_the_recorded_ones(name: str) -> None:
    try:
        config = load(name)
    except NotOfferedError:
        return
    except ConfigError:
        assert name[:3] in STRICTER
        return
    flags = recorded(name)["effective_config"]["flags"]
    assert {
        "migStrategy": config.flags.mig_strategy,
        "failOnInitError": config.flags.fail_on_init_error,
        "mpsRoot": config.flags.mps_root,
        "nvidiaDriverRoot": config.flags.nvidia_driver_root,
        "nvidiaDevRoot": config.flags.nvidia_dev_root,
        "deviceDiscoveryStrategy": config.flags.device_discovery_strategy,
    }.items() <= flags.items()
    assert {
        "deviceIDStrategy": config.flags.device_id_strategy,
        "deviceListStrategy": list(config.flags.device_list_strategies),
        "containerDriverRoot": config.flags.container_driver_root,
        "sharedDevicesAllocationPolicy": config.flags.shared_devices_allocation_policy,
    }.items() <= flags["plugin"].items()


def test_every_exception_is_a_recorded_case() -> None:
    numbers = {name[:3] for name in CASES}
    assert numbers >= ENDED_BY_THE_NODE | STRICTER | MORE_TOLERANT


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        load_config(str(tmp_path / "config.yaml"))
