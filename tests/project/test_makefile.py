"""`make` in a fresh checkout, by two people, or two windows, at once."""

import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
# A python3 whose virtual environments only write down what is done with them. The first one asked for takes until
# somebody opens the fifo.
PYTHON = """\
#!/bin/sh
case "$*" in
"-m venv --clear "*)
    echo "begin venv" >>done
    cat fifo
    mkdir -p "$4/bin" && cp recorder "$4/bin/python" && cp recorder "$4/bin/gpu-device-plugin"
    echo "end venv" >>done
    ;;
*) exec python3 "$@" ;;
esac
"""
RECORDER = """\
#!/bin/sh
echo "${0##*/} $*" | cut -d " " -f 1-3 >>done
"""


def test_two_at_once_install_once_and_both_run(tmp_path: Path) -> None:
    (tmp_path / "tests" / "project").mkdir(parents=True)
    for name in ("Makefile", "pyproject.toml", "requirements-dev.lock", "tests/project/flock.py"):
        shutil.copy(ROOT / name, tmp_path / name)
    for name, text in (("python", PYTHON), ("recorder", RECORDER)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    os.mkfifo(tmp_path / "fifo")
    make = ["make", "PYTHON=./python", "run"]
    environ = {"PATH": os.environ["PATH"]}
    with subprocess.Popen(make, cwd=tmp_path, env=environ, stdout=subprocess.DEVNULL) as first:
        with open(tmp_path / "fifo", "w"):  # there is a reader now: the first one is in the middle of it
            second = subprocess.Popen(make, cwd=tmp_path, env=environ, stdout=subprocess.PIPE, text=True)
            assert second.stdout is not None
            assert "waiting for another process" in second.stdout.readline()
        assert "up to date" in second.communicate(timeout=30)[0]
        assert (first.wait(30), second.returncode) == (0, 0)
    assert (tmp_path / "done").read_text().splitlines() == [
        "begin venv",
        "end venv",
        "python -m pip",
        "python -m pip",
        "python -m compileall",
        "gpu-device-plugin simulate",
        "gpu-device-plugin simulate",
    ]
