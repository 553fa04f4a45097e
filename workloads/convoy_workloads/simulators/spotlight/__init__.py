"""The simulator spotlight: the engine spotlight on a virtual cluster, with real gradient steps.

It gives the time and the cost to a held-out reward, and the use of the spot nodes.
"""

from __future__ import annotations

from convoy_crds.perturbations import PerturbationKind
from convoy_workloads.simulators.perturbation import Perturbation
from convoy_workloads.simulators.simulator import Outcome, Simulator
from convoy_workloads.simulators.spotlight.params import Params


def simulate(params: Params, seed: int, perturbation: Perturbation | None) -> Outcome:
    """Run the simulation. torch is imported with the first run, as the command line loads this module."""
    from convoy_workloads.simulators.spotlight.simulation import outcome  # noqa: PLC0415

    return outcome(params, seed, perturbation)


SIMULATOR = Simulator(
    name="spotlight",
    params=Params,
    figures={
        "hoursToTarget": "h",
        "costToTarget": "",
        "iterationsToTarget": "",
        "tuningHours": "h",
        "rewardAtTime": "",
        "rewardAtSpend": "",
        "zeroContrastRatio": "ratio",
        "exploredSeeds": "",
        "rankCorrelation": "",
        "staleTrips": "",
        "idleSpotRatio": "ratio",
        "lostSpotRatio": "ratio",
        "regroupSpotRatio": "ratio",
        "resumedRequests": "",
        "duplicates": "",
        "residual": "",
        "offeredNodeHours": "h",
    },
    perturbations=frozenset({PerturbationKind.SPOT_TRACE, PerturbationKind.BOOT_DELAY}),
    run=simulate,
)
