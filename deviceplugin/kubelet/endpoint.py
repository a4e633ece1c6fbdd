"""A gRPC server for one resource, and its socket in the kubelet's directory."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, Self

import grpc

from deviceplugin.errors import KubeletError
from deviceplugin.kubelet.feed import MAX_STREAMS
from deviceplugin.kubelet.socket_file import (
    SocketFile,
    check_place,
    clean_temporary_names,
    directory_lock,
    temporary_name,
)
from deviceplugin.kubelet.unix import target

CALLS_AT_A_TIME: Final = 4  # beside the streams: the kubelet makes one (A3), a late one may overlap (A22)
MAX_RECEIVED_BYTES: Final = 16 * 1024 * 1024  # the kubelet sends without a limit (R10)

SERVER_OPTIONS: Final = (
    ("grpc.max_receive_message_length", MAX_RECEIVED_BYTES),
    ("grpc.max_send_message_length", -1),
    ("grpc.so_reuseport", 0),
)


class Endpoint:
    """One listening server. It is made whole or not at all, and never moves to another directory."""

    def __init__(self, server: grpc.Server, workers: ThreadPoolExecutor, file: SocketFile, resource: str) -> None:
        self._server = server
        self._workers = workers
        self._file = file
        self._resource = resource
        self._stopped: threading.Event | None = None

    @classmethod
    def open(cls, directory: Path, resource: str, handler: grpc.GenericRpcHandler[Any, Any]) -> Self:
        """Serve `handler` on a socket of `resource` in `directory`; takes milliseconds.

        Raises DirectoryBusyError to be tried again at once, SocketConflictError when every name is taken, and
        KubeletError when the directory is missing or refuses.
        """
        with directory_lock(directory):
            check_place(directory, resource)
            clean_temporary_names(directory)
            workers = ThreadPoolExecutor(MAX_STREAMS + CALLS_AT_A_TIME, thread_name_prefix=f"serve {resource}")
            server = grpc.server(workers, handlers=[handler], options=SERVER_OPTIONS)
            bound = temporary_name(directory)
            try:
                server.add_insecure_port(target(bound))
                server.start()
                file = SocketFile(bound)
                file.place(resource)
            except (RuntimeError, KubeletError) as error:
                server.stop(None)
                workers.shutdown(wait=False)
                bound.unlink(missing_ok=True)
                if isinstance(error, KubeletError):
                    raise
                # Without the temporary name: the next try has another, and the same trouble is to be told once.
                why = str(error).replace(str(bound), f"{directory}/...")
                raise KubeletError(f"{directory}: can't bind a socket there: {why}") from None
        return cls(server, workers, file, resource)

    @property
    def path(self) -> Path:
        """Our socket."""
        return self._file.path

    @property
    def conflict(self) -> Path | None:
        """The name that we would have but for a live foreign socket on it."""
        return self._file.conflict

    @property
    def in_place(self) -> bool:
        """Whether our socket still lies at its path (S3)."""
        return self._file.in_place

    def improve(self) -> None:
        """Take a better name if one has become free. Raises as `open` does; nothing has changed then."""
        if self.conflict is not None:
            with directory_lock(self.path.parent):
                self._file.place(self._resource)

    def stop(self, grace_s: float) -> None:
        """Remove our socket and stop serving; calls that run get `grace_s`. Returns at once: see `stopped`.

        Every stream must have been told to end, else it lasts for the whole grace time.
        """
        if self._stopped is None:
            self._file.remove()
            self._stopped = self._server.stop(grace_s)

    def stopped(self, wait_s: float = 0.0) -> bool:
        """Whether, after `stop`, the last call has ended and the worker threads are let go."""
        if self._stopped is None or not self._stopped.wait(wait_s):
            return False
        self._workers.shutdown(wait=False)
        return True
