"""What /proc says of processes that have no reason to make it easy."""

import os
import subprocess
import sys
import time
from pathlib import Path

from deviceplugin.mps.proc import program, running, started_at, variable, when

NAMELESS = "open('/proc/self/comm', 'wb').write(b'\\xff) R 1'); print(flush=True); input()"


def test_a_process_is_told_from_others_whatever_it_calls_itself() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", NAMELESS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={"TOKEN": "a=b"}
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert Path(f"/proc/{child.pid}/comm").read_bytes() == b"\xff) R 1\n"
        assert 0 < started_at(child.pid) >= started_at(os.getpid())
        assert abs(when(started_at(child.pid)) - time.time()) < 10
        assert program(child.pid) == os.path.basename(sys.executable)
        assert child.pid in running(program(child.pid))
        assert (variable(child.pid, "TOKEN"), variable(child.pid, "OTHER")) == ("a=b", "")
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert started_at(child.pid) == 0, "its remains count as none"
    assert (started_at(child.pid), program(child.pid), variable(child.pid, "TOKEN")) == (0, "", "")
