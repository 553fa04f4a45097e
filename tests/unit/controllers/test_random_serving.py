"""Random lives of ServingJobs in the simulated cluster: whatever fails, the invariants hold, and at the end
the job runs its newest revision in all replicas.

`convoy_controllers.simulate.serving.invariants` lists the invariants. `make fuzz` plays 200 lives.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from tests.cases import cases

from convoy_controllers.simulate.replay import replay
from convoy_controllers.simulate.scenario import Scenario

NODES = 4
FAULTS_END = 300.0
PAIRS = {
    "killNode": "returnNode",
    "cutNode": "healNode",
    "cutFromControlPlane": "healNode",
    "drainNode": "uncordonNode",
    "crashAgent": "startAgent",
    "upgradeAgent": "startAgent",
}
"""Actions on nodes, each with the action that undoes it."""
OF_PODS = ("killRank", "hangRank", "deletePod")
OF_CONTROL = ("crashOperator", "stopApiServer", "stopEndpoints")
OF_USERS = ("revise", "revise", "scale", "suspend", "pause")


def roles(tokens: int, size: int) -> list[dict[str, Any]]:
    """Return the role `server`. Another number of tokens makes another revision."""
    return [{"name": "server", "groupSize": size, "engine": {"name": "lm", "params": {"tokens": tokens}}}]


def edit(at: float, **spec: Any) -> dict[str, Any]:
    """Return an event that edits the job."""
    return {"at": at, "do": "edit", "job": "llm", "spec": spec}


def events(rng: random.Random, size: int) -> Iterator[dict[str, Any]]:
    """Yield the random events of one life, and at last the end of all faults."""
    for number in range(rng.randint(1, 8)):
        at, action = rng.uniform(15, 250), rng.choice((*PAIRS, *OF_PODS, *OF_CONTROL, *OF_USERS))
        later = rng.uniform(at, FAULTS_END)
        if action in PAIRS:
            node = f"node-{rng.randrange(NODES)}"
            yield {"at": at, "do": action, "node": node}
            yield {"at": later, "do": PAIRS[action], "node": node}
        elif action in OF_PODS:
            yield {"at": at, "do": action, "pod": f"llm-server-{rng.randrange(5)}-{rng.randrange(size)}"}
        elif action in OF_CONTROL:
            yield {"at": at, "do": action}
        elif action == "revise":
            yield edit(at, roles=roles(rng.choice((1, 100 + number)), size))
        elif action == "scale":
            yield edit(at, replicas=rng.randint(0, 4))
        elif action == "suspend":
            yield {"at": at, "do": action, "job": "llm"}
        else:
            yield edit(at, rollout={"paused": True})
    yield {"at": FAULTS_END, "do": "startApiServer"}
    yield {"at": FAULTS_END, "do": "startEndpoints"}
    yield edit(FAULTS_END + 15, rollout={"paused": False}, roles=roles(2, size), suspend=False)


def life(seed: int) -> Scenario:
    """Return the scenario of one life."""
    rng = random.Random(seed)
    size = rng.choice((1, 1, 2))
    surge, unavailable = rng.choice(((1, 0), (0, 1), (2, 1), ("25%", 0)))
    spec = {
        "replicas": rng.randint(1, 3),
        "roles": roles(1, size),
        "rollout": {"maxSurge": surge, "maxUnavailable": unavailable},
        "recovery": {"hangSeconds": 20},
    }
    job = {"kind": "ServingJob", "metadata": {"name": "llm"}, "spec": spec}
    return Scenario.model_validate(
        {
            "seed": seed,
            "nodes": [{"name": f"node-{number}", "capacity": 4} for number in range(NODES)],
            "jobs": [{"job": job, "program": {"loadSeconds": rng.choice((0.5, 4, 12))}}],
            "traffic": [{"job": "llm", "from": 15, "to": 440, "rate": 2}],
            "events": sorted(events(rng, size), key=lambda event: event["at"]),
            "until": 700,
        }
    )


@pytest.mark.timeout(cases(60))
def test_random_serving_lives_keep_the_invariants() -> None:
    for seed in range(cases(2)):
        scenario = life(seed)
        (result,) = replay(scenario).results
        status, wanted = result.job.status, result.job.spec.replicas
        assert status.current_revision == status.update_revision, (seed, status.message)
        assert (status.reason, status.ready) == ("RolloutComplete", f"{wanted}/{wanted}"), (seed, status)
