"""The longest job first (LPT): jobs are assigned to the bin that has the least load so far. The largest load
is at most 4/3 - 1/(3 bins) times the optimum (Graham, 1969).

No engine uses this module yet: it is for planners that share work among ranks, such as those of context
parallelism.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence


class NoRoomError(ValueError):
    """Raised if no bin has room for a job."""


def assign(
    costs: Sequence[float],
    bins: int,
    sizes: Sequence[int] | None = None,
    capacity: int | None = None,
) -> list[list[int]]:
    """Return the indices of the jobs of each bin, in the order of assignment.

    `sizes` and `capacity`: room that each job needs, and room of a bin. A bin without room is passed over.
    Raises NoRoomError if no bin has room for a job, ValueError for fewer than one bin.
    """
    if bins < 1:
        raise ValueError(f"bins: {bins} is less than 1")
    needed = sizes if sizes is not None else [0] * len(costs)
    room = [capacity if capacity is not None else sum(needed)] * bins
    found: list[list[int]] = [[] for _ in range(bins)]
    loads = [(0.0, number) for number in range(bins)]
    for job in sorted(range(len(costs)), key=lambda one: (-costs[one], one)):
        passed = []
        while loads and room[loads[0][1]] < needed[job]:
            passed.append(heapq.heappop(loads))
        if not loads:
            raise NoRoomError(f"job {job} of size {needed[job]} fits into none of {bins} bins")
        load, number = heapq.heappop(loads)
        found[number].append(job)
        room[number] -= needed[job]
        for entry in (*passed, (load + costs[job], number)):
            heapq.heappush(loads, entry)
    return found
