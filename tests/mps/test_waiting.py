"""Who waits for an MPS server, by control.log; lines as they stand in public reports (tests/mps_standin/program.py)."""

import os
import subprocess

import pytest

from deviceplugin.mps.waiting import MOST, WaitingClients

HERE = os.getpid()


def new(pid: int, uid: int, state: str = "Server is not ready, push client to pending list") -> str:
    return f"[2026-05-31 23:48:25.153 Control 11107] NEW CLIENT {pid} from user {uid}: {state}"


def starting(server: int, uid: int) -> str:
    return f"[2026-05-31 23:48:21.671 Control {server}] Starting new server {server} for user {uid}"


def ready(server: int) -> str:
    return f"[2026-05-31 23:48:21.748 Control 11107] NEW SERVER {server}: Ready"


def waiting(*lines: str, multiuser: bool = False, for_s: float = 3) -> list[tuple[int, int]]:
    clients = WaitingClients()
    clients.heard(lines, 100, multiuser=multiuser)
    return [(one.pid, one.uid) for one in clients.longer_than(3, 100 + for_s)]


def test_a_client_of_another_user_waits_until_its_own_server_is_ready() -> None:
    first = (new(0, 1000), starting(17, 1000), ready(17))
    assert waiting(*first) == []
    assert waiting(*first, new(HERE, 0)) == [(HERE, 0)]
    assert waiting(*first, new(HERE, 0), for_s=2.9) == []
    assert waiting(*first, new(HERE, 0), new(0, 1000, "Server already exists")) == [(HERE, 0)]
    assert waiting(*first, new(HERE, 0), new(0, 2000), starting(18, 0), ready(18)) == [(0, 2000)]


def test_a_multiuser_server_lets_every_user_through() -> None:
    assert waiting(new(HERE, 1000), starting(17, 0), ready(17), multiuser=True) == []
    assert waiting(new(HERE, 1000), starting(17, 0), multiuser=True) == [(HERE, 1000)]


def test_a_server_whose_start_was_not_heard_of_lets_everyone_through() -> None:
    assert waiting(new(HERE, 0), ready(17)) == []


def test_nobody_waits_for_a_daemon_that_has_begun_again() -> None:
    assert waiting(new(HERE, 0), "[2026 Control 1] Starting control daemon using socket /x/control") == []


def test_a_process_that_has_ended_waits_no_longer() -> None:
    child = subprocess.Popen(["true"])
    child.wait()
    assert waiting(new(child.pid, 0), new(HERE, 0)) == [(HERE, 0)]


def test_only_so_many_are_remembered() -> None:
    assert len(waiting(*(new(0, uid) for uid in range(3 * MOST)))) == MOST


@pytest.mark.parametrize("line", ["", "NEW CLIENT", new(99999999999999999999, 0), "NEW SERVER x: Ready", "\x00" * 50])
def test_other_lines_say_nothing(line: str) -> None:
    assert waiting(line) == []
