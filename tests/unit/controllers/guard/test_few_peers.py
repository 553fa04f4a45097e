"""Tests of suspicions against ranks with one or two peers: the slow rank is named, nobody else is, and no
finding permits an action on a node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from convoy_controllers.guard.detector import advance
from convoy_controllers.guard.faults import Fault
from convoy_controllers.guard.findings import Cause, Finding, Report, Verdict
from convoy_controllers.guard.state import initial_state
from convoy_controllers.guard.suspicions import blamed, noticeable
from convoy_controllers.guard.synthetic import Job, play
from convoy_controllers.guard.telemetry import Layout, Table
from convoy_controllers.testing.traces import Trace, read
from convoy_crds.trainingjob_straggler import Proof

FOLDER = Path(__file__).parents[3] / "data" / "straggler"
ONSET, WITHIN = 25, 10
PAIR = Job(stages=1, replicas=2, per_node=1, groups=False)
SQUARE = Job(stages=2, replicas=2, per_node=1, groups=False)
PIPELINES = Job(stages=4, replicas=2, per_node=1, groups=False)
LAYOUTS = [
    pytest.param(PIPELINES, id="2x4"),
    pytest.param(Job(stages=2, replicas=3, per_node=1, groups=False), id="3x2"),
    pytest.param(SQUARE, id="2x2"),
    pytest.param(PAIR, id="dp 2"),
    pytest.param(replace(PAIR, replicas=3), id="dp 3"),
]


def reports(layout: Layout, tables: Iterable[Table]) -> list[Report]:
    state, found = initial_state(layout), []
    for table in tables:
        state, report = advance(state, table)
        found.append(report)
    return found


def played(job: Job, *faults: Fault, windows: int = 48, seed: int = 3) -> list[Report]:
    return reports(job.layout(), play(job, faults, windows, seed))


def named(found: Iterable[Report]) -> set[int]:
    return {rank for report in found for one in report.findings for rank in one.ranks}


def changed(job: Job, change: Callable[[Table], Table], seed: int = 3) -> list[Report]:
    return reports(job.layout(), (change(table) for table in play(job, [], 60, seed)))


def longer(table: Table, rank: int, factor: float) -> Table:
    compute = table.compute.copy()
    compute[rank] *= factor
    return replace(table, compute=compute, wall=table.wall * factor, micro=None)


@pytest.mark.parametrize("job", LAYOUTS)
@pytest.mark.parametrize("kind", ["slow", "thermal"])
def test_a_slow_rank_is_named_as_a_suspect(job: Job, kind: str) -> None:
    rank = job.size - 1
    found = played(job, Fault(kind, (rank,), 0.2 if kind == "slow" else 0.4, ONSET))
    assert named(found[: ONSET + WITHIN - 1]) == named(found) == {rank}
    (last,) = found[-1].findings
    assert last.cause is (Cause.COMPUTE if kind == "slow" else Cause.THERMAL)
    assert last.proof is Proof.FEW_PEERS and last.persistent
    assert last.slowdown == pytest.approx(0.2, abs=0.08)
    assert noticeable(last) and not blamed(last), "only a sweep may follow"
    verdicts = [report.verdicts for report in found]
    assert verdicts[-1][rank] == Verdict.SUSPECT
    assert not (np.stack(verdicts) == Verdict.PERSISTENT).any()


@pytest.mark.parametrize("job", LAYOUTS)
def test_nobody_is_named_without_a_slow_rank(job: Job) -> None:
    several = [Fault("replica", (1,), 0.2, ONSET)] if job.stages > 1 else []
    for one, faults in (
        (job, []),
        (job, several),
        (job, [Fault("replica", (1,), 0.2, 1)]),
        (job, [Fault("cap", (), 0.2, ONSET)]),
        (replace(job, last_stage=1.3), []),
        (replace(job, work=0.2), []),
        (replace(job, sigma=0.1, rho=0.8), []),
    ):
        found = played(one, *faults, windows=ONSET + WITHIN)
        assert named(found) == set(), (one, faults)


@pytest.mark.parametrize(
    ("job", "fault", "cause"),
    [
        (PIPELINES, Fault("cap", (), 0.2, ONSET), Cause.COMMON_MODE),
        (PAIR, Fault("cap", (), 0.2, ONSET), Cause.COMMON_MODE),
        (replace(PIPELINES, last_stage=1.3), Fault("lost telemetry", (), 0.05), Cause.IMBALANCE),
        (PIPELINES, Fault("replica", (1,), 0.2, 1), Cause.IMBALANCE),
        (PAIR, Fault("replica", (1,), 0.3, 1), Cause.IMBALANCE),
    ],
)
def test_slowness_of_no_single_rank_has_its_own_cause(job: Job, fault: Fault, cause: Cause) -> None:
    found = played(job, fault, windows=80)
    assert {one.cause for one in found[-1].findings} == {cause}


@pytest.mark.parametrize("job", [PIPELINES, SQUARE])
def test_a_rank_that_is_slow_from_the_first_step_is_named_by_the_other_stages(job: Job) -> None:
    found = played(job, Fault("slow", (1,), 0.3, 1), windows=30)
    assert named(found) == {1}


def test_more_tokens_explain_a_longer_time() -> None:
    def more(table: Table, tokens: float) -> Table:
        known = np.full(table.size, 4096.0)
        if table.first < ONSET:
            return replace(table, tokens=known)
        known[1] *= tokens
        return replace(longer(table, 1, 1.2), tokens=known)

    assert named(changed(PAIR, lambda table: more(table, 1.2))) == set()
    assert named(changed(PAIR, lambda table: more(table, 1.0))) == {1}


@pytest.mark.parametrize("job", LAYOUTS[:3])
@pytest.mark.parametrize("first", [1, -1])
def test_tokens_that_some_ranks_do_not_report_accuse_nobody(job: Job, first: int) -> None:
    def partly(table: Table) -> Table:
        tokens = np.full(table.size, 4096.0)
        tokens[first:] = np.nan
        return replace(table, tokens=tokens)

    found = changed(job, partly)
    assert [one for report in found for one in report.findings] == []


def test_a_rank_that_recovers_does_not_accuse_its_peer() -> None:
    found = changed(PAIR, lambda table: longer(table, 1, 1.2 if table.first < ONSET else 1.0))
    assert named(found) == set()


@pytest.mark.parametrize(("slow", "expected"), [((5,), {5}), ((1, 3, 5, 7), set())])
def test_ranks_of_unknown_replicas_that_slow_down_together_are_not_named(
    slow: tuple[int, ...], expected: set[int]
) -> None:
    """Without the numbers of replicas, a longer replica shows as several ranks of different stages."""
    job = PIPELINES
    layout = replace(job.layout(), replica=np.arange(job.size))
    found = reports(layout, play(job, [Fault("slow", slow, 0.2, ONSET)], 60, 3))
    assert named(found[ONSET + WITHIN :]) == expected
    assert expected or {one.cause for one in found[-1].findings} == {Cause.COMMON_MODE}


def test_both_ranks_of_a_slow_node_are_named() -> None:
    job = PIPELINES
    layout = replace(job.layout(), node=np.array([0, 1, 0, 1, 2, 3, 2, 3]))
    found = reports(layout, play(job, [Fault("slow", (0, 2), 0.2, ONSET)], 60, 3))
    (last,) = found[-1].findings
    assert (last.place, last.ranks, last.where) == ("node", (0, 2), (0,))


def test_finding_about_a_single_rank_of_its_kind_is_not_proven() -> None:
    job = Job(stages=5, replicas=1, per_node=1)
    found = played(job, Fault("loader", (2,), 0.5, ONSET))
    accused: list[Finding] = [one for one in found[-1].findings if one.ranks]
    assert [(one.cause, one.ranks, one.proof) for one in accused] == [(Cause.INPUT, (2,), Proof.FEW_PEERS)]


def part(name: str, replicas: list[int]) -> Trace:
    """Return the trace with a few of its replicas, without the slowness of its slow worker."""
    whole = read(FOLDER / f"{name}.npz")
    whole = whole.without_slowness(0, 0) if name == "AR" else whole
    return Trace(
        whole.compute[:, :, replicas],
        whole.wall,
        whole.optimizer[:, :, replicas],
        {kind: seconds[:, :, replicas] for kind, seconds in whole.kinds.items()},
    )


@pytest.mark.parametrize("onset", [5, 20])
@pytest.mark.parametrize("rank", [0, 3, 5, 6])
def test_slowed_rank_of_a_public_trace_with_two_replicas_is_named(onset: int, rank: int) -> None:
    trace = part("AR", [1, 2])
    stage, replica = divmod(rank, 2)
    found = reports(trace.layout, trace.slowed(stage, replica, 1.2, onset).tables())
    assert named(found) == named(found[: onset + WITHIN]) == {rank}


@pytest.mark.parametrize(
    ("name", "replicas"), [("AR", [1, 2]), ("AR", [0, 1, 3]), ("SE", [4, 5]), ("SE", [7, 8, 9])]
)
def test_public_traces_with_few_replicas_name_nobody(name: str, replicas: list[int]) -> None:
    trace = part(name, replicas)
    found = reports(trace.layout, trace.tables())
    assert named(found) == set()
    causes = {(one.cause, one.place) for report in found for one in report.findings}
    assert ((Cause.IMBALANCE, "stages") in causes) is (name == "SE"), "the stages of SE differ by half"
