"""Times of operators without the communications that ran beside them.

A communication takes processor time and memory bandwidth, so that an operator beside it takes longer than
alone. On other links, or with other buckets, other operators stand beside it.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterator

from convoy_workloads.traces.intervals import union
from convoy_workloads.traces.predict.job import Job, job_of
from convoy_workloads.traces.trace import Trace, is_communication
from convoy_workloads.traces.wire.chakra_pb2 import Node


def without_contention(job: Job) -> Job:
    """Return the job with operators that take as long as those of their kind without a communication.

    Operators of a kind have one name and one shape of inputs. An operator that ran beside a communication of
    its rank gets the median time of those that did not, if it took longer. A kind that always ran beside
    communications keeps its times.
    """
    return job_of([_alone(job, number) for number in range(len(job.traces))], job.offsets)


def _alone(job: Job, number: int) -> Trace:
    trace, beside = job.traces[number], _beside(job, number)
    alone = defaultdict[tuple[str, str], list[int]](list)
    for place, node in enumerate(trace.nodes):
        if place not in beside:
            alone[_kind(node)].append(node.duration_micros)
    usual = {kind: round(statistics.median(times)) for kind, times in alone.items()}
    nodes = [
        _shorter(node, usual.get(_kind(node))) if place in beside and not is_communication(node) else node
        for place, node in enumerate(trace.nodes)
    ]
    return Trace(nodes, trace.metadata, trace.rank)


def _kind(node: Node) -> tuple[str, str]:
    return node.name, node.inputs.shapes


def _shorter(node: Node, usual: int | None) -> Node:
    """Return the node with its usual time, or itself if that is unknown or not shorter."""
    if usual is None or usual >= node.duration_micros:
        return node
    changed = Node()
    changed.CopyFrom(node)
    changed.duration_micros = usual
    return changed


def _beside(job: Job, number: int) -> set[int]:
    """Return the places of a trace's nodes that ran while a communication of its rank was under way."""
    nodes = job.traces[number].nodes
    spans = sorted((node.start_time_micros, node.start_time_micros + node.duration_micros, place)
                   for place, node in enumerate(nodes))  # fmt: skip
    busy = list(union(_under_way(job, number)))
    found, first = set[int](), 0
    for start, end, place in spans:
        while first < len(busy) and busy[first][1] <= start:
            first += 1
        if first < len(busy) and busy[first][0] < end:
            found.add(place)
    return found


def _under_way(job: Job, number: int) -> Iterator[tuple[float, float]]:
    """Yield the start and end of each communication of the rank, on the clock of its trace."""
    nodes = job.traces[number].nodes
    for one in job.transfers:
        for trace, place in one.members:
            if trace == number:
                start = nodes[place].start_time_micros
                yield start, start + nodes[place].duration_micros
