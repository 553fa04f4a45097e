"""The steps of halving-doubling: partners and message sizes."""

from __future__ import annotations

import math

from convoy_controllers.astrasim.parameters import CollectiveType


def halving_doubling_steps(
    type_: CollectiveType, ranks: int, index: int, size: int
) -> tuple[list[int], list[int]]:
    """Return the distance to the partner and the message size of each step of halving-doubling.

    A last entry describes the step after the end, which sends nothing. With a number of ranks that is not a
    power of two, the rules give partners that do not agree, as in ASTRA-sim.
    """
    gathers = type_ is CollectiveType.ALL_GATHER
    twice = type_ is CollectiveType.ALL_REDUCE
    count = int((2 if twice else 1) * math.log2(ranks))
    offset = ranks // 2 if gathers else 1
    factor = 0.5 if gathers else 2.0
    length = size if gathers else size // 2
    distances, sizes = [], []
    for _ in range(count + 1):
        back = offset > 0 and index // offset % 2 == 1
        distances.append(-offset if back else offset)
        sizes.append(length)
        offset, length = int(offset * factor), int(length / factor)
        if offset == ranks and twice:
            factor = 0.5
            offset, length = int(offset * factor), int(length / factor)
    return distances, sizes
