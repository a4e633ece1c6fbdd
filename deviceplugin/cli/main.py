"""`gpu-device-plugin COMMAND`, and `nvidia-device-plugin`, the drop-in name of its `serve`."""

import importlib
import os
import signal
import sys
from collections.abc import Callable, Sequence

from deviceplugin import __version__
from deviceplugin.errors import DevicePluginError, UsageError

# name -> one line of help. The module of the same name is imported only when asked for: `serve` must stay small.
COMMANDS = {
    "serve": "serve this node's GPUs to the kubelet until a signal ends it",
    "mps": "run and watch one MPS control daemon for each GPU that is shared by MPS",
    "simulate": "run the unchanged plugin on a described node, with a kubelet stand-in and sample pods",
    "validate": "check a config file and say everything that is wrong with it",
    "plan": "show what a config makes of this node, and what would change in the running plugin",
    "migrate": "say what becomes of a values file and a config file of NVIDIA's chart",
    "status": "ask the running plugin what it offers, to whom and why",
    "release": "have the running plugin close the driver for a while: to reset a GPU, or to unload the driver",
    "version": "print the version",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: the words after the program's name; the process's own by default.

    Returns:
        The exit status: 0, or 2 for wrong usage; others as the command says.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    program = " ".join(["gpu-device-plugin", *words[:1]])
    return _guarded(program, lambda: _dispatch(words))


def nvidia_device_plugin() -> int:
    """`nvidia-device-plugin [flags]`: serve, under the name that NVIDIA's image and charts start."""
    words = sys.argv[1:]
    if words and words[0] in ("--version", "-v", "version"):
        return _guarded("nvidia-device-plugin", lambda: _say(f"nvidia-device-plugin (gpu-device-plugin {__version__})"))
    return _guarded("nvidia-device-plugin", lambda: _run("serve", words))


def mps_control_daemon() -> int:
    """`mps-control-daemon [flags]`: the supervisor, under the name that NVIDIA's image and charts start."""
    return _guarded("mps-control-daemon", lambda: _run("mps", sys.argv[1:]))


def config_manager() -> int:
    """`config-manager`, a sidecar of NVIDIA's image: says that it is not needed here. Exit status 1."""
    return _not_here(
        "config-manager: not part of this plugin, which watches its config file by itself: remove the container. A "
        "file for each kind of node is one installation for each, with a nodeSelector (docs/limits.md)"
    )


def gpu_feature_discovery() -> int:
    """`gpu-feature-discovery`, of NVIDIA's image: says where to get it. Exit status 1."""
    return _not_here(
        "gpu-feature-discovery: not part of this plugin: run NVIDIA's own beside it, and see docs/migration.md for the "
        "labels that it then gets wrong"
    )


def _not_here(message: str) -> int:
    print(message, file=sys.stderr)
    return 1


def _dispatch(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        _say(_help())
        return 0 if words else 2
    command, rest = words[0], words[1:]
    if command in ("version", "--version", "-v"):
        return _say(f"gpu-device-plugin {__version__}")
    if command not in COMMANDS:
        near = [name for name in COMMANDS if name.startswith(command[:3])]
        hint = f"did you mean {near[0]}?" if near else f"one of: {', '.join(COMMANDS)}"
        print(f"gpu-device-plugin: unknown command {command!r}; {hint}", file=sys.stderr)
        return 2
    return _run(command, rest)


def _run(command: str, words: list[str]) -> int:
    status: int = importlib.import_module(f"deviceplugin.cli.{command}").run(words)
    return status


def _say(text: str) -> int:
    print(text)
    return 0


def _guarded(program: str, command: Callable[[], int]) -> int:
    """The exit status of a command; what went wrong is one message, never a traceback."""
    try:
        try:
            status = command()
        except SystemExit as ended:  # argparse, when it has printed a help or the usage
            status = int(ended.code or 0)
        if sys.stdout is not None:  # None: it was closed when we started
            sys.stdout.flush()
    except UsageError as error:
        print(f"{program}: {error}", file=sys.stderr)
        return error.exit_status
    except DevicePluginError as error:
        print(f"{program}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except BrokenPipeError:
        # The reader of our output has gone (`... | head`): not a fault of ours.
        _drop_output()
        return 1
    except OSError as error:
        _drop_output()
        print(f"{program}: {error}", file=sys.stderr)
        return 1
    return status


def _drop_output() -> None:
    """What could not be written is not to be tried, and complained about, once more when the process ends."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _help() -> str:
    lines = [f"  {name:<10}{text}" for name, text in COMMANDS.items()]
    return (
        "usage: gpu-device-plugin COMMAND [options]\n\ncommands:\n"
        + "\n".join(lines)
        + ("\n\n`gpu-device-plugin COMMAND --help` tells a command's options.")
    )


if __name__ == "__main__":
    sys.exit(main())
