"""Numbers of random cases: about a thousand in CI, `CONVOY_FUZZ` times as many with `make fuzz`."""

from __future__ import annotations

import os

FACTOR = int(os.environ.get("CONVOY_FUZZ", "1"))


def cases(usual: int) -> int:
    """Return the number of cases of a test, or its time limit in seconds. `usual` is the number in CI, and
    `CONVOY_FUZZ` multiplies it.
    """
    return usual * FACTOR
