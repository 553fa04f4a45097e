"""The max-min fair allocation of bandwidth to flows.

Progressive filling: the rates of all flows grow together. When a link is full, the rates of its flows are
final, and the others grow on. So each flow has a bottleneck: a full link on which no flow has a higher rate.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush

SAME = 1 + 1e-12
"""Factor within which two rates are equal. Flows of the same share get the same rate despite rounding."""


def max_min(capacities: Sequence[float], paths: Sequence[Sequence[int]]) -> tuple[list[float], list[float]]:
    """Return the rate of each flow, and the exact share of a flow on the link that limits it.

    A path lists the indices of the flow's links, each once.
    """
    left = list(capacities)
    flows_on: list[list[int]] = [[] for _ in left]
    for flow, path in enumerate(paths):
        for link in path:
            flows_on[link].append(flow)
    growing = list(map(len, flows_on))
    """Number of flows on each link whose rate is not final."""
    rates = [0.0] * len(paths)
    shares = [0.0] * len(paths)
    final = bytearray(len(paths))
    # A link's share grows while other links fill, so an old entry is a lower bound.
    heap = [(left[link] / count, link) for link, count in enumerate(growing) if count]
    heapify(heap)
    level = 0.0
    while heap:
        share, link = heappop(heap)
        if not growing[link]:
            continue
        now = left[link] / growing[link]
        if now > share * SAME and now > level * SAME:
            heappush(heap, (now, link))
            continue
        if now > level * SAME:
            level = now
        for flow in flows_on[link]:
            if final[flow]:
                continue
            final[flow] = 1
            rates[flow] = level
            shares[flow] = share
            for other in paths[flow]:
                left[other] -= level
                growing[other] -= 1
    return rates, shares
