"""What holds for every test."""

from hypothesis import settings

# A test says nothing of time: machines are noisy (benchmarks/ measures).
settings.register_profile("here", deadline=None)
if not settings.get_current_profile_name().startswith("ci"):
    settings.load_profile("here")
