"""Bad files: every mistake is found, at its place, with what to write instead. Each is a real file."""

import os
from itertools import count
from pathlib import Path

import pytest

from deviceplugin.config.load import load_config, parse_config
from deviceplugin.config.reader import MAX_FINDINGS
from deviceplugin.config.schema import MAX_REPLICAS
from deviceplugin.errors import ConfigError, NotOfferedError
from tests.config.files import entry, problems, write

GPU = "name: nvidia.com/gpu"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        # Wrong type.
        ("[]", "config.yaml:1: found an empty list, expected a mapping with version, flags"),
        ("v1", 'config.yaml:1: found the text "v1", expected a mapping'),
        ("version: 1", "config.yaml:1: version: found the number 1, expected v1"),
        ("version: v1\nflags: [a]", "config.yaml:2: flags: found a list, expected a mapping with migStrategy"),
        (
            "flags:\n  failOnInitError: yes",
            'config.yaml:2: flags.failOnInitError: found the text "yes", expected true or false',
        ),
        ("flags:\n  failOnInitError: no", "YAML 1.2 takes no for text"),
        ("flags:\n  failOnInitError: on", "YAML 1.2 takes on for text"),
        ('flags:\n  failOnInitError: "true"', "(remove the quotes)"),
        ("flags:\n  failOnInitError: maybe", 'found the text "maybe", expected true or false'),
        ("flags:\n  failOnInitError: 1", "found the number 1, expected true or false"),
        ("flags:\n  migStrategy: Mixed", "expected one of: none, single, mixed (did you mean mixed?)"),
        ("flags:\n  migStrategy: true", "found the boolean true, expected one of: none, single, mixed"),
        (
            "flags:\n  nvidiaDriverRoot: 1e3",
            'found the number 1e3, expected a path (write "1e3" in quotes to mean text)',
        ),
        ("flags:\n  plugin:\n    deviceListStrategy: 5", "found the number 5, expected one of: envvar"),
        ("flags:\n  plugin:\n    deviceListStrategy: []", "an empty list says nothing"),
        ("flags:\n  plugin:\n    deviceListStrategy: envvar,magic", 'deviceListStrategy[1]: found the text "magic"'),
        (
            "flags:\n  gfd:\n    sleepInterval: soon",
            'found the text "soon", expected a duration such as 60s or infinite',
        ),
        ("imex:\n  channelIDs: [1]", "found the number 1, expected the number 0 (only channel 0"),
        ("imex:\n  channelIDs: 0", "config.yaml:2: imex.channelIDs: found the number 0, expected a list"),
        ("resources:\n  gpus:\n  - name: t4", "config.yaml:3: resources.gpus[0].pattern: found no pattern"),
        ("resources:\n  gpus:\n  - pattern: 7\n    name: t4", "found the number 7, expected a pattern such as"),
        ("devices:\n  include: 3", "found the number 3, expected a list of: GPU index"),
        ("devices:\n  include: []", "an empty list includes no GPU"),
        ("devices:\n  exclude: all", 'devices.exclude: found the text "all", expected a list of'),
        ("sharing:\n  mps: 7", "config.yaml:2: sharing.mps: found the number 7, expected a mapping"),
        # Absent.
        ("", "config.yaml:1: found an empty file, expected at least `version: v1`"),
        ("# all is commented out\n", "config.yaml:1: found an empty file"),
        (
            "sharing:\n  timeSlicing:\n",
            "config.yaml:2: sharing.timeSlicing: found nothing, expected a mapping with renameByDefault",
        ),
        ("sharing:\n  mps: null\n", "most likely lost indentation"),
        (
            "sharing:\n  mps: {}\n",
            "config.yaml:2: sharing.mps.resources: found no resources, expected a list of mappings",
        ),
        ("sharing:\n  mps:\n    resources:\n", "config.yaml:3: sharing.mps.resources: found no resources"),
        ("sharing:\n  mps:\n    resources: []\n", "found an empty list, expected a list of mappings with name"),
        ("sharing:\n  mps:\n    resources:\n    -\n", "sharing.mps.resources[0]: found nothing, expected a mapping"),
        # Wrong parent.
        (
            "flags: {migStrategy: none, renameByDefault: true}\nsharing: {timeSlicing: {resources: []}}",
            "config.yaml:1: flags.renameByDefault: found an unknown key, expected one of: migStrategy, "
            "failOnInitError, mpsRoot, nvidiaDriverRoot, nvidiaDevRoot, gdrcopyEnabled, gdsEnabled, mofedEnabled, "
            "deviceDiscoveryStrategy, useNodeFeatureAPI, plugin, gfd; "
            "did you mean sharing.timeSlicing.renameByDefault?",
        ),
        (
            "flags: {renameByDefault: true}",
            "did you mean sharing.timeSlicing.renameByDefault or sharing.mps.renameByDefault?",
        ),
        ("flags:\n  deviceIDStrategy: uuid", "did you mean flags.plugin.deviceIDStrategy?"),
        ("migStrategy: mixed", "did you mean flags.migStrategy? (lost indentation?)"),
        ("sharing:\nmps:\n  resources: []", "config.yaml:2: mps: found an unknown key"),
        ("sharing:\nmps:\n  resources: []", "did you mean sharing.mps? (lost indentation?)"),
        (
            "sharing:\nmps:\nresources:\n- name: nvidia.com/gpu",
            "config.yaml:3: resources: found a list, expected a mapping with "
            "gpus, mig (did you mean sharing.mps.resources? lost indentation?)",
        ),
        ("sharing:\n  time-slicing: {}", "did you mean timeSlicing?"),
        ("flag:\n  migStrategy: mixed", "config.yaml:1: flag: found an unknown key"),
        ("flag:\n  migStrategy: mixed", "did you mean flags?"),
        ("flags:\n  <<: {migStrategy: mixed}", "merge keys are not read"),
        (
            "zebra: 1",
            "config.yaml:1: zebra: found an unknown key, expected one of: version, flags, devices, resources, sharing",
        ),
        # Twice.
        (
            "flags:\n  migStrategy: none\n  migStrategy: single\n",
            "config.yaml:3: flags.migStrategy: found the key a second time (first in line 2), expected it once",
        ),
        ("zebra:\n  a: 1\n  a: 2\n", "config.yaml:3: zebra.a: found the key a second time"),
        # Syntax.
        ("flags:\n\tmigStrategy: none\n", "config.yaml:2: found a tab in the indentation, expected spaces"),
        ("flags: [unclosed\n", "config.yaml:1: found text that is not YAML"),
        ('{"flags": {"migStrategy": "none"', "config.yaml:1: found text that is not YAML"),
        (b"\x7fELF\x02\x01\x01\x00", "config.yaml:1: found a NUL byte"),
        (b"\x89PNG\r\n", "config.yaml:1: found byte 0x89, expected text in UTF-8"),
        ("a: &a [x]\nb: &b [*a, *a]\nc: [*b, *b]\n", "config.yaml:1: found an anchor (&a)"),
        ("flags: !include other.yaml\n", 'config.yaml:1: found a tag ("!include")'),
        ("[" * 1000, "config.yaml:1: found nesting deeper than 64 levels"),
        ("version: v1\n" + "#" * 2 * 1024 * 1024, "found more than 1048576 bytes (1 MiB)"),
    ],
    ids=map(str, count()),
)
def test_a_bad_file_is_refused_with_its_place_and_the_cure(tmp_path: Path, text: str | bytes, said: str) -> None:
    found = problems(tmp_path, text)
    assert any(said in problem for problem in found), "\n".join(found)
    assert all("\n" not in problem for problem in found)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (
            f"{GPU}\nreplicas: 0",
            f"found the number 0, expected a whole number from 2 to {MAX_REPLICAS} (one replica is not sharing",
        ),
        (f"{GPU}\nreplicas: 1", "found the number 1, expected a whole number from 2"),
        (f"{GPU}\nreplicas: -1", "found the number -1, expected a whole number from 2"),
        (f'{GPU}\nreplicas: "4"', 'found the text "4", expected a whole number from 2 to 69905 (remove the quotes)'),
        (f"{GPU}\nreplicas: 1000000000", "(one list to the kubelet has at most 4 MiB"),
        (
            f"{GPU}\nreplicas: 1e3",
            "found the number 1e3, expected a whole number from 2 to 69905 (write it with digits only)",
        ),
        (f"{GPU}\nreplicas: 4.0", "found the number 4.0, expected a whole number"),
        (f"{GPU}\nreplicas: true", "found the boolean true, expected a whole number"),
        (f"{GPU}\nreplicas: [4]", "replicas: found a list, expected a whole number"),
        (GPU, "sharing.timeSlicing.resources[0].replicas: found no replicas"),
        ("replicas: 2", "sharing.timeSlicing.resources[0].name: found no name, expected a resource name such as"),
        (
            f"{GPU}\nreplica: 2",
            "replica: found an unknown key, expected one of: name, rename, devices, replicas, allocationPolicy; "
            "did you mean replicas?",
        ),
        (f"{GPU}\nreplicas: 2\nmemoryLimit: 8Gi", "did you mean sharing.mps.resources[].memoryLimit?"),
        (
            f"{GPU}\nreplicas: 2\nallocationPolicy: pack",
            "expected one of: distributed, packed, spread (did you mean packed?)",
        ),
        # Text that YAML takes for something else, where text is meant.
        (
            f"{GPU}\nreplicas: 2\nrename: 0x10",
            "found the number 0x10, expected a resource name such as nvidia.com/gpu "
            '(write "0x10" in quotes to mean text)',
        ),
        (f"{GPU}\nreplicas: 2\nrename: 1e3", 'write "1e3" in quotes'),
        (f"{GPU}\nreplicas: 2\nrename: true", "found the boolean true, expected a resource name"),
        # Names.
        (
            "name: a/b/c\nreplicas: 2",
            "expected a name that the kubelet takes (a resource name has exactly one `/`, this one has 2)",
        ),
        ("name: Example.com/x\nreplicas: 2", "the domain must be lower-case"),
        ("name: ex_ample.com/x\nreplicas: 2", "the domain must be lower-case"),
        ("name: kubernetes.io/gpu\nreplicas: 2", "names under kubernetes.io are the kubelet's own"),
        ("name: requests.example.com/x\nreplicas: 2", "must not begin with `requests.`"),
        ("name: nvidia.com/mig-1g.10gb+me\nreplicas: 2", "writes the `+` of a MIG profile as `.`"),
        (f"name: {'x' * 64}\nreplicas: 2", "the part after `/` has 64 characters, at most 63"),
        (
            f"name: {'x' * 60}\nreplicas: 2\ndevices: [0]",
            f"found a name that becomes nvidia.com/{'x' * 60}.shared, expected a shorter one",
        ),
        (f"{GPU}\nreplicas: 2\nrename: -x", "with a letter or digit at both ends"),
        # Devices.
        (f"{GPU}\nreplicas: 2\ndevices: some", 'found the text "some", expected all, rest, a count, an index'),
        (
            f"{GPU}\nreplicas: 2\ndevices: 0",
            "found the number 0, expected a count of devices of at least 1; an index stands in a list: [0]",
        ),
        (f"{GPU}\nreplicas: 2\ndevices: -1", "found the number -1, expected a count"),
        (f'{GPU}\nreplicas: 2\ndevices: "2"', "expected a count without quotes, or a list with an index: [2]"),
        (f"{GPU}\nreplicas: 2\ndevices: []", "an empty list shares nothing"),
        (f"{GPU}\nreplicas: 2\ndevices: {{0: 1}}", "devices: found a mapping, expected all, rest"),
        (
            f"{GPU}\nreplicas: 2\ndevices: [0, 1: 0]",
            "devices[1]: found a mapping, expected an index, a UUID, a PCI address or "
            "model:<pattern> (write 1:0 without a space after the colon)",
        ),
        (f"{GPU}\nreplicas: 2\ndevices: [1.0]", "found the number 1.0, expected an index"),
        (f"{GPU}\nreplicas: 2\ndevices: [1e3]", "a MIG index is written gpu:mig, such as 1:0"),
        (f"{GPU}\nreplicas: 2\ndevices: [-1]", "expected a GPU index from 0 to 1023"),
        (f"{GPU}\nreplicas: 2\ndevices: [2000]", "expected a GPU index from 0 to 1023"),
        (f"{GPU}\nreplicas: 2\ndevices: [no]", 'devices[0]: found the text "no", expected an index'),
        (f"{GPU}\nreplicas: 2\ndevices: [all]", "expected `all` alone, not in a list"),
        (f"{GPU}\nreplicas: 2\ndevices: [GPU-8a56]", "expected a whole UUID as nvidia-smi -L shows it"),
        (f'{GPU}\nreplicas: 2\ndevices: ["model:"]', "expected a pattern after model:"),
        (f"{GPU}\nreplicas: 2\ndevices: [Tesla T4]", "a product name needs the model:"),
        (f"{GPU}\nreplicas: 2\ndevices: [true]", "found the boolean true, expected an index"),
        (f"{GPU}\nreplicas: 2\ndevices: [null]", "found nothing, expected an index"),
    ],
)
def test_a_bad_time_slicing_entry_is_refused(tmp_path: Path, lines: str, said: str) -> None:
    found = problems(tmp_path, entry(lines))
    assert any(said in problem and problem.startswith("config.yaml:") for problem in found), "\n".join(found)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (f"{GPU}\nreplicas: 0", "found the number 0, expected a whole number from 1"),
        (
            f"{GPU}\nreplicas: 2\nmemoryLimit: 8",
            "found the number 8, expected a quantity such as 8Gi or 4096Mi, or a percentage such "
            "as 25% (a number needs a unit)",
        ),
        (f"{GPU}\nreplicas: 2\nmemoryLimit: 8GB", "a number with a unit: Ki, Mi, Gi, Ti, k, M, G or T"),
        (f"{GPU}\nreplicas: 2\nmemoryLimit: 1Ki", "at least 1Mi"),
        (f"{GPU}\nreplicas: 2\nmemoryLimit: 101%", "a whole percentage from 1% to 100%"),
        (f"{GPU}\nreplicas: 2\nmemoryLimit: 2.5%", "a whole percentage from 1% to 100%"),
        (f"{GPU}\nreplicas: 2\nactiveThreadPercentage: 0", "expected a whole number from 1 to 100"),
        (
            f"{GPU}\nreplicas: 2\nactiveThreadPercentage: 20%",
            'found the text "20%", expected a whole number from 1 to 100',
        ),
    ],
)
def test_a_bad_mps_entry_is_refused(tmp_path: Path, lines: str, said: str) -> None:
    found = problems(tmp_path, entry(lines, "mps"))
    assert any(said in problem for problem in found), "\n".join(found)


def test_every_problem_is_said_at_once_in_order_of_line(tmp_path: Path) -> None:
    text = (
        "sharing:\n  timeSlicing:\n    renameByDefault: on\n    resources:\n    - name: a/b/c\n      replicas: '4'\n"
        "      devices: [some, 1.5]\nflags:\n  migStrategy: both\n"
        "  deviceDiscoveryStrategy: wsl\nzebra: 1\n"
    )
    found = problems(tmp_path, text)
    assert [problem.split(": ")[:2] for problem in found] == [
        ["config.yaml:3", "sharing.timeSlicing.renameByDefault"],
        ["config.yaml:5", "sharing.timeSlicing.resources[0].name"],
        ["config.yaml:6", "sharing.timeSlicing.resources[0].replicas"],
        ["config.yaml:7", "sharing.timeSlicing.resources[0].devices[0]"],
        ["config.yaml:7", "sharing.timeSlicing.resources[0].devices[1]"],
        ["config.yaml:9", "flags.migStrategy"],
        ["config.yaml:10", "flags.deviceDiscoveryStrategy"],
        ["config.yaml:11", "zebra"],
    ]


def test_a_report_is_bounded(tmp_path: Path) -> None:
    found = problems(tmp_path, "".join(f"key{number}: 1\n" for number in range(5000)))
    assert len(found) == MAX_FINDINGS + 1
    assert found[-1] == "and 4900 more"


@pytest.mark.parametrize(
    "text",
    [
        entry(f"{GPU}\nreplicas: 2") + f"    - {GPU}\n      replicas: 3\n",
        entry("name: gpu\nreplicas: 2\ndevices: rest") + f"    - {GPU}\n      replicas: 3\n      devices: rest\n",
        entry(f"{GPU}\nreplicas: 2") + f"  mps:\n    resources:\n    - {GPU}\n      replicas: 3\n",
    ],
)
def test_devices_that_two_entries_take_on_every_node_are_refused_before_one_is_seen(tmp_path: Path, text: str) -> None:
    found = problems(tmp_path, text)
    assert len(found) == 1
    assert "of nvidia.com/gpu claimed a second time (first in line 6)" in found[0]


def test_lenient_turns_exactly_unknown_and_repeated_keys_into_warnings(tmp_path: Path) -> None:
    text = "version: v1\nzebra: 1\nflags:\n  migStrategy: none\n  migStrategy: single\n  failOnInitErro: false\n"
    assert len(problems(tmp_path, text)) == 3
    config = load_config(write(tmp_path, text), lenient=True)
    assert config.flags.mig_strategy == "single"
    assert config.flags.fail_on_init_error
    assert [warning.split(": ", 1)[1].split(",")[0] for warning in config.warnings] == [
        "zebra: found an unknown key",
        "flags.migStrategy: found the key a second time (first in line 4)",
        "flags.failOnInitErro: found an unknown key",
    ]
    for still_refused in (
        "flags:\n  migStrategy: both\n",
        "sharing:\n  timeSlicing:\n",
        "flags:\n  deviceDiscoveryStrategy: wsl\n",
        "",
    ):
        assert problems(tmp_path, still_refused, lenient=True)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("flags:\n  deviceDiscoveryStrategy: tegra", "2: flags.deviceDiscoveryStrategy: found tegra"),
        ("flags:\n  deviceDiscoveryStrategy: wsl", "2: flags.deviceDiscoveryStrategy: found wsl"),
    ],
)
def test_what_is_not_offered_yet_is_refused_by_name(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(NotOfferedError) as refused:
        load_config(write(tmp_path, text))
    assert refused.value.problems == tuple(problem for problem in refused.value.problems if said in problem)
    assert "which this version does not offer yet, expected" in refused.value.problems[0]


def test_values_that_switch_nothing_on_are_taken(tmp_path: Path) -> None:
    text = (
        "flags:\n  gdrcopyEnabled: false\n  gdsEnabled: false\n  mofedEnabled: false\n  deviceDiscoveryStrategy: nvml\n"
        "  plugin:\n    passDeviceSpecs: false\n    deviceListStrategy: [envvar]\n    nvidiaCTKPath: /opt/nvidia-ctk\n"
        "    cdiAnnotationPrefix: example.com/\nimex:\n  channelIDs: []\n  required: true\nhealth:\n"
    )
    assert problems(tmp_path, text) == ()


def test_a_missing_file_says_which_directory_exists(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"no such file .the nearest directory that exists is {tmp_path}."):
        load_config(str(tmp_path / "absent" / "config.yaml"))


def test_a_directory_a_fifo_and_a_closed_file_are_refused_without_waiting(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="found a directory, expected a file"):
        load_config(str(tmp_path))
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(ConfigError, match="not a regular file"):
        load_config(str(tmp_path / "fifo"))
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(ConfigError, match="can't be read"):
        load_config(str(tmp_path / "loop"))
    with pytest.raises(ConfigError, match="NUL character in the path"):
        load_config("a\0b")


def test_a_line_break_in_the_files_name_makes_no_second_line() -> None:
    with pytest.raises(ConfigError) as refused:
        parse_config(b"zebra: 1", "a\nb.yaml")
    assert refused.value.problems[0].startswith("a b.yaml:1: zebra: ")


@pytest.mark.parametrize(
    "devices", ["[2]", "[GPU-00000002-0000-4000-8000-000000000000]", "['0000:3b:00.0']", "['1:0']"]
)
def test_the_same_device_named_in_two_entries_needs_no_node_to_be_found(devices: str, tmp_path: Path) -> None:
    text = (
        "version: v1\nsharing:\n  timeSlicing:\n    resources:\n"
        f"    - {{name: nvidia.com/gpu, replicas: 2, devices: {devices}}}\n"
        f"    - {{name: nvidia.com/gpu, replicas: 3, devices: {devices}, rename: nvidia.com/x}}\n"
    )
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(ConfigError, match="claimed a second time \\(first in line 5\\)"):
        load_config(str(tmp_path / "config.yaml"))


def test_one_misspelt_key_is_one_error(tmp_path: Path) -> None:
    """What it would have set is not missing too."""
    (found,) = problems(tmp_path, entry(f"{GPU}\nreplica: 2"))
    assert "did you mean replicas?" in found
    ignored = problems(tmp_path, entry(f"{GPU}\nreplica: 2"), lenient=True)
    assert any("found no replicas" in one for one in ignored), "an ignored key sets nothing"


def test_a_misspelt_section_hides_none_of_the_mistakes_in_it(tmp_path: Path) -> None:
    text = "sharng:\n  timeSlcing:\n    resources:\n    - name: nvidia.com/gpu\n      replcas: '4'\n    zebra: 1\n"
    assert [problem.split(", expected")[0].split(": ", 1)[1] for problem in problems(tmp_path, text)] == [
        "sharng: found an unknown key",
        "sharng.timeSlcing: found an unknown key",
        "sharng.timeSlcing.resources[0].replcas: found an unknown key",
        'sharng.timeSlcing.resources[0].replcas: found the text "4"',
        "sharng.timeSlcing.zebra: found an unknown key",
    ]
    ignored = load_config(write(tmp_path, text), lenient=True)
    assert (ignored.time_slicing, len(ignored.warnings)) == (None, 1)


@pytest.mark.parametrize(
    "text", ["timeSlicing:\n  resources:\n  - {}\n", "sharing:\n  timeSlicing:\n  resources:\n  - {}\n"]
)
def test_a_misplaced_section_hides_none_of_the_mistakes_in_it(tmp_path: Path, text: str) -> None:
    found = problems(tmp_path, text.format("{name: nvidia.com/gpu, replicas: '4'}"))
    assert any("did you mean sharing.timeSlicing" in problem for problem in found)
    assert 'resources[0].replicas: found the text "4", expected a whole number from 2' in found[-1]


def test_what_a_misspelt_section_says_clashes_as_if_it_were_right(tmp_path: Path) -> None:
    text = entry(f"{GPU}\nreplicas: 2") + f"  mpps:\n    resources:\n    - {GPU}\n      replicas: 3\n"
    assert [problem.split(", expected")[0] for problem in problems(tmp_path, text)] == [
        "config.yaml:8: sharing.mpps: found an unknown key",
        "config.yaml:10: sharing.mpps.resources[0]: found all of nvidia.com/gpu claimed a second time (first in "
        "line 6)",
    ]


@pytest.mark.parametrize("lenient", [False, True])
def test_a_manifest_is_not_the_config_in_it(tmp_path: Path, lenient: bool) -> None:
    text = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: sharing\ndata:\n  a100: |\n    version: v1\n  t4: ''\n"
    assert problems(tmp_path, text, lenient=lenient) == (
        'config.yaml:1: found a Kubernetes manifest (kind "ConfigMap"), expected the config itself: give a file that '
        "holds one of the texts under its `data` (a100, t4)",
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        # As `helm template` and the static manifests have it: of several objects the one that carries data.
        (
            "---\napiVersion: v1\nkind: ServiceAccount\n---\n# The file.\napiVersion: v1\nkind: ConfigMap\n"
            "data: {config.yaml: ''}\n---\napiVersion: apps/v1\nkind: DaemonSet\n",
            'config.yaml:6: found a Kubernetes manifest (kind "ConfigMap"), expected the config itself: give a file '
            "that holds one of the texts under its `data` (config.yaml)",
        ),
        (
            "apiVersion: apps/v1\nkind: DaemonSet\n---\napiVersion: v1\nkind: Service\n",
            'config.yaml:1: found a Kubernetes manifest (kind "DaemonSet"), expected the config itself: give a file '
            "that holds a text under a ConfigMap's `data`",
        ),
        ("version: v1\n---\nversion: v1\n", "config.yaml:2: found a second document (`---`), expected one document"),
    ],
)
def test_of_several_documents_none_is_the_config(tmp_path: Path, text: str, said: str) -> None:
    assert problems(tmp_path, text) == (said,)
