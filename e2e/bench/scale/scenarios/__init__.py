"""Scenarios of the scale bench. Each scenario acts on the rig and adds figures.

The rig is empty before and after each scenario. A scenario that does not complete in time adds figures
without a value.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from convoy_workloads.bench.figures import Figures
from e2e.bench.rig.jobs import HUNDRED, ONE_LARGE, THOUSAND_SMALL
from e2e.bench.rig.rig import Rig
from e2e.bench.scale.scenarios import everything
from e2e.bench.scale.scenarios.common import Rate
from e2e.bench.scale.scenarios.faults import crash_nodes, kill_operator
from e2e.bench.scale.scenarios.growth import rollout_scenario, small_beside_large
from e2e.bench.scale.scenarios.serving import serving
from e2e.bench.scale.scenarios.steady import steady
from e2e.bench.scale.scenarios.storm import suspend_and_resume

Scenario = Callable[[Rig, Rate, Figures], Awaitable[None]]

ROLLOUTS = (ONE_LARGE, HUNDRED, THOUSAND_SMALL)
SCENARIOS: dict[str, Scenario] = {
    **{str(shape): partial(rollout_scenario, shape) for shape in ROLLOUTS},
    "beside": small_beside_large,
    "storm": suspend_and_resume,
    "kill": kill_operator,
    "nodes": crash_nodes,
    "steady": steady,
    "serving": serving,
    "everything": everything.rollouts,
    "everything-steady": everything.running_jobs,
}
