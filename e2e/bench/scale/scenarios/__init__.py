"""Scenarios: acts on the rig, and what is measured of each.

Each scenario starts with nothing but the rig and leaves nothing but figures; one that does not come about in
the time given leaves a figure without a value.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from convoy_workloads.bench.figures import Figures
from e2e.bench.rig.jobs import HUNDRED, ONE_LARGE, THOUSAND_SMALL
from e2e.bench.rig.rig import Rig
from e2e.bench.scale.scenarios import everything
from e2e.bench.scale.scenarios.common import Rate
from e2e.bench.scale.scenarios.faults import kill, nodes
from e2e.bench.scale.scenarios.growth import beside, rollout_of
from e2e.bench.scale.scenarios.steady import steady
from e2e.bench.scale.scenarios.storm import storm

Scenario = Callable[[Rig, Rate, Figures], Awaitable[None]]

ROLLOUTS = (ONE_LARGE, HUNDRED, THOUSAND_SMALL)
SCENARIOS: dict[str, Scenario] = {
    **{str(shape): partial(rollout_of, shape) for shape in ROLLOUTS},
    "beside": beside,
    "storm": storm,
    "kill": kill,
    "nodes": nodes,
    "steady": steady,
    "everything": everything.rollouts,
    "everything-steady": everything.running,
}
