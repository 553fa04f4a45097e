"""The simulator load-store: one collective of GPUs at the level of cache lines.

`params.py` describes the collective, the GPUs and the links, and `simulation.py` draws the launch of each GPU
from the seed and computes the figures. `convoy_controllers.astrasim.loadstore` plays the collective.
"""

from __future__ import annotations

from convoy_crds.perturbations import PerturbationKind
from convoy_workloads.simulators.load_store.params import Params
from convoy_workloads.simulators.load_store.simulation import simulate
from convoy_workloads.simulators.simulator import Simulator

SIMULATOR = Simulator(
    name="load-store",
    params=Params,
    figures={
        "collectiveSeconds": "s",
        "receivedBytes": "",
        "bytesPerSecond": "1/s",
        "events": "",
        "offeredLaunchSkewSeconds": "s",
    },
    perturbations=frozenset({PerturbationKind.SLOW_RANK}),
    run=simulate,
)
