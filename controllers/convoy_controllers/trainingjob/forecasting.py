"""Compares places for a job's pods by their predicted steps, and the prediction with the measured step.

The comparison never delays the job: pods that are created before all simulations have ended get the place
that packing chooses. The ranking then shows whether the next start will prefer another place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from convoy_controllers.placement.forecast.candidates import Candidate
from convoy_controllers.placement.forecast.case import MOST_RANKS, Case, case_of
from convoy_controllers.placement.forecast.links import UnknownLink
from convoy_controllers.placement.forecast.ranking import rank
from convoy_controllers.placement.topology import along, topology
from convoy_controllers.trainingjob.observed import Compared
from convoy_controllers.trainingjob.status import Draft
from convoy_controllers.views import PodView
from convoy_crds.layout import Slot, present, slots, world_size
from convoy_crds.placement import Advise, PlacementAdvice, PlacementStatus, Step
from convoy_crds.reasons.catalogue import Reasons

SCHEDULER = "the scheduler or the queue chooses the nodes, see spec.placement.gang and the queue's topology"


def wanted(draft: Draft) -> bool:
    """Return True if the job asks for a comparison."""
    placement = draft.observed.job.spec.placement
    return placement.advise is Advise.SIMULATE and placement.step is not None


def skip(draft: Draft, why: str) -> None:
    """Record that the places cannot be compared, with an Event if they could be before."""
    advice = _advice(draft)
    if not advice.skipped:
        draft.event(Reasons.ADVICE_SKIPPED, Reasons.ADVICE_SKIPPED.format(why=why))
    advice.skipped, advice.places, advice.chosen = why, [], ""


def chooser(draft: Draft) -> Callable[[Sequence[Candidate]], Candidate | None] | None:
    """Return the function that chooses one of several candidates; None if the job does not ask for it, or has
    too many ranks.
    """
    if not wanted(draft):
        return None
    if (ranks := world_size(slots(draft.observed.job))) > MOST_RANKS:
        skip(draft, f"the job has {ranks} ranks, more than the {MOST_RANKS} that are simulated")
        return None
    return partial(_best, draft)


def _best(draft: Draft, found: Sequence[Candidate]) -> Candidate | None:
    """Return the candidate with the shortest predicted step, and record the ranking in the status. Return
    None while a simulation is missing, and if the places cannot be compared.
    """
    observed = draft.observed
    labels = {name: room.node.labels for name, room in (observed.rooms or {}).items()}
    layout = slots(observed.job)
    if not found:
        return None
    try:
        cases = [_case(draft, _rank_nodes(draft, layout, one, labels), labels) for one in found]
    except UnknownLink as error:
        skip(draft, str(error))
        return None
    draft.compared = tuple(zip((one.name for one in found), cases, strict=True))
    _advice(draft).skipped, _advice(draft).places, _advice(draft).chosen = "", [], ""
    index = _rank(draft, draft.compared)
    if index is None:
        return None
    _advice(draft).chosen = found[index].name
    return found[index]


def _rank(draft: Draft, compared: Compared) -> int | None:
    """Record the ranking of these places in the status, and return the index of the best one. Return None
    while a simulation is missing, and if none has succeeded.
    """
    ranking = rank([name for name, _ in compared], [case for _, case in compared], draft.observed.forecasts)
    draft.simulate += ranking.missing
    if ranking.missing:
        return None
    if ranking.best is None:
        skip(draft, ranking.failure)
        return None
    advice = _advice(draft)
    advice.skipped, advice.places = "", list(ranking.places)
    return ranking.best


def show(draft: Draft, own: Mapping[str, PodView]) -> None:
    """Set the prediction for the nodes where the ranks run, and the measured step beside it. Without
    `advise: Simulate`, remove all advice.
    """
    status = draft.status
    if not wanted(draft):
        if status.placement is not None:
            status.placement.advice = None
        return
    _show_ranking(draft)
    if status.formed:
        _show_prediction(draft, own)


def _show_ranking(draft: Draft) -> None:
    """Record the ranking of the last start, if its pods were created before the simulations had ended."""
    compared, advice = draft.observed.compared, _advice(draft)
    if draft.compared or not compared or advice.places:
        return
    best = _rank(draft, compared)
    if best is None:
        return
    advice.chosen = compared[0][0]
    times = {place.name: f"{place.step_ms:.4g}" for place in advice.places}
    if best and advice.chosen in times:
        name = compared[best][0]
        facts = {"own": times[advice.chosen], "place": name, "other": times[name]}
        draft.event(Reasons.PLACE_ADVISED, Reasons.PLACE_ADVISED.format(**facts))


def _show_prediction(draft: Draft, own: Mapping[str, PodView]) -> None:
    """Set the prediction for the nodes where the ranks run, and the measured step."""
    status, observed = draft.status, draft.observed
    layout = present(observed.job.model_copy(update={"status": status}))
    pods = [(own.get(slot.pod), slot.processes) for slot in layout]
    nodes = [pod.node or "" for pod, processes in pods if pod is not None for _ in range(processes)]
    if world_size(layout) > MOST_RANKS or len(nodes) < world_size(layout) or not all(nodes):
        return
    labels = {name: node.labels for name, node in observed.nodes.items()}
    try:
        case = _case(draft, nodes, labels)
    except UnknownLink as error:
        skip(draft, str(error))
        return
    advice, forecast = _advice(draft), observed.forecasts.get(case)
    if forecast is None:
        draft.simulate.append(case)
        return
    advice.predicted_ms = round(forecast.step_ms, 3) if not forecast.failure else None
    pace = observed.pace
    if pace is None or pace.incarnation != status.incarnation:
        return
    advice.measured_ms = round(pace.seconds * 1e3, 3)
    if advice.predicted_ms is not None and advice.measured_ms > 0:
        difference = advice.predicted_ms - advice.measured_ms
        advice.error_percent = round(100 * difference / advice.measured_ms, 1)


def _advice(draft: Draft) -> PlacementAdvice:
    placed = draft.status.placement or PlacementStatus()
    placed.advice = placed.advice or PlacementAdvice()
    draft.status.placement = placed
    return placed.advice


def _case(draft: Draft, nodes: Sequence[str], labels: Mapping[str, Mapping[str, str]]) -> Case:
    placement = draft.observed.job.spec.placement
    used = {name: labels.get(name, {}) for name in nodes}
    step = placement.step or Step(gradient_bytes=1)
    return case_of(step, nodes, topology(placement.topology_keys, used), used)


def _rank_nodes(
    draft: Draft, layout: Sequence[Slot], candidate: Candidate, labels: Mapping[str, Mapping[str, str]]
) -> list[str]:
    """Return the node of each rank, if the pods ran on the candidate's nodes: each role's ranks are numbered
    along the topology.
    """
    found: list[str] = []
    keys = draft.observed.job.spec.placement.topology_keys
    for role in dict.fromkeys(slot.role for slot in layout):
        processes = next(slot.processes for slot in layout if slot.role == role)
        nodes = list(candidate.choice.nodes.get(role, ()))
        places = topology(keys, {name: labels[name] for name in nodes})
        found += [nodes[index] for index in along(nodes, places) for _ in range(processes)]
    return found
