"""Tests of the condition, the status and the Event about stragglers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from convoy_controllers.testing.builders import ToyCluster, make_engine, make_job
from convoy_controllers.views import GuardView, SlowView
from convoy_crds.meta import Condition
from convoy_crds.trainingjob_straggler import Proof

SLOW = SlowView("Compute", "rank", (3,), ("node-1",), since=40, slowdown=0.42)


def job() -> ToyCluster:
    cluster = ToyCluster(make_job(roles=[{"name": "worker", "replicas": 5}]), make_engine())
    return cluster.settle()


def straggler_condition(
    cluster: ToyCluster, *slow: SlowView, enough_peers: bool = True, incarnation: int = 1
) -> Condition | None:
    cluster.guard = GuardView(incarnation, enough_peers, slow)
    cluster.settle()
    return next((c for c in cluster.job.status.conditions if c.type == "StragglerDetected"), None)


def test_no_condition_before_ranks_report_steps() -> None:
    cluster = job()
    assert all(c.type != "StragglerDetected" for c in cluster.job.status.conditions)


@pytest.mark.parametrize(("seconds", "steps", "reason"), [(120, 40, "NoTimings"), (60, 40, ""), (600, 4, "")])
def test_steps_without_timings_are_reported(seconds: int, steps: int, reason: str) -> None:
    cluster = job().train(1).settle().wait(seconds).train(steps).settle()
    found = {c.type: c for c in cluster.job.status.conditions}.get("StragglerDetected")
    assert (found.reason if found else "") == reason
    known = straggler_condition(cluster)
    assert known is not None and known.reason == "NoStraggler", "timings arrive later"
    cluster.guard = None
    cluster.wait(600).train(steps + 40).settle()
    (found,) = (c for c in cluster.job.status.conditions if c.type == "StragglerDetected")
    assert found.reason == "NoStraggler", "another operator has no timings yet"


def test_straggler_is_named() -> None:
    cluster = job()
    found = straggler_condition(cluster, SLOW)
    assert found is not None
    assert (found.status, found.reason) == ("True", "Straggler")
    assert found.message.startswith("the other ranks wait for rank 3 on node-1 (Compute): 42% slower")
    assert "since step 40, recent" in found.message
    (one,) = cluster.job.status.stragglers
    assert (one.ranks, one.nodes, one.cause, one.since_step) == ([3], ["node-1"], "Compute", 40)
    assert (one.slowdown, one.persistent) == (0.42, False)


def test_straggler_among_few_peers_is_only_a_suspect() -> None:
    cluster = job()
    suspect = replace(SLOW, proof=Proof.FEW_PEERS, persistent=True)
    found = straggler_condition(cluster, suspect, enough_peers=False)
    assert found is not None
    assert (found.status, found.reason) == ("True", "StragglerSuspected")
    assert "rank 3 on node-1 (Compute): 42% slower since step 40, persistent" in found.message
    assert "a HealthSweep of the node, would prove it" in found.message
    assert [one.proof for one in cluster.job.status.stragglers] == [Proof.FEW_PEERS]
    assert cluster.events.count("StragglerSuspected") == 1 and "Straggler" not in cluster.events
    found = straggler_condition(cluster, suspect, replace(SLOW, ranks=(1,), slowdown=0.1, persistent=True))
    assert found is not None and found.reason == "Straggler" and "rank 1 on node-1" in found.message
    assert cluster.events.count("Straggler") == 1, "a proven straggler has its own Event"


def test_persistent_straggler_emits_one_event() -> None:
    cluster = job()
    straggler_condition(cluster, SLOW)
    assert "Straggler" not in cluster.events
    found = straggler_condition(cluster, replace(SLOW, persistent=True))
    assert found is not None and "persistent" in found.message
    straggler_condition(cluster, replace(SLOW, persistent=True, slowdown=0.9))
    assert cluster.events.count("Straggler") == 1


def test_missed_canary_sets_the_condition_to_unknown() -> None:
    cluster = job()
    cluster.guard = GuardView(1, enough_peers=True, canary_missed=True)
    cluster.settle()
    (found,) = (c for c in cluster.job.status.conditions if c.type == "StragglerDetected")
    assert (found.status, found.reason) == ("Unknown", "DetectorDegraded")


def test_pipeline_with_unknown_stages_asks_for_the_layout() -> None:
    cluster = job()
    cluster.guard = GuardView(1, enough_peers=False, layout_unknown=True)
    cluster.settle()
    (found,) = (c for c in cluster.job.status.conditions if c.type == "StragglerDetected")
    assert (found.status, found.reason) == ("Unknown", "LayoutUnknown")
    assert "call job.report_layout(stage=..., replica=...)" in found.message


def test_worst_of_several_stragglers_is_named() -> None:
    others = [replace(SLOW, ranks=(n,), nodes=(f"node-{n}",), slowdown=n / 10) for n in (1, 2)]
    found = straggler_condition(job(), *others, replace(SLOW, ranks=(0,), slowdown=0.05, persistent=True))
    assert found is not None
    assert "wait for rank 0 on node-1 (and 2 more)" in found.message, "persistent stragglers first"
    found = straggler_condition(job(), *others)
    assert found is not None and "wait for rank 2 on node-2 (and 1 more)" in found.message


def test_variation_of_a_slowdown_causes_no_write() -> None:
    cluster = job()
    before = straggler_condition(cluster, SLOW)
    version = cluster.job.metadata.resource_version
    for slowdown in (0.40, 0.44, 0.46):
        assert straggler_condition(cluster, replace(SLOW, slowdown=slowdown)) == before
    assert cluster.job.metadata.resource_version == version
    assert straggler_condition(cluster, replace(SLOW, slowdown=0.6)) != before


def test_variation_of_the_loss_causes_no_write() -> None:
    cluster = job()
    straggler_condition(cluster, replace(SLOW, lost=0.3))
    version = cluster.job.metadata.resource_version
    straggler_condition(cluster, replace(SLOW, lost=0.33))
    assert cluster.job.metadata.resource_version == version
    straggler_condition(cluster, replace(SLOW, lost=0.4))
    assert cluster.job.status.stragglers[0].lost == 0.4


@pytest.mark.parametrize(
    ("slow", "enough_peers", "status", "reason", "words"),
    [
        ((), True, "False", "NoStraggler", "no rank delays the others"),
        ((), False, "Unknown", "TooFewPeers", "fewer than 4 ranks do the same work"),
        ((SlowView("CommonMode", "job"),), True, "False", "SlowTogether", "slower together"),
        ((SlowView("Imbalance", "stages"),), True, "False", "SlowTogether", "distributed unevenly"),
        ((SlowView("Input", "job"),), True, "False", "SlowTogether", "wait for their input"),
        ((SlowView("Unknown", "job"),), True, "False", "SlowTogether", "the cause is unknown"),
    ],
)
def test_finding_without_a_culprit_names_no_rank(
    slow: tuple[SlowView, ...], enough_peers: bool, status: str, reason: str, words: str
) -> None:
    found = straggler_condition(job(), *slow, enough_peers=enough_peers)
    assert found is not None
    assert (found.status, found.reason) == (status, reason)
    assert words in found.message


def test_findings_of_an_earlier_incarnation_are_ignored() -> None:
    cluster = job()
    straggler_condition(cluster, SLOW)
    assert straggler_condition(cluster, replace(SLOW, ranks=(4,)), incarnation=7) is not None
    assert [one.ranks for one in cluster.job.status.stragglers] == [[3]]


def test_restart_clears_the_stragglers() -> None:
    cluster = job()
    assert straggler_condition(cluster, SLOW) is not None
    cluster.exit(1, 137, signal=9, ended=cluster.now.timestamp()).settle()
    assert cluster.job.status.incarnation == 2
    assert cluster.job.status.stragglers == []
    assert all(c.type != "StragglerDetected" for c in cluster.job.status.conditions)


def test_recovered_rank_is_no_longer_named() -> None:
    cluster = job()
    straggler_condition(cluster, SLOW)
    found = straggler_condition(cluster)
    assert found is not None and found.status == "False"
    assert cluster.job.status.stragglers == []


def test_lists_are_bounded() -> None:
    cluster = job()
    whole = replace(SLOW, slowdown=0.9, ranks=tuple(range(200)), nodes=tuple(f"n{n}" for n in range(200)))
    found = straggler_condition(cluster, whole, *[replace(SLOW, ranks=(n,)) for n in range(40)])
    assert found is not None
    assert len(found.message) < 1000
    assert len(cluster.job.status.stragglers) == 16
    assert len(cluster.job.status.stragglers[0].ranks) == 64


def test_named_straggler_is_among_the_kept_stragglers() -> None:
    cluster = job()
    together = [SlowView("Communication", "group", (), (), since=1, slowdown=9.0)] * 20
    lasting = replace(SLOW, persistent=True)
    found = straggler_condition(cluster, *together, *[replace(SLOW, ranks=(n,)) for n in range(20)], lasting)
    assert found is not None and "wait for rank 3 on node-1" in found.message
    assert cluster.job.status.stragglers[0].ranks == [3]
