"""The durations of a run: of each GPU and of the links."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from convoy_controllers.astrasim.loadstore.fabric import route
from convoy_controllers.astrasim.loadstore.parameters import Gpu, Setup, Skew
from convoy_controllers.astrasim.loadstore.ticks import exact


@dataclass(frozen=True, slots=True)
class GpuTiming:
    """The durations of a GPU in ns."""

    issue: Fraction
    cache: Fraction
    memory: Fraction
    reduce: Fraction
    barrier: Fraction
    launch: Fraction


@dataclass(frozen=True, slots=True)
class LinkTiming:
    """The durations of a link in ns."""

    latency: Fraction
    byte: Fraction
    burst: Fraction
    """Time in which the link carries the bytes of a full token bucket."""


def gpu_timing(gpu: Gpu, slow: float = 1.0, delay: float = 0.0) -> GpuTiming:
    """Return the durations of a GPU that is `slow` times slower and launches `delay` ns later."""
    factor = exact(slow)
    return GpuTiming(
        issue=exact(gpu.issue) * factor,
        cache=exact(gpu.cache) * factor,
        memory=exact(gpu.memory) * factor,
        reduce=exact(gpu.reduce) * factor,
        barrier=exact(gpu.barrier) * factor,
        launch=exact(gpu.launch) * factor + exact(delay),
    )


def gpu_timings(setup: Setup, skew: Skew | None) -> list[GpuTiming]:
    """Return the durations of each GPU; without skew, of one for all."""
    if skew is None:
        return [gpu_timing(setup.gpu)]
    return [gpu_timing(setup.gpu, slow, delay) for slow, delay in zip(skew.slow, skew.launch, strict=True)]


def link_timing(setup: Setup) -> LinkTiming:
    """Return the durations of a link."""
    byte = 1 / exact(setup.links.bandwidth)
    return LinkTiming(exact(setup.links.latency), byte, setup.links.burst * byte)


def window_time(requests: int, outstanding: int, cycle: Fraction, pace: Fraction) -> Fraction:
    """Return the time of a workgroup that has the path for itself.

    Each request holds one of `outstanding` places for `cycle`, and at least `pace` lies between two requests.
    """
    rounds, rest = divmod(requests - 1, outstanding)
    return max(rounds * cycle + rest * pace, (requests - 1) * pace) + cycle


def local_time(gpu: GpuTiming, requests: int, outstanding: int) -> Fraction:
    """Return the time in which a workgroup loads and reduces lines of its own memory."""
    cycle = 2 * gpu.cache + gpu.memory + gpu.reduce
    return window_time(requests, outstanding, cycle, max(gpu.issue, gpu.reduce))


def path_latency(setup: Setup, link: LinkTiming, peer: int) -> Fraction:
    """Return the latency of the links to a peer."""
    return link.latency * len(route(setup.links.fabric, setup.links.gpus, peer))
