"""Programs that some tests need: without them those are skipped, loudly, and fail in CI."""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import pytest

SKIPPED = pytest.StashKey[dict[str, str]]()
"""What was not tested, and what is to be done."""


def need(
    config: pytest.Config,
    subject: str,
    programs: Sequence[str],
    packages: Sequence[str] = (),
    *,
    files: Sequence[Path] = (),
) -> None:
    """Skip the test that asks unless it runs as root and finds these programs and files; fail it in CI.

    Args:
        subject: what is not tested then: `the image`.
        programs: names on PATH.
        packages: Debian's that have them, where these are called otherwise.
        files: that are needed as well.
    """
    why = ""
    if os.geteuid() != 0:
        why = f"{subject} is tested as root"
    elif any(shutil.which(program) is None for program in programs) or not all(file.exists() for file in files):
        why = f"apt-get install --no-install-recommends {' '.join(packages or programs)}"
    if why and os.environ.get("CI"):
        pytest.fail(f"CI must test {subject}: {why}")
    if why:
        cannot(config, subject, why)


def cannot(config: pytest.Config, subject: str, why: str) -> NoReturn:
    """Skip the test that asks, in CI too: its machine forbids what no package gives.

    Args:
        subject, why: what was not tested, and the reason; both are said again at the end.
    """
    config.stash.setdefault(SKIPPED, {})[subject] = why
    pytest.skip(why)


def report_skipped(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say at the very end, where everyone looks, what was not tested."""
    for subject, why in config.stash.get(SKIPPED, {}).items():
        terminalreporter.section(f"{subject} WAS NOT TESTED".upper(), red=True)
        terminalreporter.line(why)
