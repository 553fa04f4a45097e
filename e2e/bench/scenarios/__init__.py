"""What is done to the rig, and what of it is measured.

Each scenario starts with nothing but the rig and leaves nothing but figures; one that does not come about in
the time given leaves a figure without a value.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from e2e.bench.figures import Figures
from e2e.bench.jobs import HUNDRED, ONE_LARGE, THOUSAND_SMALL
from e2e.bench.rig import Rig
from e2e.bench.scenarios import everything
from e2e.bench.scenarios.common import Rate
from e2e.bench.scenarios.faults import kill, nodes
from e2e.bench.scenarios.growth import beside, rollout_of
from e2e.bench.scenarios.steady import steady
from e2e.bench.scenarios.storm import storm

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
