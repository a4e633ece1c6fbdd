"""Flags and variables: every name, Go's way of writing them, and what is said about wrong ones."""

import argparse
from dataclasses import replace

import pytest

from deviceplugin.config.load import load_config
from deviceplugin.config.options import PLUGIN_SETTINGS, PROCESS_SETTINGS
from deviceplugin.config.settings import (
    Overrides,
    Settings,
    XidList,
    add_flags,
    go_style,
    help_text,
    parse_settings,
    settings_from,
)
from deviceplugin.errors import NotOfferedError, UsageError

# drop-in.md section 4: the flags and variables of NVIDIA's plugin, each with a value that changes nothing we offer.
NVIDIAS = [
    (("mig-strategy",), ("MIG_STRATEGY",), "mixed"),
    (("fail-on-init-error",), ("FAIL_ON_INIT_ERROR",), "false"),
    (("driver-root", "nvidia-driver-root"), ("NVIDIA_DRIVER_ROOT",), "/x"),
    (("dev-root", "nvidia-dev-root"), ("NVIDIA_DEV_ROOT",), "/x"),
    (("pass-device-specs",), ("PASS_DEVICE_SPECS",), "false"),
    (("device-list-strategy",), ("DEVICE_LIST_STRATEGY",), "envvar"),
    (("device-id-strategy",), ("DEVICE_ID_STRATEGY",), "index"),
    (("gdrcopy-enabled",), ("GDRCOPY_ENABLED",), "false"),
    (("gds-enabled",), ("GDS_ENABLED",), "0"),
    (("mofed-enabled",), ("MOFED_ENABLED",), "f"),
    (("config-file",), ("CONFIG_FILE",), "/config/config.yaml"),
    (("cdi-annotation-prefix",), ("CDI_ANNOTATION_PREFIX",), "cdi.k8s.io/"),
    (("nvidia-cdi-hook-path", "nvidia-ctk-path"), ("NVIDIA_CDI_HOOK_PATH", "NVIDIA_CTK_PATH"), "/x"),
    (("driver-root-ctr-path", "container-driver-root"), ("DRIVER_ROOT_CTR_PATH", "CONTAINER_DRIVER_ROOT"), "/x"),
    (("mps-root",), ("MPS_ROOT",), "/run/nvidia/mps"),
    (("shared-devices-allocation-policy",), ("SHARED_DEVICES_ALLOCATION_POLICY",), "packed"),
    (("device-discovery-strategy",), ("DEVICE_DISCOVERY_STRATEGY",), "nvml"),
    (("imex-channel-ids",), ("IMEX_CHANNEL_IDS",), "0"),
    (("imex-required",), ("IMEX_REQUIRED",), "true"),
    (("kubelet-socket",), ("KUBELET_SOCKET",), "/x/kubelet.sock"),
    (("cdi-feature-flags",), ("CDI_FEATURE_FLAGS",), "disable-nvsandbox-utils"),
    (("cdi-disable-hooks",), ("CDI_DISABLE_HOOKS",), "all"),
]


def parse(arguments: str = "", **environment: str) -> Settings:
    return parse_settings(arguments.split(), environment)


def refused(arguments: str = "", **environment: str) -> UsageError:
    with pytest.raises(UsageError) as error:
        parse(arguments, **environment)
    return error.value


@pytest.mark.parametrize(("flags", "variables", "value"), NVIDIAS, ids=lambda value: value[0] if value[0] else "")
def test_every_flag_and_variable_of_nvidias_plugin_is_known(
    flags: tuple[str, ...], variables: tuple[str, ...], value: str
) -> None:
    unset = parse()
    by_flag = [parse(f"--{flag}={value}") for flag in flags]
    by_variable = [parse("", **{variable: value}) for variable in variables]
    for settings in (*by_flag, *by_variable):
        assert settings != unset
    setting = next(one for one in (*PLUGIN_SETTINGS, *PROCESS_SETTINGS) if set(flags) & set(one.flags))
    for settings, flag in zip(by_flag, flags, strict=True):
        if setting in PLUGIN_SETTINGS:
            assert settings.overrides.given[setting.id].origin.path == f"--{flag}"
            assert settings.overrides.given[setting.id].value == by_variable[0].overrides.given[setting.id].value


def test_no_flag_or_variable_is_known_twice() -> None:
    every = (*PLUGIN_SETTINGS, *PROCESS_SETTINGS)
    flags = [flag for setting in every for flag in setting.flags]
    variables = [variable for setting in every for variable in setting.variables]
    assert len(flags) == len(set(flags))
    assert len(variables) == len(set(variables))
    assert len({setting.id for setting in every}) == len(every)


def test_nothing_set_is_nothing_overridden() -> None:
    settings = parse()
    assert settings == Settings()
    assert settings.overrides.given == {}
    assert settings.device_plugins_dir == "/var/lib/kubelet/device-plugins"
    assert settings.pod_resources_socket == "/var/lib/kubelet/pod-resources/kubelet.sock"
    assert settings.simulated_node is None
    assert settings.fail_on_init_error is None


def test_our_own_flags() -> None:
    settings = parse(
        "--driver=simulated:config/nodes/t4.yaml --kubelet-root-dir=/k --kubelet-socket=/p/kubelet.sock "
        "--status-socket=/s --config-strictness=lenient --log-format=json --log-level=debug --fail-on-init-error=false",
    )
    assert settings.simulated_node == "config/nodes/t4.yaml"
    assert settings.pod_resources_socket == "/k/pod-resources/kubelet.sock"
    assert settings.device_plugins_dir == "/p", "it moves with the kubelet's socket alone"
    assert (settings.status_socket, settings.log_format, settings.log_level) == ("/s", "json", "debug")
    assert settings.lenient
    assert settings.fail_on_init_error is False
    by_variable = parse(
        "",
        GPU_DRIVER="simulated:config/nodes/t4.yaml",
        KUBELET_ROOT_DIR="/k",
        KUBELET_SOCKET="/p/kubelet.sock",
        STATUS_SOCKET="/s",
        CONFIG_STRICTNESS="lenient",
        LOG_FORMAT="json",
        LOG_LEVEL="debug",
    )
    assert replace(settings, overrides=Overrides()) == by_variable


def test_the_driver_may_look_at_a_node_below_another_root() -> None:
    settings = parse("--driver=nvml:/host")
    assert (settings.driver, settings.simulated_node) == ("nvml:/host", None)
    assert "--driver" in str(refused("--driver=nvml:"))


@pytest.mark.parametrize(
    "arguments",
    [
        "--mig-strategy=mixed --pass-device-specs=true",
        "--mig-strategy mixed --pass-device-specs",
        "-mig-strategy=mixed -pass-device-specs=T",
        "-mig-strategy mixed -pass-device-specs",
        "--pass-device-specs --mig-strategy none --mig-strategy mixed",
    ],
)
def test_flags_are_written_as_for_a_go_program(arguments: str) -> None:
    given = parse(arguments).overrides.given
    assert {name: one.value for name, one in given.items()} == {"mig_strategy": "mixed", "pass_device_specs": True}


def test_a_value_may_look_like_a_flag() -> None:
    assert parse("--config-file --mig-strategy").config_file == "--mig-strategy"
    assert parse("--config-file=").config_file is None


@pytest.mark.parametrize("text", ["1", "t", "T", "TRUE", "true", "True"])
def test_gos_words_for_true(text: str) -> None:
    assert parse("", PASS_DEVICE_SPECS=text).overrides.given["pass_device_specs"].value is True
    assert parse(f"--pass-device-specs={text}").overrides.given["pass_device_specs"].value is True


@pytest.mark.parametrize("text", ["0", "f", "F", "FALSE", "false", "False"])
def test_gos_words_for_false(text: str) -> None:
    assert parse("", FAIL_ON_INIT_ERROR=text).fail_on_init_error is False


def test_lists_add_up_over_flags_and_commas() -> None:
    given = parse("--device-list-strategy=envvar --device-list-strategy=cdi-cri,envvar").overrides.given
    assert given["device_list_strategy"].value == ("envvar", "cdi-cri", "envvar")
    assert parse("", DEVICE_LIST_STRATEGY="envvar, cdi-cri").overrides.given["device_list_strategy"].value == (
        "envvar",
        "cdi-cri",
    )
    assert parse("--imex-channel-ids=").overrides.given["imex_channel_ids"].value == ()


@pytest.mark.parametrize(
    ("arguments", "environment", "status", "said"),
    [
        # NVIDIA's words (golden 167).
        (
            "--nvidia-driver-root=/a --driver-root=/b",
            {},
            1,
            "Cannot use two forms of the same flag: nvidia-driver-root driver-root",
        ),
        (
            "--driver-root=/b --nvidia-driver-root=/a",
            {},
            1,
            "Cannot use two forms of the same flag: nvidia-driver-root driver-root",
        ),
        ("--mig-strategy=both", {}, 2, '--mig-strategy: found "both", expected one of: none, single, mixed'),
        ("--mig-strategy=mixd", {}, 2, "did you mean mixed?"),
        ("--mig-strategy", {}, 2, "--mig-strategy: found no value, expected one of: none, single, mixed"),
        ("--mig-strategy=", {}, 2, '--mig-strategy: found "", expected'),
        (
            "--pass-device-specs false",
            {},
            2,
            "--pass-device-specs: found a separate false, expected --pass-device-specs=false",
        ),
        ("--pass-device-specs=maybe", {}, 2, '--pass-device-specs: found "maybe", expected true or false'),
        ("--device-list-strategy=magic", {}, 2, '--device-list-strategy: found "magic", expected one of: envvar'),
        ("--device-list-strategy=", {}, 2, '--device-list-strategy: found ""'),
        ("--imex-channel-ids=1", {}, 2, "expected a list of: the number 0"),
        ("--driver=simulated:", {}, 2, '--driver: found "simulated:", expected nvml or simulated:FILE'),
        ("--kubelet-socket=", {}, 2, '--kubelet-socket: found "", expected a path'),
        ("--kubelet-root-dir=", {}, 2, '--kubelet-root-dir: found "", expected a path'),
        ("--status-socket=", {}, 2, '--status-socket: found "", expected a path'),
        ("--mig-stratgy=none", {}, 2, "--mig-stratgy=none: found an unknown flag; did you mean --mig-strategy?"),
        ("--mig=none", {}, 2, "--mig=none: found an unknown flag"),
        ("serve", {}, 2, 'found the argument "serve", expected flags only'),
        (
            "",
            {"PASS_DEVICE_SPECS": "maybe"},
            1,
            'environment variable PASS_DEVICE_SPECS: found "maybe", expected true or false',
        ),
        ("", {"PASS_DEVICE_SPECS": "yes"}, 1, 'found "yes", expected true or false'),
        ("", {"DEVICE_DISCOVERY_STRATEGY": "guess"}, 1, "expected one of: auto, nvml, tegra, wsl"),
        ("", {"LOG_LEVEL": "loud"}, 1, "expected one of: debug, info, warning, error"),
    ],
)
def test_wrong_usage_is_refused(arguments: str, environment: dict[str, str], status: int, said: str) -> None:
    error = refused(arguments, **environment)
    assert said in str(error)
    assert error.exit_status == status


def test_everything_wrong_is_said_at_once() -> None:
    error = refused("--mig-strategy=both --log-level=loud", IMEX_REQUIRED="maybe", MIG_STRATEGY="unseen")
    assert [line.split(":")[0] for line in str(error).splitlines()] == [
        "--mig-strategy",
        "environment variable IMEX_REQUIRED",
        "--log-level",
    ]
    assert error.exit_status == 2


def test_a_flag_hides_its_variable_even_where_that_is_wrong() -> None:
    assert parse("--mig-strategy=none", MIG_STRATEGY="both").overrides.given["mig_strategy"].value == "none"


def test_what_is_not_offered_is_refused_by_the_name_of_its_flag_or_variable() -> None:
    features = "disable-nvsandbox-utils,enable-coherent-annotations"
    overrides = parse(f"--cdi-feature-flags={features}", DEVICE_DISCOVERY_STRATEGY="wsl").overrides
    with pytest.raises(NotOfferedError) as error:
        load_config(None, overrides)
    assert [problem.split(", which")[0] for problem in error.value.problems] == [
        "environment variable DEVICE_DISCOVERY_STRATEGY: found wsl",
        "--cdi-feature-flags: found enable-coherent-annotations",
    ]


@pytest.mark.parametrize(
    ("text", "expected", "skipped"),
    [
        ("all", XidList(every=True), 0),
        ("XIDS", XidList(every=True), 0),
        ("13, 31 ,43", XidList(xids=frozenset({13, 31, 43})), 0),
        ("94;x,79,,-1,1e3", XidList(xids=frozenset({79})), 3),
        ("all,79", XidList(every=True, xids=frozenset({79})), 0),
        (str(2**64), XidList(), 1),
        ("٣", XidList(), 1),
        ("", XidList(), 0),
    ],
)
def test_xid_lists_skip_what_is_none_with_a_warning(text: str, expected: XidList, skipped: int) -> None:
    settings = parse("", DP_DISABLE_HEALTHCHECKS=text, DP_ENABLE_HEALTHCHECKS="79")
    assert settings.disabled_health_checks == expected
    assert settings.enabled_health_checks == XidList(xids=frozenset({79}))
    assert len(settings.warnings) == skipped
    assert all("DP_DISABLE_HEALTHCHECKS" in warning for warning in settings.warnings)


def test_help_names_every_flag_variable_and_key() -> None:
    text = " ".join(help_text().split())
    for setting in (*PLUGIN_SETTINGS, *PROCESS_SETTINGS):
        for word in (*(f"--{flag}" for flag in setting.flags), *setting.variables):
            assert word in text
    assert "not offered yet: tegra, wsl" in text


def test_flags_can_be_part_of_a_larger_command_line() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("file")
    parser.add_argument("--output")
    add_flags(parser)
    namespace = parser.parse_args(go_style(["--output", "json", "-mig-strategy", "mixed", "f", "-imex-required"]))
    settings = settings_from(namespace, {})
    assert (namespace.file, namespace.output) == ("f", "json")
    assert {name: one.value for name, one in settings.overrides.given.items()} == {
        "mig_strategy": "mixed",
        "imex_required": True,
    }
