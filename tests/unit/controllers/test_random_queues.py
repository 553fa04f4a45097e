"""Random lives of jobs behind a queue. The queue may evict a job and admit it elsewhere at any moment."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import rule, run_state_machine_as_test
from tests.cases import cases
from tests.unit.controllers.lives import SHAPES, Life

from convoy_crds.trainingjob_status import Phase as JobPhase

UNFORMED = (
    None,
    JobPhase.PENDING,
    JobPhase.SUSPENDING,
    JobPhase.SUSPENDED,
)
"""Phases in which the API server allows changes of roles without `suspend: true`."""
SETTINGS = settings(max_examples=cases(3), stateful_step_count=100, phases=[Phase.explicit, Phase.generate])


class QueuedLife(Life):
    """A life in which a queue also changes the roles."""

    @rule(role=st.integers(0, 1), replicas=st.integers(1, 3), flavor=st.sampled_from("ab"))
    def evict(self, role: int, replicas: int, flavor: str) -> None:
        self._write(True, role, replicas, flavor)

    @rule(role=st.integers(0, 1), replicas=st.integers(1, 3), flavor=st.sampled_from("ab"))
    def admit(self, role: int, replicas: int, flavor: str) -> None:
        if self.job.status.phase in UNFORMED:
            self._write(False, role, replicas, flavor)

    def _write(self, suspend: bool, role: int, replicas: int, flavor: str) -> None:
        self.count()
        roles = [entry.to_dict() for entry in self.job.spec.roles]
        one = roles[role % len(roles)]
        one["replicas"] = max(replicas, one.get("minReplicas", 1))
        for entry in roles:
            template = entry.setdefault("template", {"spec": {}})
            template["spec"]["nodeSelector"] = {"flavor": flavor}
        self.faults.edit("job", suspend=suspend, roles=roles)


@pytest.mark.timeout(cases(120))
@pytest.mark.parametrize("shape", ["elastic", "two roles", "own image, Strict", "checkpointed"])
def test_random_queue_lives_keep_the_invariants(shape: str) -> None:
    run_state_machine_as_test(
        type("Queued", (QueuedLife,), {"shape": SHAPES[shape], "steps": Counter()}), settings=SETTINGS
    )
