"""A grpcio server that answers every call with the request's own bytes: what no plugin in Python can be faster than.

`python -m benchmarks.echo SOCKET` serves until its standard input ends.
"""

import sys
from concurrent.futures import ThreadPoolExecutor

import grpc

WORKERS = 8


class _Echo(grpc.GenericRpcHandler):  # type: ignore[type-arg]
    def service(self, _: grpc.HandlerCallDetails) -> "grpc.RpcMethodHandler[bytes, bytes]":
        return grpc.unary_unary_rpc_method_handler(lambda request, _context: request)


def main() -> None:
    """Serve on the socket that the command line names, say `ready`, and go when standard input ends."""
    server = grpc.server(ThreadPoolExecutor(WORKERS))
    server.add_generic_rpc_handlers((_Echo(),))
    server.add_insecure_port(f"unix:{sys.argv[1]}")
    server.start()
    print("ready", flush=True)
    sys.stdin.read()
    server.stop(None).wait()


if __name__ == "__main__":
    main()
