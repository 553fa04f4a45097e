"""The simulator recovery: one TrainingJob under faults on a simulated cluster.

The operator's own code decides about the job (`convoy_controllers.simulate`). `scenario.py` makes the job,
the nodes and the faults from the parameters and the seed, and `simulation.py` computes the figures.
"""

from __future__ import annotations

from convoy_crds.perturbations import PerturbationKind
from convoy_workloads.simulators.recovery.params import Params
from convoy_workloads.simulators.recovery.simulation import simulate
from convoy_workloads.simulators.simulator import Simulator

SIMULATOR = Simulator(
    name="recovery",
    params=Params,
    figures={
        "goodput": "ratio",
        "seconds": "s",
        "lostSeconds": "s",
        "restarts": "",
        "completedSteps": "",
        "offeredFaults": "",
    },
    perturbations=frozenset(
        {
            PerturbationKind.KILL_RANK,
            PerturbationKind.KILL_POD,
            PerturbationKind.NODE_LOSS,
            PerturbationKind.SLOW_NODE,
            PerturbationKind.SLOW_RANK,
        }
    ),
    run=simulate,
)
