"""What holds for every test."""

import pytest
from hypothesis import settings

from tests.tools import report_skipped

# A test says nothing of time: machines are noisy (benchmarks/ measures).
settings.register_profile("here", deadline=None)
if not settings.get_current_profile_name().startswith("ci"):
    settings.load_profile("here")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """The last words of a run."""
    report_skipped(terminalreporter, config)
