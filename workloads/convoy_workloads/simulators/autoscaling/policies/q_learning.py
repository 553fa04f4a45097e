"""The policy q-learning: a table of values for each number of replicas and utilization, learnt by Dyna-Q.

It is the learned autoscaler of Rossi et al. (tabular reinforcement learning for the elasticity of
containers), horizontal part. An action adds or removes at most one replica. A decision costs the replicas, a
penalty if requests were late, and a penalty for a change.
"""

from __future__ import annotations

import math
import random
from collections import deque
from dataclasses import dataclass, field

from convoy_workloads.simulators.autoscaling.policies.params import QLearningPolicy, TablePolicy
from convoy_workloads.simulators.autoscaling.policies.policy import ServiceFacts, utilization
from convoy_workloads.simulators.autoscaling.telemetry import CPU, View

LEVELS = 10
"""Number of levels of the utilization."""
ACTIONS = (0, 1, -1)
"""Change of the number of replicas. Among equal values the first one is chosen."""
SIGNS = {"=": 0, "+": 1, "-": -1}

MAX_TRANSITIONS = 5000
"""Largest number of transitions that are remembered."""

State = tuple[int, int]
"""Replicas, and level of the utilization."""
Transition = tuple[State, int, float, State]
"""State, index of the action, cost, and next state."""


def level(used: float) -> int:
    """Return the level of a utilization in percent."""
    return min(LEVELS - 1, int(used * LEVELS / 100))


class Table:
    """A fixed table in one run."""

    metrics: tuple[str, ...] = (CPU,)

    def __init__(self, params: TablePolicy, facts: ServiceFacts) -> None:
        self._params = params
        self._facts = facts
        self._decided_at = -params.interval_seconds

    def decide(self, view: View) -> int:
        """Return the number of replicas that the table says. Without a measurement, nothing changes."""
        used = utilization(view)
        if used is None or view.second - self._decided_at < self._params.interval_seconds:
            return view.replicas
        self._decided_at = view.second
        rows = self._params.actions
        row = rows[min(view.replicas, len(rows)) - 1]
        return self._facts.clamp(view.replicas + SIGNS[row[level(used)]])


@dataclass(slots=True)
class QTable:
    """The values that have been learnt, and the newest transitions."""

    size: int
    """Largest number of replicas."""
    values: dict[State, list[float]] = field(default_factory=dict)
    seen: deque[Transition] = field(default_factory=lambda: deque(maxlen=MAX_TRANSITIONS))
    decisions: int = 0

    def of(self, state: State) -> list[float]:
        """Return the expected cost of each action in a state."""
        if state not in self.values:
            self.values[state] = [0.0] * len(ACTIONS)
        return self.values[state]

    def best(self, state: State) -> int:
        """Return the index of the action with the least expected cost."""
        known = self.of(state)
        return min(range(len(ACTIONS)), key=known.__getitem__)

    def frozen(self, interval_seconds: int) -> TablePolicy:
        """Return the best action of every state, as a policy that learns no more."""
        signs = {change: sign for sign, change in SIGNS.items()}
        rows = [
            "".join(signs[ACTIONS[self.best((replicas, one))]] for one in range(LEVELS))
            for replicas in range(1, self.size + 1)
        ]
        return TablePolicy(name="table", actions=rows, interval_seconds=interval_seconds)


class QLearning:
    """The policy while it learns."""

    metrics: tuple[str, ...] = (CPU,)

    def __init__(self, params: QLearningPolicy, facts: ServiceFacts, table: QTable | None = None) -> None:
        """`table`: what earlier runs have learnt, or None to begin with nothing."""
        self.table = QTable(facts.max_replicas) if table is None else table
        self._params = params
        self._facts = facts
        self._draw = random.Random(f"{facts.seed}/q-learning")  # noqa: S311 - must be repeatable
        self._last: tuple[State, int] | None = None
        self._decided_at = -params.interval_seconds
        self._costs: list[float] = []
        """Costs since the last action."""

    def decide(self, view: View) -> int:
        """Learn from the newest measurement, and return the number of replicas."""
        self._costs.append(self._cost(view))
        used = utilization(view)
        if used is None or view.second - self._decided_at < self._params.interval_seconds:
            return view.replicas
        self._decided_at = view.second
        state = (view.replicas, level(used))
        if self._last is not None:
            changed = ACTIONS[self._last[1]] != 0
            cost = math.fsum(self._costs) / len(self._costs) + self._params.change_penalty * changed
            self._learn((*self._last, cost, state))
        action = self._action(state)
        self._last, self._costs = (state, action), []
        return self._facts.clamp(view.replicas + ACTIONS[action])

    def _action(self, state: State) -> int:
        self.table.decisions += 1
        explored = self._params.exploration / (1 + self.table.decisions / self._params.exploration_decisions)
        if self._draw.random() < explored:
            return self._draw.randrange(len(ACTIONS))
        return self.table.best(state)

    def _cost(self, view: View) -> float:
        """Return the cost of the present: replicas as a share of the largest number, and the penalty."""
        serving = sum(pod.serves for pod in view.pods) or 1
        wait = (view.waiting or 0.0) * self._facts.service_seconds / serving
        late = wait > self._params.late_wait_seconds
        return view.replicas / self._facts.max_replicas + self._params.late_penalty * late

    def _learn(self, newest: Transition) -> None:
        """Update the value of the last action, and of transitions that have been seen before (Dyna-Q)."""
        self.table.seen.append(newest)
        self._update(newest)
        for _ in range(self._params.planning):
            self._update(self.table.seen[self._draw.randrange(len(self.table.seen))])

    def _update(self, transition: Transition) -> None:
        state, action, cost, after = transition
        expected = cost + self._params.discount * min(self.table.of(after))
        values = self.table.of(state)
        values[action] += self._params.learning_rate * (expected - values[action])
