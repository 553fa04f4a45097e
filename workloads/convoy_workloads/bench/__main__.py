"""The command `python -m convoy_workloads.bench [ENGINE...]`, which compares engines with their baselines."""

from __future__ import annotations

import argparse

from convoy_workloads.bench.comparison import broken, compare
from convoy_workloads.bench.figures import publish
from convoy_workloads.bench.trial import TrialError
from convoy_workloads.engines.registry import ENGINES


def main() -> None:
    """Run the benches. A run with the full size and all rounds replaces docs/bench/engine-<name>.json.

    The exit code is 1 if a training run fails, if values that must be equal differ, or if a negative
    control is too far from its baseline.
    """
    known = {entry.name: entry for entry in ENGINES if not entry.tool}
    parser = argparse.ArgumentParser(
        prog="convoy_workloads.bench", description="Compare engines with their baselines."
    )
    parser.add_argument("engines", nargs="*", help=f"Engines to compare. Default: all of {', '.join(known)}.")
    parser.add_argument("--size", choices=("small", "full"), default="full")
    parser.add_argument(
        "--rounds",
        type=int,
        help="Number of rounds. Every arm runs once in each round. Default: the bench's own number.",
    )
    options = parser.parse_args()
    if unknown := [name for name in options.engines if name not in known]:
        parser.error(f"unknown engine {', '.join(unknown)}; choose from {', '.join(known)}")
    failed = []
    for name in options.engines or known:
        bench = known[name].module("bench").BENCH
        try:
            figures = compare(bench, options.size, options.rounds)
        except TrialError as error:
            failed.append(f"{name}: {error}")
            continue
        missed = broken(figures)
        failed += [f"{name}: {row}" for row in missed]
        whole = options.size == "full" and (options.rounds or bench.rounds) >= bench.rounds and not missed
        publish(figures, f"engine-{name}", f"make bench-engines ENGINE={name}", whole)
    if failed:
        raise SystemExit("\n".join(failed))


if __name__ == "__main__":
    main()
