"""The simulator dag-scheduling: a cluster like Spark's, whose executors run the stages of many jobs.

`cluster.py` is the loop, `workload.py` the jobs, `telemetry.py` the measurements that a policy may see,
`policies.py` the rules and `learned.py` the learned policy.

An executor runs the tasks of one stage one after the other. Then the policy chooses the next stage. An
executor that moves to another job needs time, and a job with too many executors slows itself down.
"""

from __future__ import annotations

from convoy_crds.perturbations import PerturbationKind
from convoy_workloads.simulators.dag_scheduling.params import Params
from convoy_workloads.simulators.dag_scheduling.simulation import simulate
from convoy_workloads.simulators.simulator import Simulator

SIMULATOR = Simulator(
    name="dag-scheduling",
    params=Params,
    figures={
        "meanJobSeconds": "s",
        "p95JobSeconds": "s",
        "meanSlowdown": "ratio",
        "moves": "",
        "makespanSeconds": "s",
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
