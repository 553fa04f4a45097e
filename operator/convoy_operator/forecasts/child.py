"""The child process: reads cases as JSON lines from stdin, and writes a line of JSON for each result."""

from __future__ import annotations

import json
import os
import resource
import sys

from convoy_controllers.astrasim.step.predict import CannotPredict
from convoy_controllers.placement.forecast.case import Case

NICE = 10
MEMORY_BYTES = 1 << 30


def result(case: Case) -> dict[str, object]:
    """Return the prediction, or the reason why there is none."""
    try:
        found = case.predict()
    except CannotPredict as error:
        return {"failure": str(error)}
    return {"step_ms": found.seconds * 1e3, "bottleneck": found.bottleneck.name if found.bottleneck else ""}


def main() -> None:
    """Simulate each case."""
    os.nice(NICE)
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    for line in sys.stdin:
        print(json.dumps(result(Case.load(line))), flush=True)


if __name__ == "__main__":
    main()
