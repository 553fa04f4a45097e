"""One run on the simulated cluster: everything that it needs, put together."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from convoy_workloads.engines.spotlight.iteration import IterationReport, Loop
from convoy_workloads.engines.spotlight.learning.grpo import Ranks, Rates, Trainer
from convoy_workloads.engines.spotlight.learning.models import base_policy, problem_of
from convoy_workloads.engines.spotlight.learning.policy import Policy
from convoy_workloads.engines.spotlight.learning.reward import HeldOut
from convoy_workloads.engines.spotlight.learning.sampler import Sampler
from convoy_workloads.engines.spotlight.params import Params
from convoy_workloads.engines.spotlight.simulated.compute import Compute
from convoy_workloads.engines.spotlight.simulated.workers import Setting, SimulatedWorkers
from convoy_workloads.engines.spotlight.workers import Workers
from convoy_workloads.spot.ledger.encoding import decode, encode
from convoy_workloads.spot.ledger.node_seconds import Capacity, NodeLabel, NodeLedger
from convoy_workloads.spot.ledger.request import RequestKind
from convoy_workloads.spot.ledger.requests import RequestLedger

STATE = "loop"


class RunWorkers(Workers, Protocol):
    """Workers with an account of their nodes, whose state is saved with the run."""

    @property
    def nodes(self) -> NodeLedger:
        """The account of the nodes' time."""
        ...

    def cost(self) -> float:
        """Return the cost of all nodes so far."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Return the state, besides the account."""
        ...

    def load_state_dict(self, state: Mapping[str, Any], policy: Policy) -> None:
        """Set the saved state. `policy` has the restored weights."""
        ...


StartWorkers = Callable[[Params, RequestLedger], RunWorkers]


def simulated_workers(params: Params, ledger: RequestLedger) -> RunWorkers:
    """Return workers on a virtual clock."""
    problem = problem_of(params.problem)
    sampler = Sampler(params.sampler_steps, params.sigma, problem.size)
    setting = Setting(params, params.cluster, params.systems, params.seed)
    return SimulatedWorkers(setting, ledger, Compute(sampler, problem, params.selection))


class Run:
    """A run of the engine, by default with simulated workers."""

    def __init__(
        self, params: Params, ranks: Ranks | None = None, start: StartWorkers = simulated_workers
    ) -> None:
        problem = problem_of(params.problem)
        sampler = Sampler(params.sampler_steps, params.sigma, problem.size)
        base = base_policy(params.problem)
        self.policy = copy.deepcopy(base).requires_grad_(True)
        rates = Rates(params.learning_rate, params.kl)
        self.trainer = Trainer(self.policy, base, sampler, rates, ranks or Ranks())
        ages = {RequestKind.ROLLOUT: params.staleness.rollout, RequestKind.EXPLORE: params.staleness.explore}
        self.ledger = RequestLedger(params.lease_seconds, max_age=ages)
        self.workers = start(params, self.ledger)
        job = (f"spotlight-{params.seed}", params.seed)
        self.loop = Loop(params, job, self.ledger, self.workers, self.trainer.update)
        self._held_out = HeldOut(problem, sampler, params.evaluation_seeds, params.seed)
        self._publish()

    def iterate(self) -> IterationReport:
        """Carry out one iteration and publish its weights."""
        report = self.loop.iterate()
        self._publish()
        return report

    def held_out(self) -> float:
        """Return the mean held-out reward."""
        return self._held_out.reward(self.policy)

    def figures(self) -> dict[str, float]:
        """Return the figures of nodes and cost so far."""
        now = self.workers.now()
        seconds: dict[NodeLabel, float] = dict.fromkeys(NodeLabel, 0.0)
        for charge in self.workers.nodes.charges(now):
            seconds[charge.label] += charge.seconds if charge.capacity is Capacity.SPOT else 0.0
        total = sum(seconds.values()) or 1.0
        return {
            "seconds": now,
            "cost": self.workers.cost(),
            "idleRatio": seconds[NodeLabel.IDLE] / total,
            "lostRatio": seconds[NodeLabel.LOST] / total,
            "regroupRatio": seconds[NodeLabel.REGROUP] / total,
            "residual": self.workers.nodes.residual(now),
        }

    def _publish(self) -> None:
        self.workers.publish(self.loop.iteration, self._snapshot())

    def _snapshot(self) -> Any:
        return copy.deepcopy(self.policy).requires_grad_(False)

    # State

    def state_dict(self) -> dict[str, bytes]:
        """Return everything but weights and optimizer, between two iterations."""
        state = {"loop": self.loop.state_dict(), "workers": self.workers.state_dict()}
        return {STATE: encode(state), **self.ledger.state_dict(), **self.workers.nodes.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Set the saved state. Restore the weights first."""
        saved = decode(state[STATE])
        self.ledger.load_state_dict(state)
        self.workers.nodes.load_state_dict(state)
        self.loop.load_state_dict(saved["loop"])
        self.workers.load_state_dict(saved["workers"], self._snapshot())
