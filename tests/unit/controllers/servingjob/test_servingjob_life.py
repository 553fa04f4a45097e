"""Tests of whole lives of a ServingJob on a small cluster."""

from __future__ import annotations

import pytest
from tests.unit.controllers.servingjob.servers import Servers

from convoy_controllers.commands import Assign, PickPort
from convoy_controllers.resources import CONTROLLER_REVISIONS, POD_DISRUPTION_BUDGETS, SERVICES


@pytest.fixture
def running() -> Servers:
    return Servers().settle()


def test_a_job_starts_and_serves(running: Servers) -> None:
    status = running.job.status
    assert (status.ready, status.replicas, status.ready_replicas) == ("2/2", 2, 2)
    assert (status.updated_replicas, status.updated_ready_replicas) == (2, 2)
    assert status.current_revision == status.update_revision != ""
    assert running.condition == {
        "Valid": ("True", "Accepted"),
        "Progressing": ("True", "RolloutComplete"),
        "Available": ("True", "Serving"),
        "Degraded": ("False", "ReplicasHealthy"),
    }
    assert sorted(running.pods) == ["llm-worker-0-0", "llm-worker-1-0"]
    kinds = {kind.kind for kind, _ in running.objects}
    assert kinds == {SERVICES.kind, POD_DISRUPTION_BUDGETS.kind, CONTROLLER_REVISIONS.kind}


def test_nothing_is_written_at_rest(running: Servers) -> None:
    running.wait(3600)
    made = running.step()
    assert made.status is None and not made.creations and not made.deletions and not made.commands
    assert made.requeue_after is None


def test_the_incarnation_is_stored_before_a_command_names_it() -> None:
    servers = Servers()
    kinds = []
    for _ in range(6):
        made = servers.step()
        kinds += [type(one) for one in made.commands]
        if any(isinstance(one, PickPort) for one in made.commands):
            assert made.status_first
    assert kinds == [PickPort, PickPort, Assign, Assign]


def test_each_replica_has_an_incarnation_and_an_identity_of_its_own(running: Servers) -> None:
    assert sorted(one.incarnation for one in running.records) == [1, 2]
    assert {one.job_uid for one in running.assigned} == {"uid-llm.worker.0", "uid-llm.worker.1"}
    assert all(one.world_size == 1 and one.command == ("python", "-m", "lm") for one in running.assigned)
