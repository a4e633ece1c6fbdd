"""Which of the host's device files a container can vouch for, in every layout of driver root and dev root."""

from dataclasses import replace
from typing import Any

import pytest

from deviceplugin.config.model import Flags
from deviceplugin.model.node import DriverFile, Snapshot
from deviceplugin.planning.devroot import HostDevices, host_devices
from tests.planning.nodes import plain

OWN, ROOTS = frozenset({"nvidiactl", "nvidia0"}), frozenset({"nvidiactl", "nvidia7"})
LIBRARY = DriverFile("/usr/lib64/libcuda.so.570.133.20")
BARE = replace(plain(1), device_files=OWN)
"""No driver root is mounted."""
LIBRARIES = replace(BARE, driver_files=(LIBRARY,))
"""One is mounted, a directory of files alone."""
WHOLE = replace(LIBRARIES, driver_root_device_files=ROOTS)
"""One is mounted, with device files."""


def seen(snapshot: Snapshot, driver_root: str = "/", dev_root: str | None = None) -> HostDevices:
    flags: dict[str, Any] = {"nvidia_driver_root": driver_root, "nvidia_dev_root": dev_root}
    return host_devices(snapshot, Flags(**flags))


@pytest.mark.parametrize(
    ("snapshot", "driver_root", "dev_root", "expected"),
    [
        (BARE, "/", None, HostDevices("", OWN)),
        (BARE, "/run/driver", "/", HostDevices("", OWN)),
        (LIBRARIES, "/", None, HostDevices("", OWN)),
        (WHOLE, "/", None, HostDevices("", ROOTS)),
        (WHOLE, "/", "/", HostDevices("", ROOTS)),
        (WHOLE, "/run/driver", None, HostDevices("/run/driver", ROOTS)),
        (WHOLE, "/run/driver/", "/run/driver", HostDevices("/run/driver", ROOTS)),
        (WHOLE, "/run/driver", "/", HostDevices("", OWN)),
        (LIBRARIES, "/opt/driver", None, HostDevices("", OWN)),
        (LIBRARIES, "/opt/driver", "/opt/driver/", HostDevices("", OWN)),
        (LIBRARIES, "/opt/driver", "/", HostDevices("", OWN)),
    ],
)
def test_files_are_looked_for_where_the_host_has_them(
    snapshot: Snapshot, driver_root: str, dev_root: str | None, expected: HostDevices
) -> None:
    assert seen(snapshot, driver_root, dev_root) == expected


@pytest.mark.parametrize(
    ("snapshot", "driver_root", "dev_root", "words"),
    [
        (BARE, "/run/driver", None, "of nvidiaDriverRoot, /run/driver, nothing is seen below /driver-root"),
        (BARE, "/run/driver", "/run/driver", "set nvidiaDevRoot to /"),
        (WHOLE, "/", "/elsewhere/", "of nvidiaDevRoot, /elsewhere, nothing is seen in this container: set it to /"),
    ],
)
def test_a_place_that_is_not_seen_is_a_reason_that_names_what_to_set(
    snapshot: Snapshot, driver_root: str, dev_root: str | None, words: str
) -> None:
    found = seen(snapshot, driver_root, dev_root)
    assert words in found.unseen
    assert (found.root, found.names) == ((dev_root or driver_root).rstrip("/"), OWN)
