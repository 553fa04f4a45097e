"""The loop on live workers in threads: losses, notices, no spot at all, and results with the same bits."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from tests.unit.workloads.spotlight.thread_cluster import ThreadCluster

from convoy_workloads.engines.spotlight import ENGINE, engine
from convoy_workloads.engines.spotlight.iteration import IterationReport, Loop
from convoy_workloads.engines.spotlight.learning.grpo import Scored, UpdateReport
from convoy_workloads.engines.spotlight.learning.models import problem_of, untrained_policy
from convoy_workloads.engines.spotlight.learning.sampler import Sampler
from convoy_workloads.engines.spotlight.live.cluster import LocalClient, LocalWorker
from convoy_workloads.engines.spotlight.live.computation import Walks
from convoy_workloads.engines.spotlight.live.live_workers import LiveWorkers
from convoy_workloads.engines.spotlight.live.messages import Weights
from convoy_workloads.engines.spotlight.live.weights import Policies
from convoy_workloads.engines.spotlight.params import Params, RingProblem
from convoy_workloads.engines.spotlight.simulated.run import Run
from convoy_workloads.runtime import exactness
from convoy_workloads.spot.ledger.requests import RequestLedger

PROBLEM = RingProblem(prompts=4, modes=4, width=8, pretraining_steps=1, pretraining_batch=8)
PARAMS = Params(
    problem=PROBLEM, sampler_steps=3, prompts_per_iteration=2, group_size=3, max_seeds=4, lease_seconds=1.0
)
SAMPLER = Sampler(PARAMS.sampler_steps, PARAMS.sigma, 2)


LIVE = PARAMS.model_copy(update={"selection": "none", "evaluation_seeds": 1})
"""Without exploring, a run ends with the same bits however long its updates last."""


class Rig:
    """A job with live workers in threads. Its update only keeps what it was given."""

    def __init__(self, nodes: int) -> None:
        self.ledger = RequestLedger(PARAMS.lease_seconds)
        self.cluster = ThreadCluster(walks)
        self.cluster.wanted = {f"spot-{one}" for one in range(nodes)}
        self.on_demand = LocalWorker("on-demand", walks, capacity=4)
        self.workers = LiveWorkers(self.ledger, self.cluster, self.on_demand, PARAMS)
        self.trained: list[list[list[Scored]]] = []
        self.loop = Loop(PARAMS, ("job", 1), self.ledger, self.workers, self._update)
        self.on_demand.start()

    def iterate(self) -> IterationReport:
        self.workers.publish(self.loop.iteration, untrained(self.loop.iteration))
        return self.loop.iterate()

    def _update(self, groups: Sequence[Sequence[Scored]]) -> UpdateReport:
        self.trained.append([list(one) for one in groups])
        return UpdateReport(reward=0.0, loss=0.0, kl=0.0, clipped=0.0, zero_contrast=0.0)

    def check(self) -> dict[str, int]:
        """Check that each request has ended exactly once, and return the counts."""
        counts = self.ledger.counts()
        ended = sum(counts[name] for name in ("consumed", "expired", "superseded"))
        assert counts["planned"] == counts["open"] + ended
        assert self.cluster.errors == []
        return counts


def walks(client: LocalClient) -> Walks:
    policies = Policies(lambda: untrained_policy(PROBLEM), lambda version: client.call(Weights(version), 5.0))
    return Walks(SAMPLER, problem_of(PROBLEM), PARAMS.selection, policies.of)


def untrained(version: int) -> Any:
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(version)
        return untrained_policy(PROBLEM)


@pytest.fixture
def rigs() -> Iterator[list[Rig]]:
    made: list[Rig] = []
    yield made
    for one in made:
        one.cluster.kill_all()
        one.workers.close()


def test_the_loop_goes_on_without_any_spot_node(rigs: list[Rig]) -> None:
    rigs.append(rig := Rig(0))
    assert rig.iterate().trained == rig.iterate().trained == 6
    assert rig.check()["consumed"] >= 12


def test_killed_and_noticed_workers_lose_nothing_and_change_no_bit(rigs: list[Rig]) -> None:
    rigs += [calm := Rig(0), wild := Rig(3)]
    chance = random.Random(3)
    serve = wild.workers._serve

    def disturbed() -> None:
        serve()
        if chance.random() < 0.05 and (alive := sorted(wild.cluster.wanted)):
            name = chance.choice(alive)
            if chance.random() < 0.5:
                wild.cluster.noticed.add(name)
            wild.cluster.kill(name)
            wild.cluster.wanted.add(f"spot-{chance.random()}")

    wild.workers._serve = disturbed  # type: ignore[method-assign]
    for _ in range(3):
        calm.iterate()
        wild.iterate()
    assert wild.check()["consumed"] >= 18
    # The first iteration has no explored seeds, so both jobs train on the same samples.
    for one, two in zip(flat(calm.trained[0]), flat(wild.trained[0]), strict=True):
        assert one.walk.key == two.walk.key and one.reward == two.reward
        np.testing.assert_array_equal(one.walk.path, two.walk.path)


def test_all_spot_nodes_killed_at_once_do_not_stop_the_loop(rigs: list[Rig]) -> None:
    rigs.append(rig := Rig(2))
    rig.iterate()
    rig.cluster.kill_all()
    assert rig.iterate().trained == 6
    rig.check()


def test_a_restarted_trainer_goes_on_with_the_restored_weights() -> None:
    made: list[LiveWorkers] = []

    def start(params: Params, ledger: RequestLedger) -> LiveWorkers:
        own = LocalWorker("on-demand", walks, capacity=4)
        made.append(LiveWorkers(ledger, ThreadCluster(walks), own, params))
        own.start()
        return made[-1]

    try:
        calm = Run(LIVE, start=start)
        calm.iterate()
        saved, weights = calm.state_dict(), copy.deepcopy(calm.policy.state_dict())
        optimizer = copy.deepcopy(calm.trainer.optimizer.state_dict())
        calm.iterate()

        after = Run(LIVE, start=start)
        after.policy.load_state_dict(weights)
        after.trainer.optimizer.load_state_dict(optimizer)
        after.load_state_dict(saved)
        assert made[-1].service.handle("spot", Weights(1)) is not None
        report = after.iterate()
        assert report.trained == 6 and after.ledger.counts()["exhausted"] == 0
        assert fingerprint(after) == fingerprint(calm)
        made[-1].failures = 2
        found = engine.metrics(after, report)
        assert (found["workers_failed"], found["unobserved_seconds"]) == (2, made[-1].unobserved)
        assert found.keys() <= {one.name for one in ENGINE.metrics}
    finally:
        for one in made:
            one.close()


def fingerprint(run: Run) -> str:
    return exactness.fingerprint(run.policy, run.trainer.optimizer)


def flat(groups: Sequence[Sequence[Scored]]) -> list[Scored]:
    return sorted((one for group in groups for one in group), key=lambda one: repr(one.walk.key))
