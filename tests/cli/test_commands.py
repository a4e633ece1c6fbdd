"""The commands as a shell runs them: exit statuses, where output goes, and that no mistake ends in a traceback."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from deviceplugin import __version__
from deviceplugin.cli.main import COMMANDS
from tests.serving.harness import Node, t4s

PROGRAM = [sys.executable, "-m", "deviceplugin.cli.main"]
NODE = Path(__file__).parents[2] / "config/nodes/mixed-sample.yaml"
PLAN = ["plan", f"--driver=simulated:{NODE}"]

GOOD, BAD = "version: v1\n", "version: v1\nflags:\n  renameByDefault: true\n"
SHARED = "version: v1\nsharing:\n  timeSlicing:\n    resources:\n    - name: nvidia.com/gpu\n      replicas: {}\n"


def run(*words: str, given: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """One command, with nothing of this process's environment but where to find things; `given` is its input."""
    done = subprocess.run(
        [*PROGRAM, *words],
        env={"PATH": os.environ["PATH"], **environment},
        input=given,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert "Traceback" not in done.stderr
    return done


def written(directory: Path, text: str) -> str:
    path = directory / "config.yaml"
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize("words", [["--help"], ["-h"], ["help"]])
def test_help_names_every_command(words: list[str]) -> None:
    done = run(*words)
    assert done.returncode == 0
    assert all(f"  {name} " in done.stdout for name in COMMANDS)


@pytest.mark.parametrize("command", [name for name in COMMANDS if name != "version"])
def test_every_command_has_its_help(command: str) -> None:
    done = run(command, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"usage: gpu-device-plugin {command} ")


def test_serve_and_the_supervisor_say_what_each_does() -> None:
    serve, mps = (" ".join(run(command, "--help").stdout.split()) for command in ("serve", "mps"))
    assert "Serves this node's GPUs to the kubelet." in serve
    assert "Runs and watches the MPS control daemons" in mps
    assert "Serves this node's GPUs" not in mps


def test_version() -> None:
    assert run("version").stdout == run("--version").stdout == f"gpu-device-plugin {__version__}\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], ""),
        (["serv"], "unknown command 'serv'; did you mean serve?"),
        (["nonsense"], "unknown command 'nonsense'; one of: serve, mps, simulate, validate, plan, migrate, status"),
        (["serve", "--nope"], "gpu-device-plugin serve: --nope: found an unknown flag"),
        (["serve", "--kubelet-socket="], '--kubelet-socket: found "", expected a path'),
        (["validate"], "required: file"),
        (["validate", "a", "b"], "unrecognized arguments: b"),
        (["plan", "--output=xml"], "invalid choice: 'xml'"),
        (["plan", "--mig-strategy=both"], "expected one of: none, single, mixed"),
        (["status", "--ready", "--live"], "not allowed with argument"),
        (["simulate", "--node=/none"], "/none: no such file"),
    ],
)
def test_wrong_usage_is_status_2(words: list[str], said: str) -> None:
    done = run(*words)
    assert done.returncode == 2
    assert said in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["validate", "/none/config.yaml"], "/none/config.yaml: found no such file"),
        (["validate", "/"], "found a directory"),
        (["plan", "--driver=simulated:/none"], "the node description /none cannot be read"),
        (["plan", "--driver=simulated:/"], "the node description / cannot be read"),
        ([*PLAN, "/none/config.yaml"], "/none/config.yaml: found no such file"),
        (["status", "--status-socket=/none/status.sock"], "no running plugin answers on /none/status.sock"),
        (["status", "--status-socket=/" + "x" * 200], "no running plugin answers on"),
        (["status", "--ready", "--status-socket=/"], "no running plugin answers on /"),
        (["serve", "--driver=simulated:/none", "--kubelet-socket=/none/kubelet.sock"], "cannot be read"),
    ],
)
def test_what_cannot_be_done_is_status_1(words: list[str], said: str) -> None:
    done = run(*words)
    assert done.returncode == 1
    assert said in done.stderr


def test_a_wrong_variable_is_status_1_and_an_empty_one_counts_as_unset() -> None:
    wrong = run(*PLAN, MIG_STRATEGY="both")
    assert wrong.returncode == 1
    assert 'environment variable MIG_STRATEGY: found "both"' in wrong.stderr
    empty = run(*PLAN, MIG_STRATEGY="", CONFIG_FILE="", LOG_LEVEL="", STATUS_SOCKET="", FAIL_ON_INIT_ERROR="")
    assert (empty.returncode, empty.stderr) == (0, "")


def test_validate_says_every_error_and_where(tmp_path: Path) -> None:
    good = run("validate", written(tmp_path, GOOD))
    assert (good.returncode, good.stderr) == (0, "")
    path = written(tmp_path, BAD + "version: v2\n")
    bad = run("validate", path)
    assert bad.returncode == 1
    assert f"{path}:3: flags.renameByDefault: found an unknown key" in bad.stderr
    assert "refused, 3 errors" in bad.stderr


def test_validate_judges_as_serve_would(tmp_path: Path) -> None:
    path = written(tmp_path, BAD)
    assert run("validate", "--config-strictness=lenient", path).returncode == 0
    assert run("validate", path, CONFIG_STRICTNESS="lenient").returncode == 0
    assert run("validate", "--config-strictness=strict", path, CONFIG_STRICTNESS="lenient").returncode == 1
    wrong = run("validate", path, CONFIG_STRICTNESS="lax")
    assert wrong.returncode == 1
    assert 'CONFIG_STRICTNESS: found "lax", expected one of: strict, lenient' in wrong.stderr


def test_validate_warns_of_what_only_the_node_can_know(tmp_path: Path) -> None:
    path = written(tmp_path, "sharing:\n  mps:\n    resources:\n    - {name: nvidia.com/gpu, replicas: 4}\n")
    alone = run("validate", path)
    assert (alone.returncode, alone.stderr) == (0, "")
    assert alone.stdout.startswith(f"warning: {path}:2: sharing.mps: found no flags.mpsRoot in the file, expected ")
    for known in (run("validate", path, MPS_ROOT="/run/nvidia/mps"), run("validate", "config/mps.yaml")):
        assert "warning" not in known.stdout


def test_validate_and_plan_read_standard_input(tmp_path: Path) -> None:
    """`kubectl get configmap ... -o jsonpath=... | gpu-device-plugin validate -`."""
    assert run("validate", "-", given=GOOD).stdout == "-: good\n"
    bad = run("validate", "-", given=BAD)
    assert (bad.returncode, "standard input:3: flags.renameByDefault" in bad.stderr) == (1, True)
    assert "found an empty file" in run("validate", "-").stderr
    planned = run(*PLAN, f"--status-socket={tmp_path}/none", "-", given=SHARED.format(3))
    assert (planned.returncode, "3 replicas" in planned.stdout) == (0, True)


def test_plan_compares_with_the_running_plugin(driver: str) -> None:
    """0: no difference, 3: differences, 1: errors; the text and the document agree."""
    with Node(t4s(2), SHARED.format(2), driver=driver).run() as node:
        node.wait_ready()
        same = node.command("plan", *node.flags())
        assert same.returncode == 0
        assert "the running plugin has exactly this in force" in same.stdout
        other = node.root / "other.yaml"
        other.write_text(SHARED.format(3))
        differs = node.command("plan", *node.flags(), str(other))
        assert differs.returncode == 3
        assert "~ nvidia.com/gpu: devices 4 -> 6" in differs.stdout
        document = json.loads(node.command("plan", *node.flags(), str(other), "--output=json").stdout)
        assert document["running"] is True
        assert "~ nvidia.com/gpu: devices 4 -> 6" in document["changes"]
        other.write_text(BAD)
        refused = node.command("plan", *node.flags(), str(other))
        assert (refused.returncode, refused.stdout) == (1, "")
        assert "flags.renameByDefault" in refused.stderr
        assert node.listed() == node.listed()


def test_plan_without_a_running_plugin(tmp_path: Path) -> None:
    done = run(*PLAN, f"--status-socket={tmp_path}/none")
    assert done.returncode == 0
    assert "no running plugin answers here" in done.stdout
    document = json.loads(run(*PLAN, "--output", "json", f"--status-socket={tmp_path}/none").stdout)
    assert (document["running"], document["changes"]) == (False, [])


def test_status_of_a_running_plugin() -> None:
    with Node(t4s(1), GOOD).run() as node:
        node.wait_ready()
        where = f"--status-socket={node.status_socket}"
        assert json.loads(node.command("status", where, "--output=json").stdout)["version"] == 1
        assert "nvidia.com/gpu: exclusive, 1 of 1 healthy, 0 held, registered" in node.command("status", where).stdout
        assert [node.command("status", where, probe).stdout for probe in ("--ready", "--live")] == ["ok\n", "ok\n"]
        node.write_config(BAD)
        refused = node.wait_status(lambda document: document["config"]["refused"])
        assert refused["ready"]["ok"], "a bad edit harms nobody"
        assert "config REFUSED" in node.command("status", where).stdout
        node.kubelet.stop()
        node.wait_status(lambda document: not document["ready"]["ok"])
        ready, live = (node.command("status", where, probe) for probe in ("--ready", "--live"))
        assert (ready.returncode, live.returncode) == (1, 0)
        assert "not registered with the kubelet" in ready.stderr
        assert "nvidia.com/gpu" in ready.stderr


def test_every_line_of_a_json_log_is_an_object() -> None:
    with Node(t4s(1), GOOD, args=["--log-format=json", "--log-level=debug"]).run() as node:
        node.wait_ready()
        node.write_config(BAD)  # a message of several lines
        node.wait_log("renameByDefault")
        node.stop()
        lines = [json.loads(line) for line in node.log_lines]
    assert {"debug", "info", "error"} <= {line["level"] for line in lines}
    assert all(line.keys() >= {"time", "level", "logger", "thread", "message"} for line in lines)
    assert any("\n" in line["message"] for line in lines)


def test_the_log_level_is_the_least_severe_that_shows() -> None:
    with Node(t4s(1), GOOD, args=["--log-level=error"]).run() as node:
        node.wait_ready()
        node.write_config(BAD)
        node.wait_log("renameByDefault")
        node.stop()
        assert all(" ERROR " in line for line in node.log_lines if line.startswith("20")), node.log


def outcome(words: list[str], stdout: int | None, unbuffered: str) -> tuple[int, str]:
    """Exit status and standard error of a command whose standard output is that descriptor; None: it has none."""
    done = subprocess.run(
        [*PROGRAM, *words] if stdout is not None else ["bash", "-c", 'exec "$@" >&-', "bash", *PROGRAM, *words],
        env={"PATH": os.environ["PATH"], "PYTHONUNBUFFERED": unbuffered},
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        timeout=30,
        check=False,
    )
    return done.returncode, done.stderr


EVERY_WAY_TO_PRINT = pytest.mark.parametrize("words", [["--help"], ["version"], ["serve", "--help"], PLAN])
BUFFERED_OR_NOT = pytest.mark.parametrize("unbuffered", ["", "1"])


@BUFFERED_OR_NOT
@EVERY_WAY_TO_PRINT
def test_output_whose_reader_has_gone(words: list[str], unbuffered: str) -> None:
    """As in `... | head`: no message, whether the write or the flush at the end meets it."""
    reader, writer = os.pipe()
    os.close(reader)
    assert outcome(words, writer, unbuffered) == (1, "")
    os.close(writer)


@BUFFERED_OR_NOT
@EVERY_WAY_TO_PRINT
def test_output_that_does_not_fit(words: list[str], unbuffered: str) -> None:
    with open("/dev/full", "wb") as full:
        status, said = outcome(words, full.fileno(), unbuffered)
    assert status == 1
    assert said.endswith(": [Errno 28] No space left on device\n")
    assert said.count("\n") == 1


@pytest.mark.parametrize("words", [["validate", "--help"], ["simulate", "--help"]])
def test_a_help_of_argparse_that_nobody_can_read_is_no_traceback(words: list[str]) -> None:
    with open("/dev/full", "wb") as full:
        _, said = outcome(words, full.fileno(), "")
    assert said.count("\n") <= 1


@EVERY_WAY_TO_PRINT
def test_no_output_at_all(words: list[str]) -> None:
    assert outcome(words, None, "") == (0, "")


def test_serve_needs_no_output() -> None:
    with Node(t4s(1)) as node:
        node.kubelet.start()
        command = [*PROGRAM, "serve", *node.flags()]
        process = subprocess.Popen(["bash", "-c", 'exec "$@" >&- 2>&- <&-', "bash", *command], env=node.environ())
        node.wait_listed("nvidia.com/gpu")
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0


def test_ctrl_c_is_no_traceback(tmp_path: Path) -> None:
    """In the middle of a command: `plan` waits here for somebody to write its node description."""
    os.mkfifo(tmp_path / "node")
    # A shell has its background jobs ignore it, and what they start inherits that.
    words = ["env", "--default-signal=INT", *PROGRAM, "plan", f"--driver=simulated:{tmp_path}/node"]
    plan = subprocess.Popen(words, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
    with plan, open(tmp_path / "node", "wb"):  # opens once it reads
        for _ in range(20):
            # Python loses one that comes between its last look for signals and the read; people press it again.
            plan.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                plan.wait(0.5)
                break
        else:
            plan.kill()
        assert plan.stderr is not None
        said = plan.stderr.read()
    assert (plan.returncode, said) == (130, b"")


def test_plan_says_what_serve_would_not_start_with() -> None:
    """The same verdict before and after: exit status 1, each reason once."""
    node = Path(__file__).parents[2] / "config/nodes/a100-mig.yaml"
    done = run("plan", f"--driver=simulated:{node}", "--mig-strategy=single")
    assert done.returncode == 1
    assert done.stdout.startswith("`serve` would not start with this, since failOnInitError is true:\n")
    assert done.stdout.count("set migStrategy to mixed:") == 1
    waits = run("plan", f"--driver=simulated:{node}", "--mig-strategy=single", "--fail-on-init-error=false")
    assert waits.returncode == 0
    assert "MIG layouts that the strategy can't offer:" in waits.stdout


def test_plan_names_the_gpus_that_would_change_hands_in_one_line_each() -> None:
    with Node(t4s(4), SHARED.format(2), driver="simulated").run() as node:
        node.wait_ready()
        other = node.root / "other.yaml"
        other.write_text(SHARED.format(2) + "      devices: [2, 3]\n")
        done = node.command("plan", str(other), *[flag for flag in node.flags() if "config-file" not in flag])
        assert done.returncode == 3
        gains = [line for line in done.stdout.splitlines() if "gives up" in line]
        assert len(gains) == 1
        assert "GPU 2" in gains[0]
        assert "GPU 3" in gains[0]


@pytest.mark.parametrize(
    ("function", "word"), [("config_manager", "config-manager"), ("gpu_feature_discovery", "gpu-feature-discovery")]
)
def test_what_nvidias_image_has_and_ours_does_not_says_so(function: str, word: str) -> None:
    """drop-in.md 5c: a clear message instead of `not found`."""
    code = f"import sys; from deviceplugin.cli.main import {function}; sys.exit({function}())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith(f"{word}: not part of this plugin")
