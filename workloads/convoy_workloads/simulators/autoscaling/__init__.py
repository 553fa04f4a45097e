"""The simulator autoscaling: a service whose replicas a policy decides, with requests that wait in a queue.

`simulation.py` is the loop, `service.py` the queue, `replicas.py` the replicas, `workload.py` the arrivals,
`telemetry.py` the measurements that a policy may see, and `policies/` the policies. `training.py` trains a
policy that learns.

Time has ticks of one second. Within a tick, requests are a fluid: they have an order, but no identity. The
queue is first in, first out, and a waiting time is exact up to the random order of arrivals within a second.
"""

from __future__ import annotations

from convoy_crds.perturbations import PerturbationKind
from convoy_workloads.simulators.autoscaling.params import Params
from convoy_workloads.simulators.autoscaling.training import simulate_arm
from convoy_workloads.simulators.simulator import Simulator

SIMULATOR = Simulator(
    name="autoscaling",
    params=Params,
    figures={
        "latePercent": "percent",
        "p99Seconds": "s",
        "podHours": "h",
        "weightedCost": "h",
        "changes": "",
        "lost": "",
        "pinnedPercent": "percent",
        "offered": "",
    },
    perturbations=frozenset(
        {
            PerturbationKind.OBSERVATION_LAG,
            PerturbationKind.TELEMETRY_NOISE,
            PerturbationKind.TELEMETRY_LOSS,
            PerturbationKind.WORKLOAD_SHIFT,
            PerturbationKind.TENANT,
            PerturbationKind.BOOT_DELAY,
        }
    ),
    run=simulate_arm,
)
