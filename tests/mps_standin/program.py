"""A stand-in for `nvidia-cuda-mps-control`, the MPS control daemon and the tool that talks to it.

It imports nothing of ours. What it plays, and where that is said: [DOC] is NVIDIA's Multi-Process Service document
(architecture; tools and interface reference), [OP] the GPU operator's page on MPS with NVIDIA's plugin, [SEEN] what
users of the real program reported in public, and [LOG] what control.log holds in such reports (NVIDIA/k8s-device-plugin
issue 1614, kubernetes-sigs/dra-driver-nvidia-gpu PR 1153, NVIDIA/nvidia-container-toolkit issue 277).

 1. `-f` runs the daemon in the foreground, `-d` in the background; without either, commands are read from standard
    input, one a line, and sent to the daemon of CUDA_MPS_PIPE_DIRECTORY [DOC].
 2. The daemon writes its pid to nvidia-cuda-mps-control.pid in the pipe directory [DOC]; other names there are control,
    control_privileged, control_lock and log. It talks over unix sockets [DOC].
 3. A second daemon on one pipe directory ends with "An instance of this daemon is already running"; one that was killed
    leaves its files, and the next takes the directory over [SEEN].
 4. Without a daemon a command gets "Cannot find MPS control daemon process" and exit status 1 [SEEN].
 5. A socket path longer than 107 bytes: the daemon ends, with the words of 4 and no others [SEEN].
 6. At most one server at a time, for one UID. A client of that UID is let through at once; one of another UID waits
    until all clients of the running server have gone, whose end is asked for then [DOC]. A server outlives its last
    client, until somebody of another UID comes [DOC].
 7. `-multiuser-server`, as root: one server of root's for every UID [DOC]. Programs that are too old know no such
    option and end with their usage (MPS_STANDIN_OLD=1).
 8. set_default_active_thread_percentage and set_default_device_pinned_mem_limit reach the next server only, and are
    lost when the daemon ends [DOC]. The device number of a memory limit is not checked [DOC].
 9. Read back, percentages have a decimal (25.0), and memory is in whole G, rounded down: 3840M on a T4 reads 3G [OP].
    A daemon takes its first defaults from CUDA_MPS_ACTIVE_THREAD_PERCENTAGE and CUDA_MPS_PINNED_DEVICE_MEM_LIMIT in its
    environment, if they are there [DOC].
10. A client's own limits can only be lower than its server's [DOC].
11. shutdown_server PID waits for the server's clients, with `-f` it ends them; quit ends the daemon and its servers,
    and waits for clients that are alive, for TIMEOUT seconds with `-t`, else for ever. Nobody new is let in then [DOC].
12. A killed daemon does not take its server along: clients keep it, and a new daemon does not know it. That is the
    unkindest reading; nothing states it.
13. control.log tells of every client: "NEW CLIENT pid from user uid: ", then "Server already exists", or "Server is not
    ready, push client to pending list", of one that waits for a server that starts as of one that waits for another
    user's to end; and of servers: "Starting new server pid for user uid", written by the new process, "NEW SERVER pid:
    Ready" when it lets clients through, "Server pid exited with status n" [LOG]. No command lists who waits
    (get_client_list names the clients of a server) [DOC]. server.log is the server's [DOC].
14. Processes are called nvidia-cuda-mps-control and nvidia-cuda-mps-server; a server inherits its daemon's
    environment: it reaches the daemon by the pipe directory in it [LOG].

Faults stand in the file MPS_STANDIN_FAULTS, read at every start and every command, one a line: a fault, and a part of
the pipe directory's path that it holds for (* for all):

    refuse PART   the daemon says that it can't start, and ends with status 1
    slow PART     the daemon opens its pipes one second late
    hang PART     commands get no answer
    fail PART     commands get an error, exit status 1
    forget PART   the daemon forgets its default limits once it is asked for one
    deny PART     setting a limit has no effect, without a word
    chatty PART   each command puts 64 KiB into control.log

Not of the real one: what the daemon was asked stands in asked.txt in the log directory, one command a line.

A client of the tests connects to `control`, says `client UID PID PERCENTAGE MIB` (0: no limit of its own) and stays; it
is told `server PID PERCENTAGE MIB` once it is let through.
"""

import contextlib
import fcntl
import os
import re
import selectors
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

NOT_FOUND = "Cannot find MPS control daemon process"
RUNNING = "An instance of this daemon is already running"
SUN_PATH_BYTES = 107
USAGE = "usage: nvidia-cuda-mps-control [-d | -f]"
SERVER = "nvidia-cuda-mps-server"
LIMIT = re.compile(r"(\d+)([GM])")


def pipe_directory() -> Path:
    return Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"))


def log_directory() -> Path:
    return Path(os.environ.get("CUDA_MPS_LOG_DIRECTORY", "/var/log/nvidia-mps"))


def fault(name: str) -> bool:
    """Whether a fault is set for this pipe directory."""
    path = os.environ.get("MPS_STANDIN_FAULTS")
    lines = Path(path).read_text().splitlines() if path and os.path.exists(path) else []
    words = [line.split() for line in lines if line.strip()]
    return any(one == name and (part == "*" or part in str(pipe_directory())) for one, part in words)


# --- the tool -----------------------------------------------------------------------------------------------------


def talk() -> int:
    """Sends the commands of standard input."""
    for line in sys.stdin:
        command = line.strip()
        if not command:
            continue
        with socket.socket(socket.AF_UNIX) as connection:
            try:
                connection.connect(str(pipe_directory() / "control_privileged"))
                connection.sendall(command.encode() + b"\n")
                reply = read_all(connection).decode()
            except OSError:
                print(NOT_FOUND)
                return 1
        status, _, text = reply.partition("\n")
        if text:
            print(text)
        if status != "0":
            return 1
    return 0


def read_all(connection: socket.socket) -> bytes:
    """What comes until the other side closes."""
    parts = []
    while part := connection.recv(65536):
        parts.append(part)
    return b"".join(parts)


# --- the daemon ---------------------------------------------------------------------------------------------------


class Server:
    """The process that clients share, with the limits that were the defaults when it started."""

    def __init__(self, uid: int, percentage: float, memory_mib: int) -> None:
        self.uid = uid
        self.percentage = percentage
        self.memory_mib = memory_mib
        self.process = subprocess.Popen(
            [SERVER, "infinity"],
            executable="/bin/sleep",
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.leaving = False

    @property
    def pid(self) -> int:
        return self.process.pid

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


class Client:
    """A process that uses CUDA."""

    def __init__(self, connection: socket.socket, words: list[str]) -> None:
        self.connection = connection
        self.uid, self.pid, self.percentage, self.memory_mib = (int(word) for word in words)
        self.server: Server | None = None

    def let_through(self, server: Server) -> bool:
        percentage = min(server.percentage, self.percentage or 100)
        limits = [limit for limit in (server.memory_mib, self.memory_mib) if limit]
        memory_mib = min(limits, default=0)
        try:
            self.connection.sendall(f"server {server.pid} {percentage:g} {memory_mib}\n".encode())
        except OSError:
            return False
        self.server = server
        return True


class Daemon:
    """One control daemon. Everything happens in one thread."""

    def __init__(self, multiuser: bool) -> None:
        self.multiuser = multiuser
        self.percentage = float(os.environ.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "100"))
        self.memory_mib = first_limits(os.environ.get("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", ""))
        self.server: Server | None = None
        self.clients: list[Client] = []
        self.quitting: tuple[socket.socket | None, float] | None = None
        self.stopping: list[tuple[socket.socket, Server]] = []
        self.selector = selectors.DefaultSelector()
        self.log_file = (log_directory() / "control.log").open("a", buffering=1)
        self.asked = (log_directory() / "asked.txt").open("a", buffering=1)
        self.server_log = (log_directory() / "server.log").open("a", buffering=1)

    def log(self, text: str, pid: int = 0) -> None:
        when = time.strftime("%Y-%m-%d %H:%M:%S.000")
        self.log_file.write(f"[{when} Control {pid or os.getpid():5}] {text}\n")

    def run(self, listeners: list[socket.socket]) -> None:
        for listener in listeners:
            self.selector.register(listener, selectors.EVENT_READ, self.accept)
        self.log(f"Starting control daemon using socket {pipe_directory()}/control")
        while not self.gone():
            for key, _ in self.selector.select(0.05):
                key.data(key.fileobj)
            self.settle()
        self.log("Exit")

    def gone(self) -> bool:
        if self.quitting is None:
            return False
        connection, deadline = self.quitting
        if any(client.server for client in self.clients) and time.monotonic() < deadline:
            return False
        if self.server:
            self.server.end()
        if connection:
            answer(connection, 0, "")
        return True

    def accept(self, listener: socket.socket) -> None:
        connection, _ = listener.accept()
        self.selector.register(connection, selectors.EVENT_READ, self.first_line)

    def first_line(self, connection: socket.socket) -> None:
        line = connection.recv(4096).decode()
        self.selector.unregister(connection)
        words = line.split()
        if not words:
            connection.close()
        elif words[0] == "client":
            client = Client(connection, words[1:])
            self.clients.append(client)
            server = self.server
            at_once = server is not None and server.uid == self.uid_for(client) and not server.leaving
            state = "Server already exists" if at_once else "Server is not ready, push client to pending list"
            self.log(f"NEW CLIENT {client.pid} from user {client.uid}: {state}")
            self.selector.register(connection, selectors.EVENT_READ, self.client_left)
        else:
            self.command(connection, words)

    def client_left(self, connection: socket.socket) -> None:
        if connection.recv(4096):
            return
        self.selector.unregister(connection)
        connection.close()
        self.clients = [client for client in self.clients if client.connection is not connection]

    def settle(self) -> None:
        """Lets clients through, makes them wait, and ends servers whose time has come."""
        connected = [client for client in self.clients if client.server is self.server and self.server]
        if self.server and self.server.leaving and not connected:
            self.log(f"Server {self.server.pid} exited with status 0")
            self.server.end()
            for connection, server in self.stopping:
                if server is self.server:
                    answer(connection, 0, "")
            self.stopping = [one for one in self.stopping if one[1] is not self.server]
            self.server = None
        if self.quitting is not None:
            return
        for client in self.clients:
            if client.server is not None:
                continue
            uid = self.uid_for(client)
            server = self.server or self.start_server(uid)
            if server.uid == uid and not server.leaving:
                client.let_through(server)
            else:
                server.leaving = True

    def uid_for(self, client: Client) -> int:
        """Whose server the client needs."""
        return 0 if self.multiuser else client.uid

    def start_server(self, uid: int) -> Server:
        server = self.server = Server(uid, self.percentage, self.memory_mib.get("0", 0))
        self.log(f"Starting new server {server.pid} for user {uid}", server.pid)
        self.log(f"NEW SERVER {server.pid}: Ready")
        self.server_log.write(f"[Server {server.pid}] Active\n")
        return server

    def command(self, connection: socket.socket, words: list[str]) -> None:
        self.asked.write(f"{' '.join(words)}\n")
        if fault("chatty"):
            self.log_file.write(("x" * 127 + "\n") * 512)
        if fault("hang"):
            # Nobody answers; the connection stays open.
            self.selector.register(connection, selectors.EVENT_READ, self.drop)
            return
        if fault("fail"):
            answer(connection, 1, "Failed to process the command")
            return
        name, rest = words[0], words[1:]
        method = getattr(self, f"do_{name}", None)
        if method is None:
            answer(connection, 1, f"Unknown command: {name}")
            return
        try:
            method(connection, *rest)
        except (TypeError, ValueError, LookupError):
            answer(connection, 1, f"Invalid arguments: {' '.join(words)}")

    def drop(self, connection: socket.socket) -> None:
        if connection.recv(4096):
            return
        self.selector.unregister(connection)
        connection.close()

    def find(self, pid: str) -> Server:
        if self.server is None or self.server.pid != int(pid):
            raise LookupError(pid)
        return self.server

    def do_get_server_list(self, connection: socket.socket) -> None:
        answer(connection, 0, str(self.server.pid) if self.server else "")

    def do_get_client_list(self, connection: socket.socket, pid: str) -> None:
        server = self.find(pid)
        answer(connection, 0, "\n".join(str(client.pid) for client in self.clients if client.server is server))

    def do_start_server(self, connection: socket.socket, option: str, uid: str) -> None:
        if option != "-uid" or self.server is not None:
            raise ValueError(option)
        self.start_server(int(uid))
        answer(connection, 0, "")

    def do_shutdown_server(self, connection: socket.socket, pid: str, force: str = "") -> None:
        server = self.find(pid)
        server.leaving = True
        if force == "-f":
            for client in [client for client in self.clients if client.server is server]:
                client.connection.shutdown(socket.SHUT_RDWR)
        self.stopping.append((connection, server))

    def do_set_default_active_thread_percentage(self, connection: socket.socket, text: str) -> None:
        if not 0 < float(text) <= 100:
            raise ValueError(text)
        if not fault("deny"):
            self.percentage = float(text)
        answer(connection, 0, f"{float(text):.1f}")

    def do_get_default_active_thread_percentage(self, connection: socket.socket) -> None:
        if fault("forget"):
            self.percentage, self.memory_mib = 100.0, {}
        answer(connection, 0, f"{self.percentage:.1f}")

    def do_get_active_thread_percentage(self, connection: socket.socket, pid: str) -> None:
        answer(connection, 0, f"{self.find(pid).percentage:.1f}")

    def do_set_default_device_pinned_mem_limit(self, connection: socket.socket, device: str, text: str) -> None:
        found = LIMIT.fullmatch(text)
        if found is None:
            raise ValueError(text)
        if not fault("deny"):
            self.memory_mib[device] = int(found[1]) * (1024 if found[2] == "G" else 1)
        answer(connection, 0, "")

    def do_get_default_device_pinned_mem_limit(self, connection: socket.socket, device: str) -> None:
        answer(connection, 0, shown(self.memory_mib.get(device, 0)))

    def do_quit(self, connection: socket.socket, option: str = "", timeout_s: str = "") -> None:
        deadline = time.monotonic() + float(timeout_s) if option == "-t" else float("inf")
        self.quitting = connection, deadline


def first_limits(text: str) -> dict[str, int]:
    """Memory limits as they stand in the environment: `0=3840M,1=2G`."""
    limits = {}
    for device, _, limit in (part.partition("=") for part in text.split(",") if part):
        if found := LIMIT.fullmatch(limit):
            limits[device] = int(found[1]) * (1024 if found[2] == "G" else 1)
    return limits


def shown(memory_mib: int) -> str:
    """A memory limit as it is read back: whole G, rounded down, as soon as there is one."""
    return f"{memory_mib // 1024}G" if memory_mib >= 1024 else f"{memory_mib}M"


def answer(connection: socket.socket, status: int, text: str) -> None:
    with contextlib.suppress(OSError):
        connection.sendall(f"{status}\n{text}".encode())
    connection.close()


def serve(multiuser: bool, ready: int | None) -> int:
    pipes = pipe_directory()
    if fault("refuse"):
        print("Failed to initialize: permission denied", file=sys.stderr)
        return 1
    longest = len(os.fsencode(pipes / "control_privileged"))
    if not pipes.is_dir() or not log_directory().is_dir() or longest > SUN_PATH_BYTES:
        print(NOT_FOUND, file=sys.stderr)
        return 1
    lock = (pipes / "control_lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        print(RUNNING, file=sys.stderr)
        return 1
    if fault("slow"):
        time.sleep(1)
    listeners = []
    for name in ("control", "control_privileged"):
        (pipes / name).unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(pipes / name))
        listener.listen(64)
        listeners.append(listener)
    (pipes / "control").chmod(0o666)
    pid_file = pipes / "nvidia-cuda-mps-control.pid"
    pid_file.write_text(f"{os.getpid()}\n")
    daemon = Daemon(multiuser)

    def end(number: int, frame: object) -> None:
        daemon.quitting = None, time.monotonic()

    signal.signal(signal.SIGTERM, end)
    if ready is not None:
        os.write(ready, b"\n")
        os.close(ready)
    daemon.run(listeners)
    for name in ("control", "control_privileged", "control_lock", pid_file.name):
        (pipes / name).unlink(missing_ok=True)
    return 0


def serve_in_background(multiuser: bool) -> int:
    reader, writer = os.pipe()
    if os.fork():
        os.close(writer)
        return 0 if os.read(reader, 1) else 1
    os.close(reader)
    os.setsid()
    return serve(multiuser, writer)


def main(words: list[str]) -> int:
    known = {"-d", "-f"} if os.environ.get("MPS_STANDIN_OLD") else {"-d", "-f", "-multiuser-server"}
    if set(words) - known:
        print(USAGE, file=sys.stderr)
        return 1
    if "-multiuser-server" in words and os.getuid() != 0:
        print("-multiuser-server needs the superuser", file=sys.stderr)
        return 1
    if "-f" in words:
        return serve("-multiuser-server" in words, None)
    if "-d" in words:
        return serve_in_background("-multiuser-server" in words)
    return talk()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
