"""What becomes of an operator's requests about the driver, in words."""

from typing import Protocol

from deviceplugin.observe.control_socket import Answer

# A look at the driver takes milliseconds, the wait for events gives it back within a second.
PATIENCE_S = 5.0


class Releasable(Protocol):
    """The one who has the driver (deviceplugin.app.driver_feed)."""

    def release(self, for_s: float, patience_s: float) -> bool:
        """Let it go; False: a call hangs in it, it will be let go of after that."""

    def take_up(self, *, was_reset: bool) -> bool:
        """Use it again; False: it was in use."""


def release(driver: Releasable, for_s: float) -> Answer:
    """Let the driver go for so many seconds."""
    if driver.release(for_s, PATIENCE_S):
        return Answer(
            True,
            f"the driver is released: every device is Unhealthy, no handle is open. It is taken up again in "
            f"{for_s:.0f} s, or by `gpu-device-plugin release --end`",
        )
    return Answer(
        False,
        f"a call of the driver has not come back for {PATIENCE_S:.0f} s: the driver is let go of when it does (the log "
        "says so). If it never does, only the end of the process frees the driver",
    )


def take_up(driver: Releasable, was_reset: bool) -> Answer:
    """Use the driver again."""
    if not driver.take_up(was_reset=was_reset):
        return Answer(False, "the driver is not released: there is nothing to end")
    return Answer(True, "the driver is taken up again" + (", every GPU counts as reset" if was_reset else ""))
