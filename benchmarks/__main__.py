"""`python -m benchmarks [--quick] [GROUP ...]`: measure, print a table, write JSON."""

import argparse
import sys
from pathlib import Path

from benchmarks import health, latency, lifecycle, memory, mps, preferred, reload, snapshot
from benchmarks.figures import table, write_json

GROUPS = {
    "latency": latency.measure,
    "preferred": preferred.measure,
    "lifecycle": lifecycle.measure,
    "reload": reload.measure,
    "snapshot": snapshot.measure,
    "health": health.measure,
    "mps": mps.measure,
    "memory": memory.measure,
}
RESULTS = Path(__file__).parent / "results"


def main() -> int:
    """Run the groups. Exit status 0; 1 with `--strict` when an aim is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=f"of {', '.join(GROUPS)}; all by default")
    parser.add_argument("--quick", action="store_true", help="fewer samples: a minute instead of ten")
    parser.add_argument("--strict", action="store_true", help="exit 1 when an aim is missed")
    parser.add_argument(
        "--json", type=Path, default=RESULTS / "latest.json", help="where to write (default %(default)s)"
    )
    options = parser.parse_args()
    if unknown := set(options.groups) - set(GROUPS):
        parser.error(f"no group {', '.join(sorted(unknown))}; there are {', '.join(GROUPS)}")
    figures = []
    for name in options.groups or GROUPS:
        print(f"measuring {name} ...", file=sys.stderr, flush=True)
        figures += GROUPS[name](quick=options.quick)
    print(table(figures))
    write_json(figures, options.json, quick=options.quick)
    missed = [figure.name for figure in figures if figure.verdict == "MISSED"]
    return 1 if missed and options.strict else 0


if __name__ == "__main__":
    sys.exit(main())
