"""Rules of the project itself: imports, generated files, packaging, what goes into the repository."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
