"""Tests of the tiers that a job uses: those of its spec, those by default, and why it gets fewer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from convoy_controllers.commands import Assign
from convoy_controllers.testing.builders import ToyCluster, make_engine, make_job
from convoy_controllers.trainingjob import tiers
from convoy_controllers.trainingjob.observed import Observed
from convoy_controllers.trainingjob.plan import plan
from convoy_controllers.trainingjob.tiers import Known, NodeMemory, effective_tiers
from convoy_controllers.views import MemoryView
from convoy_crds.summaries import saves, tier_names
from convoy_crds.trainingjob_checkpoint import CheckpointDefault, CheckpointDefaults
from convoy_crds.trainingjob_status import EffectiveTiers, TierSource

MEMORY = CheckpointDefaults(CheckpointDefault.MEMORY)
NONE = CheckpointDefaults(CheckpointDefault.NONE)
MIB = 2**20
TWO = ("a", "b")
LOCAL_ONLY = EffectiveTiers(source=TierSource.DEFAULT, memory=7)


def memory(wanted: int, limit: int = 512, *nodes: str) -> dict[str, NodeMemory]:
    return {node: NodeMemory(wanted * MIB, limit * MIB) for node in nodes or TWO}


@pytest.mark.parametrize(
    ("chart", "own", "wanted"),
    [
        (MEMORY, None, ("local", "peer")),
        (NONE, None, ()),
        (MEMORY, "None", ()),
        (NONE, "Memory", ("local", "peer")),
    ],
)
def test_the_job_overrides_the_chart(
    chart: CheckpointDefaults, own: str | None, wanted: tuple[str, ...]
) -> None:
    job = make_job(checkpoint={"default": own} if own else {})
    found = effective_tiers(job, chart, Known())
    assert found.tiers.names == wanted
    assert found.source is (TierSource.DEFAULT if wanted else None)
    assert job.spec.checkpoint.tiers.names == (), "the spec is never rewritten"


def test_tiers_of_the_spec_take_precedence() -> None:
    wanted = {"local": {"memory": "1Gi"}, "peer": {"copies": 3}, "remote": {"store": "s3"}}
    job = make_job(checkpoint={"tiers": wanted, "default": "None"})
    for nodes, copies in ((("a", "b"), 1), (("a", "b", "c", "d", "e"), 3), ((), 3)):
        found = effective_tiers(job, MEMORY, Known(nodes))
        assert (found.source, found.limit, found.tiers.store) == (TierSource.SPEC, 2**30, "s3")
        assert found.tiers.peer is not None and found.tiers.peer.copies == copies
    alone = effective_tiers(job, MEMORY, Known(("a",)))
    assert alone.tiers.names == ("local", "remote")


@pytest.mark.parametrize(
    ("known", "names", "reason", "limit"),
    [
        (Known(), ("local", "peer"), None, 0),
        (Known(TWO), ("local", "peer"), None, 0),
        (Known(TWO, memory(0)), ("local", "peer"), None, 512),
        (Known(TWO, memory(256)), ("local", "peer"), None, 512),
        (Known(TWO, memory(257)), ("local",), "DefaultNoCopies", 512),
        (Known(TWO, memory(512)), ("local",), "DefaultNoCopies", 512),
        (Known(TWO, memory(513)), (), "DefaultNoRoom", 512),
        (Known(("a",), memory(300)), ("local",), "DefaultOneNode", 512),
        (Known(("a",), memory(513)), (), "DefaultNoRoom", 512),
        (Known(TWO, memory(600, 0)), ("local", "peer"), None, 0),
        # One small node decides for all, because all ranks save together.
        (
            Known(TWO, {**memory(100), **memory(100, 150, "b")}),
            ("local",),
            "DefaultNoCopies",
            150,
        ),
        # A node without a report changes nothing: the stored decision stays.
        (Known(TWO, memory(513, 512, "a"), LOCAL_ONLY), ("local",), None, 512),
        (Known(TWO, {}, LOCAL_ONLY), ("local",), None, 7 / MIB),
        (Known(TWO, memory(100), LOCAL_ONLY), ("local", "peer"), None, 512),
    ],
)
def test_defaults_fit_into_the_memory_of_all_nodes(
    known: Known, names: tuple[str, ...], reason: str | None, limit: float
) -> None:
    found = effective_tiers(make_job(), MEMORY, known)
    assert found.tiers.names == names and found.by_default
    assert (found.shortfall.reason.name if found.shortfall else None) == reason
    assert found.limit == limit * MIB
    if found.shortfall and reason != "DefaultOneNode":
        assert "bytes are needed and the limit is" in found.shortfall.message


def test_before_a_report_the_maximum_of_the_chart_is_the_limit() -> None:
    found = effective_tiers(make_job(), CheckpointDefaults(CheckpointDefault.MEMORY, 64 * MIB), Known(TWO))
    assert found.limit == 64 * MIB


class Defaults(ToyCluster):
    """A job of two workers on a cluster whose chart gives memory by default."""

    def __init__(self, chart: CheckpointDefaults = MEMORY, **spec: Any) -> None:
        self.chart = chart
        super().__init__(make_job(**spec), make_engine())

    def observed(self) -> Observed:
        return replace(super().observed(), defaults=self.chart)

    def report(self, **use: Any) -> None:
        """Set the use of memory that both agents report."""
        for uid, view in self.views.items():
            self.views[uid] = replace(view, memory=MemoryView(**use))

    def advance(self, step: int) -> None:
        for uid, view in self.views.items():
            ranks = tuple(replace(rank, step=step, time=self.now.timestamp()) for rank in view.ranks)
            self.views[uid] = replace(view, ranks=ranks)

    def condition(self) -> tuple[str, str, str]:
        found = next(one for one in self.job.status.conditions if one.type == "Checkpointing")
        return found.status, found.reason, found.message

    def reasons(self) -> list[str]:
        """Return the reason of the condition Checkpointing; none if there is no condition."""
        return [one.reason for one in self.job.status.conditions if one.type == "Checkpointing"]


def running(chart: CheckpointDefaults = MEMORY, **spec: Any) -> Defaults:
    return Defaults(chart, **spec).settle()


def environment(cluster: Defaults) -> list[dict[str, str]]:
    made = [pod for one in cluster.plans for pod in one.manifests]
    assert made
    return [{entry["name"]: entry["value"] for entry in pod["spec"]["containers"][0]["env"]} for pod in made]


def assigned(cluster: Defaults) -> list[Assign]:
    found = [one for made in cluster.plans for one in made.commands]
    return [one for one in found if isinstance(one, Assign)]


def test_pods_and_agents_get_the_default() -> None:
    cluster = running(CheckpointDefaults(CheckpointDefault.MEMORY, 64 * MIB))
    for values in environment(cluster):
        assert values["CONVOY_CHECKPOINT_TIERS"] == "local,peer"
        assert (values["CONVOY_CHECKPOINT_SECONDS"], values["CONVOY_CHECKPOINT_BY_DEFAULT"]) == (
            "300",
            "true",
        )
    for one in assigned(cluster):
        assert one.memory is not None
        assert (one.memory.by_default, one.memory.copies, one.memory.limit) == (True, 1, 64 * MIB)
    assert not cluster.job.spec.checkpoint.tiers.any


@pytest.mark.parametrize(("chart", "spec"), [(NONE, {}), (MEMORY, {"checkpoint": {"default": "None"}})])
def test_without_the_default_a_job_is_as_before(chart: CheckpointDefaults, spec: dict[str, Any]) -> None:
    cluster = running(chart, **spec)
    assert not [name for values in environment(cluster) for name in values if "CHECKPOINT" in name]
    assert all(one.memory is None for one in assigned(cluster))
    assert cluster.job.status.checkpoint is None and "Checkpointing" not in str(cluster.job.status.conditions)
    assert not saves(cluster.job)


def test_a_job_with_tiers_is_not_given_by_default() -> None:
    cluster = running(checkpoint={"tiers": {"local": {"memory": "1Gi"}, "peer": {}}})
    assert all("CONVOY_CHECKPOINT_BY_DEFAULT" not in values for values in environment(cluster))
    assert all(
        one.memory and not one.memory.by_default and one.memory.limit == 2**30 for one in assigned(cluster)
    )
    shown = cluster.job.status.checkpoint
    assert shown is not None and shown.tiers == EffectiveTiers(source=TierSource.SPEC, memory=2**30, copies=1)
    assert cluster.condition()[1] == "NothingSaved"


def test_a_tier_without_a_limit_is_stored() -> None:
    cluster = running(checkpoint={"tiers": {"local": {}}})
    assert tier_names(cluster.job) == ("local",)
    assert cluster.job.status.to_dict()["checkpoint"]["tiers"] == {"source": "Spec", "copies": 0}


def test_status_and_condition_say_what_the_user_has() -> None:
    cluster = running()
    cluster.report(opened=True, wanted=100 * MIB, limit=512 * MIB, copies=1)
    cluster.settle()
    shown = cluster.job.status.checkpoint
    assert shown is not None and shown.tiers == EffectiveTiers(
        source=TierSource.DEFAULT, memory=512 * MIB, copies=1
    )
    assert cluster.job.status.saved is None and tier_names(cluster.job) == ("local", "peer")
    holds, reason, message = cluster.condition()
    assert (holds, reason) == ("True", "DefaultMemory")
    assert "1 copy on another node, at most 512 MiB a node; spec.checkpoint.default: None" in message
    assert cluster.events.count("DefaultMemory") == 1


def test_copies_that_do_not_fit_are_not_made() -> None:
    cluster = running()
    before = len(assigned(cluster))
    cluster.report(opened=True, wanted=300 * MIB, limit=512 * MIB, copies=1)
    cluster.step()
    fresh = assigned(cluster)[before:]
    assert len(fresh) == 2 and all(one.memory and one.memory.copies == 0 for one in fresh)
    cluster.report(opened=True, wanted=300 * MIB, limit=512 * MIB, copies=0)
    cluster.settle()
    assert cluster.condition()[:2] == ("True", "DefaultNoCopies") and "node-" in cluster.condition()[2]
    assert cluster.events.count("DefaultNoCopies") == 1
    stored = cluster.job.status.checkpoint
    assert stored is not None and stored.tiers is not None and stored.tiers.copies == 0


def test_too_little_memory_is_reported_once() -> None:
    cluster = running()
    cluster.report(opened=True, wanted=600 * MIB, limit=512 * MIB, copies=0)
    for step in range(4):
        cluster.advance(step)
        cluster.step()
    holds, reason, message = cluster.condition()
    assert (holds, reason) == ("False", "DefaultNoRoom") and "629145600 bytes are needed" in message
    assert cluster.events.count("DefaultNoRoom") == 1
    assert not saves(cluster.job) and tier_names(cluster.job) == ()


@pytest.mark.parametrize(
    ("opened", "step", "reason"),
    [(False, 2, ""), (False, 3, "ProgramNeverSaves"), (True, 9, "DefaultMemory")],
)
def test_a_program_that_never_saves_is_reported_once(opened: bool, step: int, reason: str) -> None:
    cluster = running()
    cluster.report(opened=opened, copies=1)
    for number in range(1, step + 1):
        cluster.advance(number)
        cluster.step()
    assert cluster.reasons() == ([reason] if reason else [])
    assert cluster.events.count("ProgramNeverSaves") == (reason == "ProgramNeverSaves")
    assert saves(cluster.job) is (reason != "ProgramNeverSaves")


@pytest.mark.parametrize(
    ("use", "reason"),
    [
        ({"opened": False, "copies": 1}, "ProgramNeverSaves"),
        ({"opened": True, "wanted": 100 * MIB, "limit": 512 * MIB, "copies": 1}, "DefaultMemory"),
        ({"opened": True, "wanted": 300 * MIB, "limit": 512 * MIB, "copies": 0}, "DefaultNoCopies"),
        ({"opened": True, "wanted": 600 * MIB, "limit": 512 * MIB, "copies": 0}, "DefaultNoRoom"),
    ],
)
def test_a_restart_does_not_repeat_what_the_user_knows(use: dict[str, Any], reason: str) -> None:
    cluster = running()
    cluster.report(**use)
    for step in range(1, 5):
        cluster.advance(step)
        cluster.settle()
    cluster.exit(1, 137)
    found = set()
    for _ in range(12):
        cluster.step()
        found |= set(cluster.reasons())
    assert (cluster.job.status.incarnation, cluster.job.status.phase) == (2, "Running")
    cluster.report(opened=use["opened"], copies=1)
    cluster.settle()
    found |= set(cluster.reasons())
    cluster.report(**use)
    for step in range(5, 9):
        cluster.advance(step)
        cluster.settle()
    assert found == set(cluster.reasons()) == {reason}
    told = [one for one in cluster.events if one.startswith("Default") or one == "ProgramNeverSaves"]
    assert told == [reason]


def test_memory_that_went_to_another_job_is_reported() -> None:
    cluster = running()
    cluster.report(opened=True, wanted=100 * MIB, limit=512 * MIB, copies=1)
    for uid, view in cluster.views.items():
        cluster.views[uid] = replace(view, troubles=(("YIELDED", "a job that has tiers in its spec (u)"),))
    cluster.step()
    holds, reason, message = cluster.condition()
    assert (holds, reason) == (
        "False",
        "MemoryYielded",
    ) and "gave the job's memory to a job that has" in message
    assert cluster.events.count("MemoryYielded") == 1
    assert cluster.job.status.phase == "Running"


def test_the_reported_use_of_all_pods_of_a_node_is_added() -> None:
    cluster = running(roles=[{"name": "worker", "replicas": 4}])
    cluster.report(opened=True, wanted=10, limit=100, copies=1)
    first = next(iter(cluster.views))
    cluster.views[first] = replace(cluster.views[first], memory=MemoryView(True, 0, 100, 1))
    found = tiers.known(cluster.observed(), cluster.job.status)
    pods: dict[str, int] = {}
    for view in cluster.views.values():
        pods[view.node] = pods.get(view.node, 0) + 1
    silent = cluster.views[first].node
    assert {node: one.wanted for node, one in found.memory.items()} == {
        node: 0 if node == silent else 10 * count for node, count in pods.items()
    }


def test_the_plan_is_idempotent_with_defaults() -> None:
    cluster = running()
    assert plan(cluster.observed(), cluster.now).status is None
