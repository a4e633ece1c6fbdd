"""How often the kubelet is looked for, and what one look sees."""

import os
import socket
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

from deviceplugin.kubelet.lookout import RETRIES_S, Sighting, look_after_s, retry_after_s


def test_looks_are_frequent_at_first_and_never_rare() -> None:
    assert look_after_s(0.0) <= 0.02
    assert look_after_s(1e9) == 1.0
    pauses = [look_after_s(float(second)) for second in range(1000)]
    assert all(earlier <= later for earlier, later in pairwise(pauses))


def test_retries_back_off_to_a_cap() -> None:
    pauses = [retry_after_s(failures) for failures in range(1, 100)]
    assert all(earlier <= later for earlier, later in pairwise(pauses))
    assert (pauses[0], pauses[-1]) == (RETRIES_S[0], RETRIES_S[-1])


def test_a_look_tells_absent_dead_and_alive_apart(root: Path) -> None:
    path = root / "kubelet.sock"
    absent = Sighting(path)
    assert (absent.identity, absent.alive) == (None, False)
    assert absent.awaited.endswith("there is none")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.fspath(path))
        dead = Sighting(path)
        assert (dead.identity is not None, dead.alive) == (True, False)
        assert dead.awaited.endswith("refuses connections")
        server.listen()
        assert Sighting(path).alive
        assert Sighting(path).identity == dead.identity


def test_a_relabel_is_no_new_socket_but_a_new_one_with_the_old_inode_number_is(root: Path) -> None:
    path = root / "kubelet.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.fspath(path))
        first = Sighting(path).identity
        path.chmod(0o600)
        assert Sighting(path).identity == first
        os.utime(path, ns=(0, os.stat(path).st_mtime_ns + 1))  # what a later bind would leave
        assert Sighting(path).identity != first


def test_a_look_without_a_descriptor_left_tells_nothing_and_raises_nothing(root: Path) -> None:
    """What can't be told counts as alive: registering then fails, and is tried again with a pause."""
    path = root / "kubelet.sock"
    look = f"""
import resource
from pathlib import Path
from deviceplugin.kubelet.lookout import Sighting
resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
print(Sighting(Path({os.fspath(path)!r})).alive)
"""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.fspath(path))
        server.listen()
        said = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=False)
    assert (said.stdout, said.stderr) == ("True\n", "")
