"""Random schedules of replicas in virtual time (`simulation`), and variants that must fail."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.cases import cases
from tests.unit.workloads.replication.simulation import failure

from convoy_workloads.serving.replication.messages import Busy, Confirm, Push
from convoy_workloads.serving.replication.operation import Operation
from convoy_workloads.serving.replication.replicator import Replicator

EACH = 2
"""Number of schedules of a test."""


@pytest.mark.parametrize("first", range(3))
def test_nothing_acknowledged_is_lost_and_all_replicas_converge(first: int) -> None:
    for seed in range(first * cases(EACH), (first + 1) * cases(EACH)):
        assert not failure(seed), f"seed {seed}"


class Hasty(Replicator):
    """A replicator that acknowledges before a peer confirms."""

    def required(self) -> int:
        return 0


class Boaster(Replicator):
    """A replicator that confirms operations that it does not keep."""

    def on_push(self, message: Push) -> Confirm | Busy:
        return Confirm(self.sender, {one.stamp.origin: one.stamp.sequence for one in message.operations})


class Overwriter(Replicator):
    """A replicator that applies operations at once, although a snapshot replaces them."""

    def apply(self, won: Sequence[Operation]) -> None:
        if won:
            self.store.apply(won)


class Impatient(Replicator):
    """A replicator that claims to know what has not arrived yet."""

    def merge(self, operations: Sequence[Operation]) -> None:  # type: ignore[override]
        super().merge(operations)
        self.log.adopt({one.stamp.origin: one.stamp.sequence for one in operations})


@pytest.mark.parametrize(("kind", "first"), [(Hasty, 0), (Boaster, 0), (Overwriter, 36), (Impatient, 16)])
def test_a_broken_replicator_is_found(kind: type[Replicator], first: int) -> None:
    assert any(failure(seed, kind) for seed in range(first, first + 40))
