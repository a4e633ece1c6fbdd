"""Named threads whose death is never silent (design 3: its death ends the process with a message)."""

import threading
from collections.abc import Callable

OnDeath = Callable[[str, BaseException], None]


def spawn(name: str, target: Callable[[], None], on_death: OnDeath) -> threading.Thread:
    """Start a daemon thread.

    A daemon thread, since one that is stuck in the driver can't be joined and must not keep the process (design 8,
    NVML).

    Args:
        name: shown in logs and in `py-spy`.
        target: its body; returning is an orderly end.
        on_death: called with the thread's name and the exception that escaped.
    """

    def body() -> None:
        try:
            target()
        except BaseException as error:  # noqa: BLE001 - whatever ends a thread, the process must hear of it
            on_death(name, error)

    thread = threading.Thread(target=body, name=name, daemon=True)
    thread.start()
    return thread
