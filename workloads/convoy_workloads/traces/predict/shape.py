"""The shape of a data-parallel step, from the traces of its ranks: computation between its all-reduces.

The traces are replayed with links that take no time. So the starts of the all-reduces show computation alone.
A second replay with slow links shows whether computation waits for each all-reduce.
"""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from convoy_controllers.astrasim.step.shape import MOST_REDUCTIONS, Reduction, StepShape
from convoy_workloads.traces.attributes import value_of
from convoy_workloads.traces.findings import Finding, InvalidTrace, Rule
from convoy_workloads.traces.predict.contention import without_contention
from convoy_workloads.traces.predict.job import Job
from convoy_workloads.traces.predict.links import Links
from convoy_workloads.traces.predict.together import Together, replay_together
from convoy_workloads.traces.replay import Played
from convoy_workloads.traces.trace import Collective, collective_of, size_of

Reduced = frozenset[tuple[int, int]]
"""The all-reduces: number of the trace, and id of the node."""
_INSTANT = Links(0.0, 1e12)
_BACKWARD_SHARE = 2 / 3
"""Share of the backward pass in the computation before an only all-reduce: about twice the forward pass."""
_MOST_OTHER = 0.05
"""Share of the sent bytes that other communications than all-reduces may have. They are left out."""


@dataclass(frozen=True, slots=True)
class _Step:
    """One step of one rank. Times are microseconds since its start."""

    starts: tuple[float, ...]
    """Starts of the all-reduces."""
    ends: tuple[float, ...]
    sizes: tuple[int, ...]
    length: float


def shape_of(job: Job) -> StepShape:
    """Return the median step of all ranks. Raises InvalidTrace if it is no data-parallel step."""
    alone = without_contention(job)
    reduced = _reduced(job)
    steps = _most_common(list(_steps(replay_together(alone, _INSTANT), reduced)))
    if not steps or not steps[0].sizes:
        raise _error("no step has an all-reduce with bytes")
    sizes = steps[0].sizes
    if len(sizes) > MOST_REDUCTIONS:
        raise _error(f"a step has {len(sizes)} all-reduces, more than {MOST_REDUCTIONS}")
    starts = [statistics.median(one.starts[number] for one in steps) for number in range(len(sizes))]
    length = statistics.median(one.length for one in steps)
    first = min(starts[0], _first_seconds(starts, sizes))
    seconds = [first, *(max(0.0, after - before) for before, after in pairwise(starts))]
    return StepShape(
        tuple(Reduction(time / 1e6, size) for time, size in zip(seconds, sizes, strict=True)),
        (starts[0] - first) / 1e6,
        max(0.0, length - starts[-1]) / 1e6,
        _overlaps(alone, reduced, sizes, length),
    )


def _first_seconds(starts: Sequence[float], sizes: Sequence[int]) -> float:
    """Return the microseconds in which the first bucket's gradients come: at the rate of the others."""
    later = sum(sizes[1:])
    if not later:
        return starts[0] * _BACKWARD_SHARE
    return (starts[-1] - starts[0]) / later * sizes[0]


def _overlaps(job: Job, reduced: Reduced, sizes: Sequence[int], length: float) -> bool:
    """Return True if the next all-reduce starts before the end of the one before, on slow links."""
    slow = Links(0.0, max(min(sizes), 1) / max(length, 1.0))
    steps = [one for one in _steps(replay_together(job, slow), reduced) if one.sizes == tuple(sizes)]
    waits = [after >= end for one in steps for end, after in zip(one.ends, one.starts[1:], strict=False)]
    return sum(waits) * 2 < len(waits) or not waits


def _steps(played: Together, reduced: Reduced) -> Iterator[_Step]:
    """Yield the steps of each rank."""
    for rank, one in enumerate(played.replays):
        by_step = defaultdict[int, list[Played]](list)
        for each in one.played:
            step = value_of(each.node, "step")
            by_step[step if isinstance(step, int) else 0].append(each)
        starts = {number: min(each.start for each in found) for number, found in by_step.items()}
        for number, found in by_step.items():
            begin = starts[number]
            end = starts.get(number + 1, max(each.end for each in found))
            chosen = sorted(
                (each for each in found if (rank, each.node.id) in reduced),
                key=lambda each: (each.start, each.node.id),
            )
            yield _Step(
                tuple(each.start - begin for each in chosen),
                tuple(each.end - begin for each in chosen),
                tuple(size_of(each.node) for each in chosen),
                end - begin,
            )


def _most_common(steps: list[_Step]) -> list[_Step]:
    """Return the steps with the most common all-reduces. The first step may have other buckets."""
    if not steps:
        return []
    ((sizes, _),) = Counter(one.sizes for one in steps).most_common(1)
    return [one for one in steps if one.sizes == sizes]


def _reduced(job: Job) -> Reduced:
    """Return the all-reduces of all ranks, as numbers of traces and ids of nodes.

    Raises InvalidTrace if other communications send more than a few of the bytes.
    """
    found: set[tuple[int, int]] = set()
    sent, others = Counter[bool](), dict[str, None]()
    for transfer in job.transfers:
        nodes = [(number, job.traces[number].nodes[place]) for number, place in transfer.members]
        node = nodes[0][1]
        reduces = collective_of(node) is Collective.ALL_REDUCE and len(nodes) == len(job.traces)
        sent[reduces] += size_of(node)
        if reduces and size_of(node) > 0:
            found |= {(number, one.id) for number, one in nodes}
        elif size_of(node) > 0:
            others[node.name] = None
    if sent[False] > _MOST_OTHER * sum(sent.values()):
        shown = ", ".join(list(others)[:3])
        raise _error(
            f"the step is not data-parallel: it sends more than all-reduces of all ranks: {shown}; "
            "use convoy trace predict"
        )
    return frozenset(found)


def _error(text: str) -> InvalidTrace:
    return InvalidTrace([Finding(Rule.UNKNOWN_SIZE, text, None)])
