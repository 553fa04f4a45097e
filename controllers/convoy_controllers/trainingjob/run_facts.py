"""Merges the facts of a run that its ranks report, for advice. Pure.

A figure in the status changes only if it has moved far, because each change is a write to the API server.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from convoy_controllers.advice.requests import is_accelerator
from convoy_controllers.advice.usage import LEAST_SECONDS
from convoy_controllers.run_view import RunView
from convoy_controllers.views import PodView, RankView, SlotView
from convoy_crds.advice import MAX_FOLDERS, DataFolder, RunFacts, Usage

STEADY = 0.2
"""Smallest relative change of a figure for which the status is updated."""


def merged(
    stored: RunFacts | None, incarnation: int, views: Mapping[str, SlotView], pods: Iterable[PodView]
) -> RunFacts | None:
    """Return the facts for the status. Facts that no rank of this incarnation reports stay as they are."""
    slots = [view for view in views.values() if view.incarnation == incarnation]
    ranks = [rank for view in slots for rank in view.ranks]
    known = stored or RunFacts()
    own = {pod.uid: pod for pod in pods}
    measured = [
        (own[view.pod_uid], rank.facts)
        for view in slots
        for rank in view.ranks
        if rank.facts is not None and rank.facts.seconds >= LEAST_SECONDS and view.pod_uid in own
    ]
    found = RunFacts(
        data=_data(ranks) or known.data,
        save_seconds=_steady(known.save_seconds, max((one.save_seconds for one in ranks), default=0.0)),
        copy_seconds=_steady(known.copy_seconds, max((one.copy_seconds for one in ranks), default=0.0)),
        processors=_steady_usage(known.processors, _processors(measured)),
        accelerators=_steady_usage(known.accelerators, _accelerators(measured)),
    )
    return None if found == RunFacts() else found


def _data(ranks: Iterable[RankView]) -> list[DataFolder]:
    """Return the data folders that the first reporting rank saw."""
    first = next((rank.facts for rank in ranks if rank.facts is not None and rank.facts.folders), None)
    return [
        DataFolder(path=one.path, files=one.files, median_bytes=one.median_bytes)
        for one in (first.folders if first is not None else ())[:MAX_FOLDERS]
    ]


def _processors(measured: Sequence[tuple[PodView, RunView]]) -> Usage | None:
    asking = [(pod, facts) for pod, facts in measured if pod.cpu_millicores]
    requested = sum(pod.cpu_millicores for pod, _ in asking) / 1000
    used = sum(facts.cpu_seconds / facts.seconds for _, facts in asking)
    return _usage(requested, used, [facts for _, facts in asking])


def _accelerators(measured: Sequence[tuple[PodView, RunView]]) -> Usage | None:
    asking = [(_devices(pod), facts) for pod, facts in measured if facts.accelerators and _devices(pod)]
    requested = sum(count for count, _ in asking)
    used = sum(count * facts.accelerator_seconds / facts.seconds for count, facts in asking)
    return _usage(requested, used, [facts for _, facts in asking])


def _usage(requested: float, used: float, measured: Sequence[RunView]) -> Usage | None:
    if not measured:
        return None
    seconds = min(one.seconds for one in measured)
    return Usage(requested=round(requested, 3), used=round(used, 3), seconds=int(seconds))


def _devices(pod: PodView) -> float:
    """Return the number of accelerators that a pod requests."""
    return sum(amount for name, amount in pod.requests.items() if is_accelerator(name)) / 1000


def _steady(known: float | None, fresh: float) -> float | None:
    """Return a figure for the status, with three digits. `fresh` is 0 if nothing is measured."""
    if not fresh or (known and abs(fresh - known) < STEADY * known):
        return known
    return float(f"{fresh:.3g}")


def _steady_usage(known: Usage | None, fresh: Usage | None) -> Usage | None:
    if fresh is None or known is None or known.requested != fresh.requested:
        return fresh or known
    return known if abs(fresh.used - known.used) < STEADY * max(known.used, 0.01) else fresh
