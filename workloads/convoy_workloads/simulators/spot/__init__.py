"""The simulator spot: workers on spot nodes that come and go, with or without an on-demand fall-back.

`capacity.py` makes the trace of the nodes, `fleet.py` holds nodes and workers, `simulation.py` is the loop.
The decisions between spot and on-demand nodes are the SpotPool's own.
"""

from __future__ import annotations

from convoy_crds.perturbations import PerturbationKind
from convoy_workloads.simulators.simulator import Simulator
from convoy_workloads.simulators.spot.params import Params
from convoy_workloads.simulators.spot.simulation import simulate

SIMULATOR = Simulator(
    name="spot",
    params=Params,
    figures={
        "cost": "",
        "costPerUsefulNodeHour": "",
        "usefulShare": "ratio",
        "usefulNodeHours": "h",
        "lostNodeHours": "h",
        "idleNodeHours": "h",
        "bootNodeHours": "h",
        "onDemandShare": "ratio",
        "losses": "",
        "switches": "",
        "availability": "ratio",
        "offeredLossesPerNodeHour": "",
        "residual": "",
    },
    perturbations=frozenset({PerturbationKind.SPOT_TRACE, PerturbationKind.BOOT_DELAY}),
    run=simulate,
)
