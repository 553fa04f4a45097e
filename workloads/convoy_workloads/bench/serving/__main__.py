"""The command `python -m convoy_workloads.bench.serving [--size small|full]`: prints the figures of serving
on one machine.
"""

from __future__ import annotations

import argparse

from convoy_workloads.bench.comparison import broken
from convoy_workloads.bench.figures import line
from convoy_workloads.bench.serving.rows import figures


def main() -> None:
    """Run the benches. The exit code is 1 if values that must be equal differ, or if a negative control gains
    too much.
    """
    parser = argparse.ArgumentParser(prog="convoy_workloads.bench.serving", description="Measure serving.")
    parser.add_argument("--size", choices=("small", "full"), default="full")
    found = figures(parser.parse_args().size)
    for row in found.rows():
        print(line(row))
    if missed := broken(found):
        raise SystemExit("\n".join(missed))


if __name__ == "__main__":
    main()
