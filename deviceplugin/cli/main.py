"""`gpu-device-plugin COMMAND`, and `nvidia-device-plugin`, the drop-in name of its `serve`."""

import importlib
import sys
from collections.abc import Sequence

from deviceplugin import __version__
from deviceplugin.errors import DevicePluginError, UsageError

# name -> one line of help. The module of the same name is imported only when asked for: `serve` must stay small.
COMMANDS = {
    "serve": "serve this node's GPUs to the kubelet until a signal ends it",
    "simulate": "run the unchanged plugin on a described node, with a kubelet stand-in and sample pods",
    "validate": "check a config file and say everything that is wrong with it",
    "plan": "show what a config makes of this node, and what would change in the running plugin",
    "status": "ask the running plugin what it offers, to whom and why",
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
    if not words or words[0] in ("-h", "--help", "help"):
        print(_help())
        return 0 if words else 2
    command, rest = words[0], words[1:]
    if command in ("version", "--version", "-v"):
        print(f"gpu-device-plugin {__version__}")
        return 0
    if command not in COMMANDS:
        near = [name for name in COMMANDS if name.startswith(command[:3])]
        hint = f"did you mean {near[0]}?" if near else f"one of: {', '.join(COMMANDS)}"
        print(f"gpu-device-plugin: unknown command {command!r}; {hint}", file=sys.stderr)
        return 2
    return _run(command, rest)


def nvidia_device_plugin() -> int:
    """`nvidia-device-plugin [flags]`: serve, under the name that NVIDIA's image and charts start."""
    words = sys.argv[1:]
    if words and words[0] in ("--version", "-v", "version"):
        print(f"nvidia-device-plugin (gpu-device-plugin {__version__})")
        return 0
    return _run("serve", words)


def _run(command: str, words: list[str]) -> int:
    module = importlib.import_module(f"deviceplugin.cli.{command}")
    try:
        status: int = module.run(words)
    except UsageError as error:
        print(f"gpu-device-plugin {command}: {error}", file=sys.stderr)
        return error.exit_status
    except DevicePluginError as error:
        print(f"gpu-device-plugin {command}: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # The reader of our output has gone (`... | head`): not a fault of ours.
        sys.stderr.close()
        return 1
    return status


def _help() -> str:
    lines = [f"  {name:<10}{text}" for name, text in COMMANDS.items()]
    return (
        "usage: gpu-device-plugin COMMAND [options]\n\ncommands:\n"
        + "\n".join(lines)
        + ("\n\n`gpu-device-plugin COMMAND --help` tells a command's options.")
    )


if __name__ == "__main__":
    sys.exit(main())
