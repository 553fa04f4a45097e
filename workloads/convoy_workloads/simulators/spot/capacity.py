"""Makes the trace of a run from its parameters, its seed and its perturbation."""

from __future__ import annotations

from collections.abc import Sequence

from convoy_crds.perturbations import PerturbationKind
from convoy_workloads.simulators.perturbation import Perturbation
from convoy_workloads.simulators.simulator import InvalidSimulation
from convoy_workloads.simulators.spot.params import Params
from convoy_workloads.spot.availability import PRESETS
from convoy_workloads.spot.trace import (
    SECONDS_PER_HOUR,
    Notices,
    SpotTrace,
    from_counts,
    join,
    steady,
)
from convoy_workloads.spot.trace_csv import SHIPPED

Counts = Sequence[tuple[float, int]]


def trace(params: Params, seed: int, perturbation: Perturbation | None) -> SpotTrace:
    """Return the spot nodes of a run. Raises InvalidSimulation if the perturbation needs the model."""
    found = base_trace(params, seed)
    if perturbation is None or perturbation.kind is not PerturbationKind.SPOT_TRACE:
        return found
    if params.trace not in PRESETS:
        raise InvalidSimulation(
            f"params.trace: SpotTrace changes the model; {params.trace} is a recorded trace, so use one of "
            f"{', '.join(PRESETS)}"
        )
    start = min(perturbation.start, found.seconds)
    end = min(perturbation.end, found.seconds)
    if end <= start:
        return found
    inside = _model(params, seed, perturbation.magnitude).window(start, end - start)
    parts = [found.window(0.0, start), inside, found.window(end, found.seconds - end)]
    first, *rest = [part for part in parts if part.seconds > 0]
    for part in rest:
        first = join(first, part)
    return first


def achieved(found: SpotTrace, perturbation: Perturbation) -> float | None:
    """Return the losses per node-hour within the perturbation; None if no node was there."""
    end = min(perturbation.end, found.seconds)
    if end <= perturbation.start:
        return None
    figures = found.window(perturbation.start, end - perturbation.start).figures()
    return figures.losses_per_node_hour if figures.node_hours else None


def base_trace(params: Params, seed: int) -> SpotTrace:
    """Return the spot nodes of a run without a perturbation."""
    if params.trace in PRESETS:
        return _model(params, seed, None)
    return recorded(SHIPPED[params.trace].counts(), params, seed)


def recorded(counts: Counts, params: Params, seed: int) -> SpotTrace:
    """Return a recorded trace with at most the wanted number of nodes. It repeats until the end.

    With more nodes than the recorded trace has, each recorded node stands for several.
    """
    start, length = counts[0][0], counts[-1][0] - counts[0][0]
    most = max(count for _, count in counts)
    seconds = params.hours * SECONDS_PER_HOUR
    repeated: dict[float, int] = {}
    for turn in range(int(seconds // length) + 1):
        for time, count in counts:
            at = turn * length + time - start
            if at < seconds:
                repeated[at] = round(count * params.nodes / most)
    return from_counts(list(repeated.items()), seconds, _notices(params), seed)


def _model(params: Params, seed: int, losses: float | None) -> SpotTrace:
    model = PRESETS[params.trace]
    if losses == 0:
        return steady(params.nodes, params.hours * SECONDS_PER_HOUR)
    if losses is not None:
        model = model.with_losses(losses)
    return model.trace(params.nodes, params.zones, params.hours, seed, _notices(params))


def _notices(params: Params) -> Notices:
    return Notices(params.notice_seconds, params.notice_share)
