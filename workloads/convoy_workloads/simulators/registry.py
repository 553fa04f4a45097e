"""The simulators that come with Convoy, in the order in which the documentation lists them."""

from __future__ import annotations

from convoy_workloads.simulators import (
    allocation,
    astrasim,
    autoscaling,
    dag_scheduling,
    load_store,
    recovery,
    spot,
    spotlight,
)
from convoy_workloads.simulators.simulator import Simulator

SIMULATORS: tuple[Simulator, ...] = (
    autoscaling.SIMULATOR,
    recovery.SIMULATOR,
    dag_scheduling.SIMULATOR,
    allocation.SIMULATOR,
    spot.SIMULATOR,
    spotlight.SIMULATOR,
    astrasim.SIMULATOR,
    load_store.SIMULATOR,
)  # fmt: skip
