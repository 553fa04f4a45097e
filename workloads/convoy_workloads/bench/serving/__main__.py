"""The command `python -m convoy_workloads.bench.serving [--size small|full]`: the figures of serving on one
machine.
"""

from __future__ import annotations

import argparse

from convoy_workloads.bench.comparison import broken, compare
from convoy_workloads.bench.figures import Figures, publish
from convoy_workloads.bench.serving import front
from convoy_workloads.engines.lm.bench import BENCH, REUSE


def figures(size: str) -> Figures:
    """Return the rows about the front, continuous batching and prefix reuse."""
    found = front.figures(size)
    for bench in (BENCH, REUSE):
        found.merge(compare(bench, "full" if size == "full" else "small", None if size == "full" else 1))
    return found


def main() -> None:
    """Run the benches. The full size replaces docs/bench/serving.json. The exit code is 1 if values that
    must be equal differ, or if a negative control gains too much.
    """
    parser = argparse.ArgumentParser(prog="convoy_workloads.bench.serving", description="Measure serving.")
    parser.add_argument("--size", choices=("small", "full"), default="full")
    size = parser.parse_args().size
    found = figures(size)
    missed = broken(found)
    publish(found, "serving", "make bench-serving", size == "full" and not missed)
    if missed:
        raise SystemExit("\n".join(missed))


if __name__ == "__main__":
    main()
