"""Shared by the tests here: real files, and what loading them says."""

from pathlib import Path

from deviceplugin.config.load import load_config
from deviceplugin.config.overrides import Overrides
from deviceplugin.errors import ConfigError

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden"
EXAMPLES = tuple(sorted((ROOT / "config").glob("*.yaml")))


def write(directory: Path, text: str | bytes) -> str:
    """A config file with that content; its path."""
    path = directory / "config.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


def problems(directory: Path, text: str | bytes, *, lenient: bool = False) -> tuple[str, ...]:
    """What is wrong with a file, without the directory's name; empty when it loads."""
    try:
        load_config(write(directory, text), Overrides(), lenient=lenient)
    except ConfigError as error:
        return tuple(problem.replace(f"{directory}/", "") for problem in error.problems)
    return ()


def entry(lines: str, kind: str = "timeSlicing") -> str:
    """A file with one sharing entry, of the given lines `key: value`."""
    body = "\n".join(f"      {line}" for line in lines.strip().splitlines())
    return f"version: v1\nsharing:\n  {kind}:\n    resources:\n    -\n{body}\n"
