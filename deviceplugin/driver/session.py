"""One open NVML for two threads: the one that takes snapshots, and the one that waits for events.

NVML lists GPUs as they were at the nvmlInit that really opened it, one that only counts up changes nothing. So the
waiter can't keep a reference of its own: the snapshots could never open NVML afresh. And an event set dies with
nvmlShutdown, under the feet of whoever waits on it. So the waiter borrows the session, and gives it back when asked.
"""

import threading

from deviceplugin.driver.library import NvmlLibrary
from deviceplugin.errors import DriverError

# The waiter looks whether the session is wanted back this often; being asked costs at most twice that.
SLICE_S = 0.5
GIVE_BACK_S = 2.0


class NvmlSession:
    """Open or shut. Opened and shut by one thread, borrowed by at most one other.

    Args:
        library: what is opened.
    """

    def __init__(self, library: NvmlLibrary) -> None:
        self._library = library
        self._changed = threading.Condition()  # never held during a call of NVML
        self._open = False
        self._lent = False

    def ensure_ready(self) -> None:
        """Open NVML unless it is open. Raises DriverError as NvmlLibrary does; the next call tries again."""
        self._library.ensure_ready()
        with self._changed:
            self._open = True
            self._changed.notify_all()

    def shut_down(self) -> None:
        """Shut NVML, so that ensure_ready opens it afresh. Waits for the borrower, at most GIVE_BACK_S.

        Raises:
            DriverError: the borrower hangs in a call; NVML stays open, and is not lent again.
        """
        with self._changed:
            self._open = False
            self._changed.notify_all()
            if not self._changed.wait_for(lambda: not self._lent, GIVE_BACK_S):
                raise DriverError(
                    f"the wait for events has not come back from the driver for {GIVE_BACK_S:.0f} s: NVML can't be "
                    "closed while a call hangs in it"
                )
        self._library.shut_down()

    def borrow(self, timeout_s: float) -> bool:
        """Take the session, once it is open. False: it was not opened in time. Then `give_back` soon when `wanted`."""
        with self._changed:
            self._lent = self._changed.wait_for(lambda: self._open, timeout_s)
            return self._lent

    @property
    def wanted(self) -> bool:
        """Whether the borrower is to give it back."""
        return not self._open

    def give_back(self) -> None:
        """The borrower makes no more calls."""
        with self._changed:
            self._lent = False
            self._changed.notify_all()
