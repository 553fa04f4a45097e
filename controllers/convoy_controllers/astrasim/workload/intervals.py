"""Computes the figures of a rank, such as its computing time, from the times of the nodes of its trace."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from convoy_controllers.astrasim.parameters import ComputeNode, Node
from convoy_controllers.astrasim.result import RankFigures


def union(intervals: Iterable[tuple[int, int]]) -> int:
    """Return the length of a union of intervals."""
    total = 0
    end = 0
    for start, stop in sorted(intervals):
        if stop > end:
            total += stop - max(start, end)
            end = stop
    return total


def figures(
    nodes: Mapping[int, Node], times: Mapping[int, tuple[int, int]], finish: int, gpu_time: int
) -> RankFigures:
    """Return the figures of a rank. `gpu_time` is the sum of the GPU nodes' durations."""
    compute, communication = [], []
    on_cpu = False
    for number, interval in times.items():
        node = nodes[number]
        if not isinstance(node, ComputeNode):
            communication.append(interval)
        elif node.on_cpu:
            on_cpu = True
        else:
            compute.append(interval)
    return RankFigures(
        finish=finish,
        exposed=finish - gpu_time,
        communication=union(communication) if communication else None,
        compute=union(compute) if compute else None,
        nodes=dict(times),
        on_cpu=on_cpu,
    )
