"""The simulator allocation: nodes on which jobs reserve cores and memory before they start.

`cluster.py` is the loop, `workload.py` the jobs, `telemetry.py` the measurements of earlier jobs,
`sizing.py` the rules for the reserved amount, `policies.py` the orders and `learned.py` the learned policy.

A job that reserves too little memory runs out of it and starts again later with more. A job that reserves too
few cores runs longer. A job that reserves too much keeps others waiting.
"""

from __future__ import annotations

from convoy_crds.perturbations import PerturbationKind
from convoy_workloads.simulators.allocation.params import Params
from convoy_workloads.simulators.allocation.simulation import simulate
from convoy_workloads.simulators.simulator import Simulator

SIMULATOR = Simulator(
    name="allocation",
    params=Params,
    figures={
        "meanSlowdown": "ratio",
        "p95Slowdown": "ratio",
        "slackPercent": "percent",
        "kills": "",
        "offered": "s",
    },
    perturbations=frozenset(
        {
            PerturbationKind.OBSERVATION_LAG,
            PerturbationKind.TELEMETRY_NOISE,
            PerturbationKind.WORKLOAD_SHIFT,
            PerturbationKind.TENANT,
        }
    ),
    run=simulate,
)
