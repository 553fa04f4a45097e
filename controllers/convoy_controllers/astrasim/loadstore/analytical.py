"""The time of a run in closed form.

A transfer of `n` lines by each of G workgroups has the round-trip time C of a line, W lines in flight for
each workgroup, and the time s of a line on the busiest link.

Where full windows saturate the link, G W s >= C or n <= W, the link never idles: the transfer ends G n s
after its first line, plus the flight of the last one.

Otherwise a workgroup needs

    alone = max(floor((n - 1) / W) C + ((n - 1) mod W) p,  (n - 1) p) + C      with p = max(issue, s)

and the last one ends (G - 1) W s later, because all start at the same time. So for large n the transfer
approaches max(G n s, n C / W): bandwidth, or Little's law.

Where the GPU synchronises, the phases follow each other, with barriers. Where workgroups synchronise alone,
phases overlap by the distance between the ends of the first and of the last workgroup; and the time is at
least that of all lines on the link.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from convoy_controllers.astrasim.loadstore.algorithms import Phase, phases
from convoy_controllers.astrasim.loadstore.fabric import busiest
from convoy_controllers.astrasim.loadstore.parameters import Access, Setup, Sync
from convoy_controllers.astrasim.loadstore.program import active_workgroups
from convoy_controllers.astrasim.loadstore.timing import (
    GpuTiming,
    LinkTiming,
    gpu_timing,
    link_timing,
    local_time,
    path_latency,
    window_time,
)


@dataclass(frozen=True, slots=True)
class PhaseTime:
    """The times of a phase in ns."""

    together: Fraction
    """Transfer of all workgroups."""
    spread: Fraction
    """Distance between the ends of the first and of the last workgroup."""
    link: Fraction
    """All lines on the busiest link, less a full token bucket."""
    flight: Fraction
    """From the end of the last line's transmission until the sender knows, or has reduced the line."""
    flags: Fraction
    """Flags and wait."""
    reduce: Fraction
    """Reductions from the own memory."""


def time(setup: Setup) -> Fraction:
    """Return the time of a run in ns."""
    timing = gpu_timing(setup.gpu)
    link = link_timing(setup)
    parts = [_phase(setup, timing, link, one) for one in phases(setup)]
    rest = sum((one.flags + one.reduce for one in parts), Fraction(0))
    if setup.sync is Sync.GPU:
        # A load needs no barrier before the first flag.
        barriers = 2 * len(parts) - (setup.access is Access.GET)
        return timing.launch + sum((one.together for one in parts), rest) + barriers * timing.barrier
    one_by_one = sum((one.together for one in parts), rest) - _overlap(setup, timing, link, parts)
    busy = sum((one.link for one in parts), Fraction(0)) + max(
        one.flight + one.flags + one.reduce for one in parts
    )
    return timing.launch + max(one_by_one, busy)


def _overlap(setup: Setup, timing: GpuTiming, link: LinkTiming, parts: list[PhaseTime]) -> Fraction:
    """Return the time by which phases overlap: workgroups that end one early begin the next one early.

    Without an issue rate each workgroup queues a whole window of lines, so the workgroups end far apart. With
    one, their lines alternate at first. The distance then grows from phase to phase, because within it all
    workgroups issue lines, and the link sends them one by one.
    """
    groups = active_workgroups(setup)
    line = _line_time(setup, link, phases(setup)[0])
    apart = (groups - 1) * line if timing.issue else parts[0].spread
    growth = max(Fraction(1), groups * line / timing.issue) if timing.issue else Fraction(1)
    overlap = Fraction(0)
    for one in parts[:-1]:
        apart = min(apart, one.spread)
        overlap += apart
        apart *= growth
    return overlap


def throughput(setup: Setup) -> Fraction:
    """Return the bytes per ns that a GPU moves to or from one of its peers in a long transfer, by Little's
    law and the bandwidth, whichever is less.
    """
    timing, link = gpu_timing(setup.gpu), link_timing(setup)
    phase = phases(setup)[0]
    line = _line_time(setup, link, phase)
    cycle = _cycle(setup, timing, link, phase)
    gpu = setup.gpu
    groups = active_workgroups(setup)
    return gpu.line / max(line, cycle / (groups * gpu.outstanding), timing.issue / groups)


def _phase(setup: Setup, timing: GpuTiming, link: LinkTiming, phase: Phase) -> PhaseTime:
    gpu = setup.gpu
    groups = active_workgroups(setup)
    peers = len(phase.peers)
    lines = -(-phase.size // gpu.line)
    mine = -(-lines // groups) * peers
    line = _line_time(setup, link, phase)
    cycle = _cycle(setup, timing, link, phase)
    loads = setup.access is Access.GET
    pace = max(timing.issue, timing.reduce) if loads and phase.reduces else timing.issue
    header = setup.links.header
    whole = _busiest(setup, phase, phase.size + lines * header, lines * header) * link.byte
    farthest = max(path_latency(setup, link, peer) for peer in phase.peers)
    near = farthest + timing.cache + timing.memory + header * link.byte
    flight = cycle - _own(setup, link)
    window = min(mine, gpu.outstanding)
    saturated = mine <= gpu.outstanding or groups * gpu.outstanding * line >= cycle
    # Without rounding, so that a line more never makes the phases overlap more than it adds.
    mean = Fraction(lines * peers, groups)
    last = min(mean, Fraction(window))
    if saturated and mean > window:
        last = (mean - 1) % window + 1
    behind = (groups - 1) * window * line
    alone = window_time(mine, gpu.outstanding, cycle, max(pace, line))
    busy = max(Fraction(0), whole - link.burst)
    return PhaseTime(
        together=max(busy + flight, alone if saturated else alone + max(Fraction(0), behind - link.burst)),
        spread=max(Fraction(0), (groups - 1) * last * line - link.burst),
        link=busy,
        flight=flight,
        flags=max(peers * timing.issue, (peers - 1) * timing.issue + near) + timing.cache,
        reduce=local_time(timing, mine, gpu.outstanding) if phase.reduces and not loads else Fraction(0),
    )


def _own(setup: Setup, link: LinkTiming) -> Fraction:
    """Return the transmission time of a line, with its header."""
    return (setup.gpu.line + setup.links.header) * link.byte


def _line_time(setup: Setup, link: LinkTiming, phase: Phase) -> Fraction:
    """Return the time of a line on the busiest link, if lines go to the peers in turn."""
    header = setup.links.header
    return _busiest(setup, phase, setup.gpu.line + header, header) * link.byte / len(phase.peers)


def _busiest(setup: Setup, phase: Phase, data: int, control: int) -> int:
    return busiest(setup.links.fabric, setup.links.gpus, phase.peers, data, control)


def _cycle(setup: Setup, timing: GpuTiming, link: LinkTiming, phase: Phase) -> Fraction:
    """Return the time in which a line holds its place: there and back, its transmission, its reduction."""
    latency = sum((path_latency(setup, link, peer) for peer in phase.peers), Fraction(0)) / len(phase.peers)
    reduce = timing.reduce if phase.reduces and setup.access is Access.GET else Fraction(0)
    back = setup.links.header * link.byte
    return 2 * timing.cache + timing.memory + 2 * latency + _own(setup, link) + back + reduce
