"""The simulator astrasim: a data-parallel training step on a network model.

`params.py` describes network, collectives and step, `step.py` makes the nodes of each rank from them and the
seed, and `simulation.py` computes the figures. `convoy_controllers.astrasim` plays the step.
"""

from __future__ import annotations

from convoy_crds.perturbations import PerturbationKind
from convoy_workloads.simulators.astrasim.params import Params
from convoy_workloads.simulators.astrasim.simulation import simulate
from convoy_workloads.simulators.simulator import Simulator

SIMULATOR = Simulator(
    name="astrasim",
    params=Params,
    figures={
        "stepSeconds": "s",
        "computeSeconds": "s",
        "communicationSeconds": "s",
        "exposedSeconds": "s",
        "exposedShare": "ratio",
        "messages": "",
        "sentBytes": "",
        "bottleneckUtilisation": "ratio",
        "offeredComputeSeconds": "s",
    },
    perturbations=frozenset({PerturbationKind.SLOW_RANK}),
    run=simulate,
)
