"""Texts about the placement of a job's pods. The command line and the dashboard use the same texts."""

from __future__ import annotations

from collections import Counter

from convoy_crds.placement import (
    GangBackend,
    KeyPlacement,
    Pack,
    PlacementAdvice,
    PlacementStatus,
    QueueState,
    QueueStatus,
    RankedPlace,
)
from convoy_crds.summaries import shorten_list
from convoy_crds.trainingjob import TrainingJob

MAX_CLAIMANTS = 3
"""Maximum number of jobs with claimed pods that a text names."""


def key_label(key: str) -> str:
    """Return the short name of a topology key, such as `rack`."""
    return key.rsplit("/", 1)[-1]


def domains(found: KeyPlacement) -> str:
    """Return the number of domains of a key, such as `2 racks`."""
    return f"{found.domains} {key_label(found.key)}{'s' if found.domains != 1 else ''}"


def placement_lines(job: TrainingJob) -> list[tuple[str, str]]:
    """Return label and text of each fact about the job's placement. A job without gang scheduler, topology
    keys, queue and claims has none.
    """
    placed, wanted = job.status.placement or PlacementStatus(), job.spec.placement
    lines = []
    if wanted.topology_keys and wanted.pack is not Pack.NONE:
        near = key_label(wanted.topology_keys[0])
        required = wanted.pack is Pack.REQUIRED
        lines.append(
            ("Packing", f"Required: all pods in one {near}" if required else f"Preferred: few {near}s")
        )
    if placed.keys:
        lines.append(("Domains", ", ".join(map(domains, placed.keys))))
    if placed.hops is not None:
        lines.append(("Ring hops", str(placed.hops)))
    if placed.advice is not None:
        lines += advice_lines(placed.advice)
    if placed.gang not in (None, GangBackend.NONE):
        lines.append(("Gang", f"{placed.gang}, PodGroup {placed.group}"))
    if placed.queue is not None:
        lines.append(("Queue", queue(placed.queue)))
    if placed.claims:
        lines.append(("Room made by", claims(placed)))
    return lines


def advice_lines(advice: PlacementAdvice) -> list[tuple[str, str]]:
    """Return label and text of the compared places, and of the predicted and the measured step."""
    lines = []
    if advice.skipped:
        lines.append(("Places", f"not compared: {advice.skipped}"))
    if advice.places:
        lines.append(("Places", "; ".join(_place(one, advice.chosen) for one in advice.places)))
    if advice.predicted_ms is not None:
        text = f"{advice.predicted_ms:.4g} ms"
        if advice.measured_ms is not None and advice.error_percent is not None:
            text += f", measured {advice.measured_ms:.4g} ms ({advice.error_percent:+.0f} %)"
        lines.append(("Predicted step", text))
    return lines


def _place(one: RankedPlace, chosen: str) -> str:
    """Return a place with its predicted step, such as `packed: 52 ms (here), busiest link ...`."""
    link = f", busiest link {one.bottleneck}" if one.bottleneck else ""
    return f"{one.name}: {one.step_ms:.4g} ms{' (here)' if one.name == chosen else ''}{link}"


def queue(found: QueueStatus) -> str:
    """Return the state of a job in its queue, such as `team-a: Admitted by research`."""
    text = f"{found.name}: {found.state}"
    if found.state is QueueState.ADMITTED and found.cluster_queue:
        text += f" by {found.cluster_queue}"
    evictions = f"{found.evictions} eviction{'s' if found.evictions != 1 else ''}"
    return f"{text}, {evictions} so far" if found.evictions else text


def claims(placed: PlacementStatus) -> str:
    """Return the number of pods that each of the other jobs gives up, such as `2 pods of team/low`."""
    counts = Counter(f"{one.namespace}/{one.job}" for one in placed.claims)
    named = [f"{count} pod{'s' if count != 1 else ''} of {name}" for name, count in sorted(counts.items())]
    return shorten_list(named, MAX_CLAIMANTS)


def short(job: TrainingJob) -> str:
    """Return the placement in a few words for a table: the state in the queue until the job is admitted,
    then the domains and hops. Return an empty text if there is nothing to show.
    """
    placed = job.status.placement
    if placed is None:
        return ""
    if placed.queue is not None and placed.queue.state is not QueueState.ADMITTED:
        return f"queue {placed.queue.name}: {placed.queue.state}"
    return placed.summary
