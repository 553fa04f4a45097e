"""Plays the step and computes the figures."""

from __future__ import annotations

from statistics import fmean

from convoy_controllers.astrasim.parameters import ComputeNode
from convoy_controllers.astrasim.run import run
from convoy_workloads.simulators.astrasim.params import Params
from convoy_workloads.simulators.astrasim.step import step
from convoy_workloads.simulators.perturbation import Perturbation
from convoy_workloads.simulators.simulator import InvalidSimulation, Outcome

_NS = 1e9


def simulate(params: Params, seed: int, perturbation: Perturbation | None) -> Outcome:
    """Simulate one step and return its figures: those of the last rank, or means over the ranks.

    `bottleneckUtilisation` is 0 without links.
    """
    simulation = step(params, seed, perturbation)
    result = run(simulation)
    if result.findings:
        raise InvalidSimulation(f"the step cannot end: {result.findings[0]}")
    ranks = [one for one in result.ranks if one is not None]
    finish = max(one.finish for one in ranks)
    exposed = fmean(one.exposed for one in ranks)
    offered = step(params, seed, None).workload.ranks
    figures = {
        "stepSeconds": finish / _NS,
        "computeSeconds": fmean(one.compute or 0 for one in ranks) / _NS,
        "communicationSeconds": fmean(one.communication or 0 for one in ranks) / _NS,
        "exposedSeconds": exposed / _NS,
        "exposedShare": exposed / fmean(one.finish for one in ranks),
        "messages": float(result.messages),
        "sentBytes": float(result.message_bytes),
        "bottleneckUtilisation": result.links[0].utilisation if result.links else 0.0,
        "offeredComputeSeconds": fmean(
            sum(node.duration_us for node in nodes if isinstance(node, ComputeNode)) for nodes in offered
        )
        / 1e6,
    }
    return Outcome(figures, achieved=None if perturbation is None else perturbation.magnitude)
