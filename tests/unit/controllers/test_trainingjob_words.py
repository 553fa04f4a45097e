"""Tests of status messages. Each must tell a person what to do."""

from __future__ import annotations

from typing import Any

import pytest

from convoy_controllers.testing.builders import ToyCluster, make_engine, make_job
from convoy_controllers.views import PodView
from convoy_controllers.workers.stderr import gist
from convoy_controllers.workers.waiting import broken, unplaced
from convoy_crds.trainingjob_status import Phase

SAVES = {"tiers": {"local": {}}}


@pytest.mark.parametrize(
    ("checkpoint", "steps", "saved", "reason", "words"),
    [
        ({}, 9, None, "Suspended", "after step 9; it will start at step 0 again"),
        (SAVES, 9, 9, "Suspended", "will go on after step 9"),
        (SAVES, 9, 11, "Suspended", "will go on after step 11"),
        (SAVES, 9, 4, "SuspendedWithoutCheckpoint", "its newest checkpoint is of step 4"),
        (SAVES, 9, None, "SuspendedWithoutCheckpoint", "after step 9 without a checkpoint"),
        (SAVES, None, None, "Suspended", "it has not started yet"),
    ],
)
def test_message_of_a_suspended_job_names_the_step_to_resume(
    checkpoint: Any, steps: int | None, saved: int | None, reason: str, words: str
) -> None:
    cluster = ToyCluster(make_job(checkpoint=checkpoint), make_engine()).settle()
    if steps:
        cluster.train(steps).settle()
    if saved:
        cluster.commit(saved).settle()
    cluster.spec(suspend=True).settle()
    assert (cluster.job.status.phase, cluster.job.status.reason) == (Phase.SUSPENDED, reason)
    assert words in cluster.job.status.message


def test_changed_spec_of_a_running_job_is_reported_and_has_no_effect() -> None:
    cluster = ToyCluster(make_job(engine={"name": "gpt", "params": {"steps": 5}}), make_engine()).settle()
    uids = cluster.uids
    cluster.spec(engine={"name": "gpt", "params": {"steps": 6}}).settle()
    assert cluster.condition["Valid"] == ("False", "SpecChanged")
    assert cluster.uids == uids and cluster.job.status.incarnation == 1
    cluster.spec(engine={"name": "gpt", "params": {"steps": 5}}).settle()
    assert cluster.condition["Valid"] == ("True", "Accepted")


def test_a_restart_waits_until_the_spec_can_run() -> None:
    strict = make_engine(paramsSchema={"type": "object", "additionalProperties": False})
    cluster = ToyCluster(make_job(), strict).settle()
    cluster.spec(engine={"name": "gpt", "params": {"stesp": 5}}, recovery={"restartId": "again"}).settle()
    assert cluster.job.status.phase is Phase.RUNNING and cluster.job.status.incarnation == 1
    assert cluster.condition["Valid"] == ("False", "InvalidParams")
    cluster.spec(engine={"name": "gpt", "params": {}}).settle()
    assert cluster.job.status.incarnation == 2


def test_progress_belongs_to_the_running_incarnation() -> None:
    cluster = ToyCluster(make_job(), make_engine()).settle().train(50).settle()
    cluster.spec(recovery={"restartId": "again"}).settle()
    assert cluster.job.status.progress is None
    cluster.train(1).settle()
    assert cluster.job.status.progress is not None and cluster.job.status.progress.step == 1
    assert cluster.job.status.internal.goodput.best == 50


TRACEBACK = """step 1/200  loss 5.4
Traceback (most recent call last):
  File "x.py", line 3, in main
PermissionError: [Errno 13] Permission denied: '/data'
"""


@pytest.mark.parametrize(
    ("stderr", "expected"),
    [
        ("", ""),
        ("\n", ""),
        ("boom", "boom"),
        (
            "ParamsError: 1 error\n  width must be even\n    For further information visit x",
            "ParamsError: 1 error width must be even",
        ),
        ("  all indented", "all indented"),
        (TRACEBACK, "PermissionError: [Errno 13] Permission denied: '/data'"),
    ],
)
def test_gist_of_a_stderr(stderr: str, expected: str) -> None:
    assert gist(stderr) == expected
    assert len(gist("x" * 3000)) == 400


@pytest.mark.parametrize(
    ("why", "expected", "advice"),
    [
        ("0/3 nodes are available: 3 Insufficient cpu. no new claims to deallocate, preemption: none.",
         "0/3 nodes are available: 3 Insufficient cpu;", "lower its requests"),
        ('0/3 nodes are available: persistentvolumeclaim "c" not found. not found',
         'persistentvolumeclaim "c" not found;', "create the PersistentVolumeClaim"),
        ("0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims. not found",
         "unbound immediate PersistentVolumeClaims;", "kubectl describe pvc"),
    ],
)  # fmt: skip
def test_message_explains_a_pod_without_a_node(why: str, expected: str, advice: str) -> None:
    cluster = ToyCluster(make_job(), make_engine())
    found = unplaced(cluster.observed(), [PodView("p", "u", "Pending", unschedulable=why)])
    assert found is not None
    assert expected in found.message and advice in found.message


def test_two_phrases_for_the_same_image_error_give_one_message() -> None:
    cause = 'failed to resolve reference "x": not found'
    phrases = [f"ErrImagePull: {cause}", f'Back-off pulling image "x": ErrImagePull: {cause}']
    messages = {
        found.message
        for phrase in phrases
        if (
            found := broken(
                [PodView("p", "u", "Pending", waiting_reason="ErrImagePull", waiting_message=phrase)]
            )
        )
    }
    assert len(messages) == 1
