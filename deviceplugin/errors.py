"""Every error the product raises on purpose. One root; each class says what its catcher does with it."""


class DevicePluginError(Exception):
    """The root. Caught only at the edge of the process: printed without a traceback, exit status 1."""


class UsageError(DevicePluginError):
    """A flag or environment variable is wrong. The catcher prints it and exits: 2 for a flag, 1 for a variable."""

    def __init__(self, message: str, exit_status: int = 2) -> None:
        super().__init__(message)
        self.exit_status = exit_status


class ConfigError(DevicePluginError):
    """The config file, or what it asks for on this node, is refused.

    The catcher ends a start (exit status 1) and, on a reload, keeps the config in force and reports `problems`.

    Args:
        problems: every finding as one line of text, at least one.
    """

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class NotOfferedError(ConfigError):
    """A setting is understood but this version does not offer it. Handled as its base; never ignored."""


class DriverError(DevicePluginError):
    """The driver as a whole does not answer. The catcher waits and retries, or ends the start (failOnInitError).

    Args:
        message: what was found, what was tried, what to do.
        code: the NVML return code, or None when no library could be opened.
    """

    def __init__(self, message: str, code: int | None = None) -> None:
        super().__init__(message)
        self.code = code


class MpsError(DevicePluginError):
    """An MPS control daemon does not do what it should. The catcher takes its shares out of service and retries."""


class AllocationError(DevicePluginError):
    """An Allocate request is refused. The gRPC handler answers it with the message; the pod fails for good (A20)."""


class KubeletError(DevicePluginError):
    """The kubelet refused, or did not answer on, one of its sockets. The catcher retries with back-off."""


class SocketConflictError(KubeletError):
    """A live foreign server answers on a name we need. The catcher takes a free name beside it, or goes without."""
