"""Tests of the findings on synthetic telemetry with known faults: the correct cause and ranks, or no
finding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from convoy_controllers.guard.canary import CanaryResult, run_canary
from convoy_controllers.guard.detector import advance
from convoy_controllers.guard.faults import KINDS, Fault
from convoy_controllers.guard.findings import Cause, Finding, Report, Verdict
from convoy_controllers.guard.links import Part, explain
from convoy_controllers.guard.state import initial_state
from convoy_controllers.guard.synthetic import Job, play
from convoy_controllers.guard.telemetry import Group, Layout, Table

ONSET = 21


def reports(job: Job, faults: Sequence[Fault], windows: int = 50, seed: int = 1) -> list[Report]:
    state, found = initial_state(job.layout()), []
    for table in play(job, faults, windows, seed):
        state, report = advance(state, table)
        found.append(report)
    return found


def lasting_findings(found: Sequence[Report]) -> list[Finding]:
    return [finding for report in found for finding in report.findings]


PIPELINE, WIDE = Job(), Job(stages=4, replicas=16, lanes=2)
PLAIN = Job(stages=1, replicas=8, per_node=1, micro=1, groups=False)
"""A job whose ranks report only the total time for which they wait in collectives."""
NODE_1 = tuple(range(8, 16))


@pytest.mark.parametrize(
    ("job", "kind", "where", "size", "place", "ranks"),
    [
        (PIPELINE, "slow", (5,), 0.1, "rank", (5,)),
        (Job(work=0.2), "slow", (5,), 0.15, "rank", (5,)),
        (Job(stages=1, replicas=8), "slow", (3,), 0.1, "rank", (3,)),
        (PIPELINE, "slow", (5, 13), 0.1, "rank", (5, 13)),
        (Job(classes=2, replicas=16), "slow", (5,), 0.1, "rank", (5,)),
        (PIPELINE, "thermal", (5,), 0.2, "rank", (5,)),
        (Job(tokens=True), "replica", (5,), 0.1, "replica", (5, 13, 21, 29)),
        (Job(lanes=2), "nic", (2,), 0.5, "node", tuple(range(16, 24))),
        (WIDE, "uplink", (1,), 0.5, "rack", ()),
        (PLAIN, "nic", (2,), 2.0, "job", ()),
        (replace(PLAIN, groups=True), "nic", (2,), 2.0, "group", ()),
        (PLAIN, "slow", (2,), 0.1, "rank", (2,)),
        (PIPELINE, "storage", (), 0.2, "job", ()),
        (PIPELINE, "loader", (5,), 0.2, "rank", (5,)),
        (Job(replicas=32), "hog", (1,), 0.2, "node", NODE_1),
        (PIPELINE, "cap", (), 0.1, "job", ()),
        (WIDE, "hot rack", (1,), 0.1, "rack", ()),
    ],
)
def test_finding_names_the_cause_and_the_culprits(
    job: Job, kind: str, where: tuple[int, ...], size: float, place: str, ranks: tuple[int, ...]
) -> None:
    found = reports(job, [Fault(kind, where, size, ONSET)])
    cause = KINDS[kind][0]
    assert not [one for one in lasting_findings(found[: ONSET - 1]) if one.cause != "Imbalance"]
    last = [one for one in found[-1].findings if one.cause != "Imbalance"]
    assert {(one.cause.value, one.place) for one in last} == {(cause, place)}
    assert {rank for one in last for rank in one.ranks} == set(ranks)
    assert all(one.persistent and ONSET <= one.since <= ONSET + 5 for one in last)
    # With uneven work another rank may be the slowest in this step. Then the slow rank does not delay the
    # step.
    assert all(one.lost > 0 or job.work for one in last)
    verdicts = found[-1].verdicts
    assert (verdicts[list(ranks)] == Verdict.PERSISTENT).all()
    assert not (np.delete(verdicts, list(ranks)) >= Verdict.SUSPECT).any()


@pytest.mark.parametrize("job", [Job(work=0.2), Job(last_stage=1.3)], ids=["sequences", "last stage"])
def test_imbalance_finding_names_no_rank(job: Job) -> None:
    found = reports(job, [], 30)
    assert {one.cause for one in lasting_findings(found)} == {"Imbalance"}
    assert not [one for one in lasting_findings(found) if one.ranks]
    assert [one.place for one in found[-1].findings] == ["stages" if job.last_stage > 1 else "replicas"]


@pytest.mark.parametrize(
    ("job", "faults"),
    [
        pytest.param(PIPELINE, [], id="calm"),
        # In each step one or two of the 1024 ranks are late by chance. That must give no finding.
        pytest.param(Job(replicas=128, lanes=2, groups=False), [], id="a thousand ranks"),
        pytest.param(PIPELINE, [Fault("checkpoint", size=2.0, period=7)], id="checkpoints"),
        pytest.param(PIPELINE, [Fault("lost telemetry", size=0.1)], id="lost telemetry"),
    ],
)
def test_harmless_variation_gives_no_finding(job: Job, faults: list[Fault]) -> None:
    assert lasting_findings(reports(job, faults, 40)) == []


def test_pauses_of_changing_ranks_are_a_host_finding_without_ranks() -> None:
    found = lasting_findings(reports(PIPELINE, [Fault("pauses", size=0.3, onset=ONSET)], 60))
    assert not [one for one in found if one.ranks] and {one.cause for one in found} == {"Host"}


@pytest.mark.parametrize(
    "when",
    [(80, 81), tuple(range(60, 150, 60)), tuple(range(40, 150, 6))],
    ids=["once", "each minute", "often, of a tenth"],
)
def test_rare_pauses_of_one_rank_give_no_finding(when: tuple[int, ...]) -> None:
    """Rank 0 pauses in a few windows, as in an evaluation, and all other ranks wait. No window may give a
    finding.
    """
    state = initial_state(PLAIN.layout())
    extra = np.zeros(PLAIN.size)
    extra[0] = 5.0 if len(when) < 10 else 0.1
    for table in play(PLAIN, [], 150, 1):
        late = extra if table.first in when else 0 * extra
        wall = table.wall + late.max()
        reported = replace(table, host=table.host + late, wall=wall, wait=table.wait + late.max() - late)
        state, report = advance(state, reported)
        assert report.findings == (), table.first


@pytest.mark.parametrize("kind", ["hog", "loader", "slow"])
def test_temporary_fault_of_a_rank_gives_no_later_finding_on_the_job(kind: str) -> None:
    job = replace(PLAIN, replicas=16)
    found = reports(job, [Fault(kind, (5,), 0.5, 60, 120)], 170)
    assert found[110].findings and {one.ranks for one in lasting_findings(found)} - {()} == {(5,)}
    assert {one.cause for one in lasting_findings(found) if not one.ranks} <= {"Unknown"}


def test_culprit_is_found_despite_lost_telemetry() -> None:
    found = reports(PIPELINE, [Fault("lost telemetry", size=0.1), Fault("slow", (5,), 0.1, ONSET)])
    assert {one.ranks for one in lasting_findings(found)} == {(5,)}
    assert (found[-1].verdicts == Verdict.SILENT).any()


def test_ranks_without_peers_get_their_own_verdict() -> None:
    found = reports(Job(stages=2, replicas=1), [Fault("slow", (1,), 0.5, ONSET)])
    assert not [one for one in lasting_findings(found) if one.ranks]
    assert (found[-1].verdicts == Verdict.TOO_FEW_PEERS).all()


def test_canary_reports_whether_the_detector_works() -> None:
    tables = list(play(PIPELINE, [], 24, 1))
    state = initial_state(PIPELINE.layout())
    for table in tables[:16]:
        state, _ = advance(state, table)
    assert run_canary(state, tables[16:]) is CanaryResult.DETECTED
    assert run_canary(state, tables[16:], slowdown=0.001) is CanaryResult.MISSED
    few = Job(stages=2, replicas=3)
    assert run_canary(initial_state(few.layout()), list(play(few, [], 8, 1))) is CanaryResult.UNTESTED


def test_slow_link_is_distinguished_from_its_ends() -> None:
    layout = Layout.of([0] * 4, range(4), rack=[0, 0, 1, 1])
    pairs = [(a, b) for a in range(4) for b in range(a)]
    groups = [Group(str(pair), "pp", np.array(pair), 1, 1, np.ones(2)) for pair in pairs]

    def slow(*wanted: tuple[int, int]) -> list[Part]:
        return [part for part, _ in explain(groups, [pairs.index(pair) for pair in wanted], layout)]

    assert slow((1, 0)) == [Part("link", (0, 1))]
    assert slow((2, 0), (2, 1), (3, 2)) == [Part("node", (2,))]
    assert slow((2, 0), (2, 1), (3, 2), (1, 0)) == [Part("node", (2,)), Part("link", (0, 1))]
    assert slow() == []


def test_slow_large_communicator_is_named_as_a_whole() -> None:
    layout = Layout.of([0] * 4, range(4))
    group = Group("dp", "dp", np.arange(4), 1, 1, np.ones(4))
    assert [part for part, _ in explain([group], [0], layout)] == [Part("group", (0, 1, 2, 3))]


def test_intermittent_communicator_keeps_all_communicator_states() -> None:
    def seldom(table: Table) -> Table:
        keep = table.first % 3 != 0
        return replace(table, groups=tuple(one for one in table.groups if keep or one.kind != "tp"))

    job = Job(lanes=2)
    state, found = initial_state(job.layout()), []
    for table in play(job, [Fault("nic", (2,), 0.5, ONSET)], 70, seed=1):
        state, report = advance(state, seldom(table))
        found.append(report)
    assert {(one.cause, one.place, one.where) for one in lasting_findings(found)} == {
        (Cause.COMMUNICATION, "node", (2,))
    }


def test_program_that_keeps_creating_groups_uses_bounded_memory() -> None:
    job = Job(stages=1, replicas=8)
    state = initial_state(job.layout())
    for number, table in enumerate(play(job, [], 110, seed=1)):
        fresh = Group(f"fresh {number}", "eval", np.arange(2), 1, 1, np.ones(2))
        state, _ = advance(state, replace(table, groups=(*table.groups, fresh)))
        units = len(state.communicators)
        assert units <= 1 + 65
        assert len(state.channels["groups"].alarmed) == len(state.initial_means["groups"].mean) == units
    assert state.communicators[0].name == "dp-0-0" and state.channels["groups past"].mean_windows[0] >= 64


def test_number_of_stored_communicators_is_bounded() -> None:
    job = Job(stages=1, replicas=8)
    state = initial_state(job.layout())
    (table,) = play(job, [], 1, seed=1)
    many = [Group(f"{number}", "eval", np.arange(2), 1, 1, np.ones(2)) for number in range(500)]
    for _ in range(2):
        state, _ = advance(state, replace(table, groups=(*table.groups, *many)))
        assert len(state.communicators) == 4 * 8 + 64


def test_communicator_that_some_members_do_not_report_is_ignored() -> None:
    job = Job(stages=1, replicas=8)
    (table,) = play(job, [], 1, seed=1)
    claimed = Group("claimed", "tp", np.arange(4), 1, 1, np.array([1.0, np.nan, np.nan, np.nan]))
    state, _ = advance(initial_state(job.layout()), replace(table, groups=(*table.groups, claimed)))
    assert [one.name for one in state.communicators] == ["dp-0-0"]


def transferring(job: Job, change: Callable[[Group], Group], at: int = 31) -> list[Finding]:
    state, found = initial_state(job.layout()), []
    for table in play(job, [], 70, seed=1):
        groups = tuple(change(one) if table.first >= at else one for one in table.groups)
        state, report = advance(state, replace(table, groups=groups))
        found.append(report)
    return [one for one in lasting_findings(found) if one.cause is Cause.COMMUNICATION]


def test_larger_transfers_are_not_a_slowdown() -> None:
    more = transferring(Job(lanes=2), lambda one: replace(one, bytes=2 * one.bytes, seconds=2 * one.seconds))
    assert more == []
    slower = transferring(Job(lanes=2), lambda one: replace(one, seconds=2 * one.seconds))
    assert slower


def test_slowdown_inside_all_nodes_names_no_rank() -> None:
    def change(one: Group) -> Group:
        return replace(one, seconds=2 * one.seconds) if one.kind == "tp" else one

    found = transferring(Job(stages=1, replicas=4, lanes=8), change)
    lasting = [one for one in found if one.persistent]
    assert lasting and {(one.place, one.ranks) for one in lasting} == {("group", ())}


def test_slowdown_of_a_negligible_transfer_gives_no_finding() -> None:
    def small(one: Group) -> Group:
        return replace(one, seconds=one.seconds / 1000)

    job = Job(stages=1, replicas=4, lanes=8)
    state, found = initial_state(job.layout()), []
    for table in play(job, [], 70, seed=1):
        groups = [small(one) if one.kind == "tp" else one for one in table.groups]
        if table.first > 30:
            groups = [
                replace(one, seconds=3 * one.seconds) if one.name == "tp-0-1" else one for one in groups
            ]
        state, report = advance(state, replace(table, groups=tuple(groups)))
        found.append(report)
    assert [one for one in lasting_findings(found) if one.cause is Cause.COMMUNICATION] == []


def test_rank_with_a_far_longer_input_wait_is_named_beside_the_job() -> None:
    faults = [Fault("storage", (), 0.2, ONSET), Fault("loader", (5,), 1.0, 41)]
    found = {
        (one.cause, one.place, one.ranks) for one in lasting_findings(reports(PIPELINE, faults, windows=80))
    }
    assert found == {(Cause.INPUT, "job", ()), (Cause.INPUT, "rank", (5,))}


def test_constant_input_wait_does_not_hide_a_later_slowdown() -> None:
    faults = [Fault("storage", (), 0.2, 1), Fault("nic", (2,), 20.0, 31)]
    found = {
        (one.cause, one.place, one.ranks) for one in lasting_findings(reports(PLAIN, faults, windows=70))
    }
    assert found == {(Cause.INPUT, "job", ()), (Cause.COMMUNICATION, "job", ())}


def merged(one: Table, other: Table) -> Table:
    """Return the sums of two one-step tables as one table."""
    columns = ("wall", "compute", "optimizer", "data", "wait", "save", "host", "tokens")
    sums = {name: getattr(one, name) + getattr(other, name) for name in columns}
    return replace(other, first=one.first, micro=None, **sums)


@pytest.mark.parametrize(("reporting", "cause"), [(32, Cause.COMPUTE), (1, Cause.IMBALANCE)])
def test_tokens_of_some_ranks_do_not_rule_out_a_longer_replica(reporting: int, cause: Cause) -> None:
    job = Job(tokens=True)
    state, found = initial_state(job.layout()), []
    for table in play(job, [Fault("replica", (5,), 0.1, ONSET)], 60, seed=1):
        tokens = np.where(np.arange(job.size) < reporting, table.tokens, np.nan)
        state, report = advance(state, replace(table, tokens=tokens))
        found.append(report)
    last = [one for one in found[-1].findings if one.place == "replica"]
    assert [(one.cause, bool(one.ranks)) for one in last] == [(cause, cause is Cause.COMPUTE)]


def test_longer_windows_are_not_slower_steps() -> None:
    state, found = initial_state(PLAIN.layout()), []
    tables = list(play(PLAIN, [], 140, seed=1))
    longer = [merged(*pair) for pair in zip(tables[40::2], tables[41::2], strict=True)]
    for table in [*tables[:40], *longer]:
        state, report = advance(state, table)
        found.append(report)
    assert lasting_findings(found) == []


def test_silent_or_negligible_communicators_do_not_blame_a_neighbour() -> None:
    layout = Layout.of([0] * 4, range(4))
    pairs = [(1, 0), (2, 0), (2, 1), (3, 1), (3, 2)]
    groups = [Group(str(pair), "pp", np.array(pair), 1, 1, np.ones(2)) for pair in pairs]
    assert [part for part, _ in explain(groups, [0, 1], layout)] == [Part("node", (0,))]
    groups[1] = groups[1].silent()
    assert [part for part, _ in explain(groups, [0, 1], layout)] == [Part("node", (0,))]
    groups[2] = groups[2].silent()
    assert [part for part, _ in explain(groups, [0, 1], layout)] == [Part("node", (0,))]


def test_unexplained_slowdown_is_reported_beside_a_constant_cause() -> None:
    def slower(table: Table) -> Table:
        more = 2.0 * (table.first > 60)
        return replace(table, wall=table.wall + more, save=table.save)

    state, found = initial_state(PLAIN.layout()), []
    for table in play(PLAIN, [Fault("storage", (), 0.2, 1)], 110, seed=1):
        state, report = advance(state, slower(table))
        found.append(report)
    assert {(one.cause, one.place) for one in lasting_findings(found)} == {
        (Cause.INPUT, "job"),
        (Cause.UNKNOWN, "job"),
    }


def test_pause_in_a_longer_window_counts_per_step() -> None:
    state = initial_state(PLAIN.layout())
    tables = list(play(PLAIN, [], 42, seed=1))
    for table in tables[:40]:
        state, _ = advance(state, table)
    last = merged(*tables[40:])
    host = last.host + np.where(np.arange(PLAIN.size) == 3, 1.0, 0.0)
    state, _ = advance(state, replace(last, host=host))
    assert state.pauses[-1] < 0.05
