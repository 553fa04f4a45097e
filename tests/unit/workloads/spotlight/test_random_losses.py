"""Random losses of nodes at every phase, and crashes of the driver: the invariants hold."""

from __future__ import annotations

import copy
from typing import Any
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from convoy_workloads.engines.spotlight.params import Params
from convoy_workloads.engines.spotlight.simulated import workers
from convoy_workloads.engines.spotlight.simulated.run import Run
from convoy_workloads.spot.ledger.request import Request, RequestKind, Result
from convoy_workloads.spot.trace import Notices, from_counts

PROBLEM = {"kind": "ring", "prompts": 4, "modes": 4, "width": 8, "pretrainingSteps": 2, "pretrainingBatch": 8}
LEASE = 5.0
CLUSTER = {
    "bootSeconds": 1,
    "pullSeconds": 1,
    "coldRegroupSeconds": 4,
    "sampleSeconds": 3,
    "rewardSeconds": 0.5,
    "trainSeconds": 4,
}
LONGEST = 8 * 4 / 4 + 8 * 3.5 / 2 + 8 * 3.5 + 2 * LEASE
"""Bound of an iteration: the training, then all rollouts and probes on the trainers alone, after losses."""


@st.composite
def losses(draw: st.DrawFn) -> Any:
    """Return a trace whose number of nodes changes at random times."""
    gaps = draw(st.lists(st.floats(0.1, 25), min_size=1, max_size=20))
    counts = draw(st.lists(st.integers(0, 5), min_size=len(gaps), max_size=len(gaps)))
    times, now = [], 0.0
    for gap in gaps:
        times.append(now)
        now += gap
    notices = Notices(
        seconds=draw(st.sampled_from([1.0, 4.0, 15.0])), share=draw(st.sampled_from([0.0, 0.5, 1.0]))
    )
    return from_counts(list(zip(times, counts, strict=True)), 1e6, notices, draw(st.integers(0, 99)))


def restarted(run: Run, params: Params) -> Run:
    """Return a run that goes on with the saved state of another one."""
    other = Run(params)
    other.policy.load_state_dict(copy.deepcopy(run.policy.state_dict()))
    other.trainer.optimizer.load_state_dict(copy.deepcopy(run.trainer.optimizer.state_dict()))
    other.load_state_dict(run.state_dict())
    return other


def spied(run: Run, used: list[tuple[Request, int]]) -> None:
    """Add each consumed request, with the age of its weights, to `used`."""
    consume = run.ledger.consume

    def consume_and_note(ids: Any, version: int) -> list[tuple[Request, Result]]:
        found = consume(ids, version)
        used.extend((request, version - result.version) for request, result in found)
        return found

    run.ledger.consume = consume_and_note  # type: ignore[method-assign]


@settings(max_examples=12, deadline=None, derandomize=True)
@given(
    trace=losses(),
    crash=st.integers(0, 6),
    explored=st.booleans(),
    systems=st.fixed_dictionaries({name: st.booleans() for name in ("elastic", "warm", "pull", "commits")}),
)
def test_invariants_hold_under_random_losses(
    trace: Any, crash: int, explored: bool, systems: dict[str, bool]
) -> None:
    mode = {"trainOn": "explored", "staleness": {"explore": 1, "rollout": 1}} if explored else {}
    params = Params.model_validate(
        {
            "problem": PROBLEM,
            "samplerSteps": 3,
            "promptsPerIteration": 2,
            "groupSize": 4,
            "maxSeeds": 10,
            "evaluationSeeds": 1,
            "leaseSeconds": LEASE,
            "sequenceParallel": [1, 2],
            "cluster": CLUSTER,
            "systems": systems,
            **mode,
        }
    )
    used: list[tuple[Request, int]] = []
    with patch.object(workers, "trace_of", lambda cluster, seed: trace):
        run, before = Run(params), 0.0
        spied(run, used)
        for number in range(7):
            report = run.iterate()
            assert report.trained == 8
            assert report.end - before <= LONGEST
            before = report.end
            if number == crash:
                run = restarted(run, params)
                spied(run, used)
    counts = run.ledger.counts()
    assert counts["planned"] == sum(counts[name] for name in ("open", "consumed", "expired", "superseded"))
    assert len({request.id for request, _ in used}) == len(used) == counts["consumed"]
    assert all(age == 0 for request, age in used if request.kind is RequestKind.ROLLOUT)
    assert all(0 <= age <= 1 for request, age in used if request.kind is RequestKind.EXPLORE)
    assert abs(run.figures()["residual"]) < 1e-9
    charged = sum(charge.seconds for charge in run.workers.nodes.charges(before))
    price = params.cluster.spot_price / 3600
    assert abs(charged * price - sum(run.workers.nodes.billed(before).values())) < 1e-9
