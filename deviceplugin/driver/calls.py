"""Calling NVML so that "not supported" is a value and the first failure of a GPU is kept, not raised."""

from collections.abc import Callable
from typing import TypeVar

import pynvml

from deviceplugin.model.node import Failure

Answer = TypeVar("Answer")

NOT_SUPPORTED = frozenset({pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND})
"""This product, or this driver, does not have it. An older driver lacks the function altogether."""

WHOLE_LIBRARY = frozenset(
    {
        pynvml.NVML_ERROR_UNINITIALIZED,
        pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
        pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
    }
)
"""Answers that speak of the library as a whole, whichever GPU was asked about."""


def failure_of(call: str, error: pynvml.NVMLError) -> Failure:
    """The value that stands for an NVML error."""
    return Failure(call=call, message=str(error), code=error.value)


class Inquiry:
    """The calls made about one GPU or MIG instance.

    Attributes:
        failure: the first call that failed, None while none has.

    Args:
        session_verified: False: an answer of WHOLE_LIBRARY is raised, for the caller to initialise NVML again. True,
            when that has just been done: such an answer can only mean the GPU, and is kept like any other.
    """

    __slots__ = ("_session_verified", "failure")

    def __init__(self, *, session_verified: bool) -> None:
        self.failure: Failure | None = None
        self._session_verified = session_verified

    def ask(
        self, function: Callable[..., Answer], *arguments: object, absent: frozenset[int] = NOT_SUPPORTED
    ) -> Answer | None:
        """What `function` of pynvml answers.

        Returns:
            None when the code is one of `absent` (a value: there is no such thing here) and when the call failed,
            which `failure` then keeps.

        Raises:
            pynvml.NVMLError: the session as a whole is in doubt.
        """
        try:
            return function(*arguments)
        except pynvml.NVMLError as error:
            if error.value in absent:
                return None
            if error.value in WHOLE_LIBRARY and not self._session_verified:
                raise
            self.blame(failure_of(function.__name__, error))
        except UnicodeDecodeError as error:
            self.blame(Failure(function.__name__, f"an answer that is no text: {error.object!r}"))
        return None

    def blame(self, failure: Failure) -> None:
        """Keep a failure unless an earlier one is kept."""
        if self.failure is None:
            self.failure = failure
