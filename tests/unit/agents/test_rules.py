from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.cases import cases

from convoy_agents.pods import state_file
from convoy_agents.pods.assignment import Assignment, Member, MemoryTiers
from convoy_agents.pods.messages import (
    RANK_STATES,
    LauncherHello,
    Metric,
    PortPicked,
    Progress,
    RankUpdate,
)
from convoy_agents.pods.report import MAX_TROUBLE, to_wire
from convoy_agents.pods.rules import reduce
from convoy_agents.pods.state import (
    CheckpointTroubles,
    CommitDecided,
    Committed,
    Event,
    LauncherDisconnected,
    Outcome,
    PeerMoved,
    PickPort,
    PodState,
    RankProgress,
    Shutdown,
    Urgency,
)
from convoy_agents.wire import hub_pb2
from convoy_controllers.checkpoint.commit import Verdict
from convoy_controllers.checkpoint.generation import Generation, Tier
from convoy_crds.metric_names import MAX_METRICS

UID = "pod"


def plan(
    incarnation: int, *, slot: int = 0, processes: int = 2, address: str = "10.0.0.1:8472"
) -> Assignment:
    """Return the assignment of one slot of a job with two slots. Slot 0 has ranks 0 and 1, and slot 1 has
    ranks 2 and 3.
    """
    members = (Member(0, UID, "one", address, 2), Member(1, UID, "two", "10.0.0.2:8472", 2))
    return Assignment(
        pod_uid=UID, job_uid="job", job="ns/job", incarnation=incarnation, slot=slot, rank_offset=2 * slot,
        processes=processes, world_size=4, master_addr="10.0.0.1", master_port=29500, hang_seconds=600,
        role="worker", replica=slot, command=("python", "x.py"), members=members,
    )  # fmt: skip


def run(*events: Event, state: PodState | None = None) -> Outcome:
    """Apply the events in order to `state` (default: a new pod), and return the outcome of the last event."""
    outcome = Outcome(state or PodState(UID))
    for event in events:
        outcome = reduce(outcome.state, event)
    return outcome


def hello(incarnation: int = 0) -> LauncherHello:
    return LauncherHello(incarnation, 1, "3.11")


def progress_of(rank: int, message: Any, incarnation: int = 1) -> RankProgress:
    return RankProgress(incarnation, rank, message)


UP = run(hello(), plan(1)).state
REFUSED = {"type": "refused", "incarnation": 1, "step": 10}


def test_only_changed_troubles_of_the_incarnation_are_reported() -> None:
    troubles = {"NOT_STORED": "the store is busy", "LOST": "nothing is whole"}
    known = run(plan(1), CheckpointTroubles(1, troubles))
    assert known.urgency is Urgency.BATCHED and known.state.troubles == troubles
    assert [(one.kind, one.message) for one in to_wire(known.state).troubles] == [
        (hub_pb2.Trouble.LOST, "nothing is whole"),
        (hub_pb2.Trouble.NOT_STORED, "the store is busy"),
    ]
    assert run(CheckpointTroubles(1, dict(troubles)), state=known.state).urgency is Urgency.NONE
    assert run(CheckpointTroubles(2, {}), state=known.state).state == known.state
    assert not run(CheckpointTroubles(1, {}), state=known.state).state.troubles
    assert not run(plan(2), state=known.state).state.troubles
    assert not to_wire(run(plan(2), state=known.state).state).troubles


def test_a_long_trouble_message_is_truncated() -> None:
    state = run(plan(1), CheckpointTroubles(1, {"LOST": "x" * 5000})).state
    assert len(to_wire(state).troubles[0].message) == MAX_TROUBLE


class TestLauncher:
    def test_an_assignment_is_saved_sent_to_the_launcher_and_reported(self) -> None:
        outcome = run(hello(), plan(1))
        assert outcome.save
        assert [frame["incarnation"] for frame in outcome.to_launcher] == [1]
        assert outcome.urgency is Urgency.NOW
        assert to_wire(outcome.state).incarnation == 1

    def test_an_assignment_waits_for_the_launcher_s_hello(self) -> None:
        outcome = run(plan(1))
        assert outcome.to_launcher == ()
        assert to_wire(outcome.state).incarnation == 0
        outcome = run(hello(), state=outcome.state)
        assert outcome.to_launcher == (plan(1).frame(),)
        assert to_wire(outcome.state).incarnation == 1

    @pytest.mark.parametrize(
        ("at", "sent"), [(0, [3]), (2, [3]), (3, []), (4, [])], ids=["new", "behind", "same", "ahead"]
    )
    def test_a_reconnected_launcher_gets_only_a_newer_assignment(self, at: int, sent: list[int]) -> None:
        state = run(hello(), plan(3), LauncherDisconnected()).state
        outcome = run(hello(at), state=state)
        assert [frame["incarnation"] for frame in outcome.to_launcher] == sent
        assert outcome.state.launcher_incarnation == max(3, at)

    @pytest.mark.parametrize("incarnation", [1, 2])
    def test_an_old_or_repeated_assignment_starts_nothing(self, incarnation: int) -> None:
        state = run(hello(), plan(2)).state
        outcome = run(plan(incarnation), state=state)
        assert outcome.to_launcher == ()
        assert outcome.state.assignment == plan(2)
        assert not outcome.save
        # The hub repeats an assignment if it has no report that the agent has it. So the agent must report at
        # once.
        assert outcome.urgency is Urgency.NOW

    def test_the_same_incarnation_can_update_a_peer_s_address(self) -> None:
        moved = plan(1, address="10.0.0.9:8472")
        outcome = run(moved, state=UP)
        assert outcome.to_launcher == ()
        assert outcome.save
        assert outcome.state.assignment == moved

    def test_the_same_incarnation_can_update_the_interval(self) -> None:
        slower = replace(plan(1), memory=MemoryTiers(1, 0, interval_seconds=42))
        outcome = run(slower, state=UP)
        assert (outcome.to_launcher, outcome.save, outcome.urgency) == ((), True, Urgency.NOW)
        report = to_wire(outcome.state)
        assert (report.incarnation, report.interval_seconds) == (1, 42)
        assert to_wire(run(slower, state=outcome.state).state).interval_seconds == 42
        assert to_wire(run(plan(2), state=outcome.state).state).interval_seconds == 0
        assert to_wire(UP).interval_seconds == 0

    @pytest.mark.parametrize(
        ("remembered", "reported"), [([], 0), ([plan(2)], 2)], ids=["nothing", "an older one"]
    )
    def test_an_agent_without_state_reports_no_assignment_to_get_a_resend(
        self, remembered: list[Event], reported: int
    ) -> None:
        state = run(*remembered, hello(3), RankUpdate(3, 0, "RUNNING")).state
        report = to_wire(state)
        assert (report.incarnation, len(report.ranks)) == (reported, 0)
        outcome = run(plan(3), state=state)
        assert (outcome.save, outcome.to_launcher) == (True, ())
        report = to_wire(outcome.state)
        assert (report.incarnation, len(report.ranks)) == (3, 1)

    def test_the_moved_coordinator_s_new_address_is_reported(self) -> None:
        node = plan(1).members[0].node
        assert not to_wire(run(hello()).state).peers
        assert [one.peer_address for one in to_wire(UP).peers] == [plan(1).members[0].peer_address]
        outcome = run(PeerMoved(node, "10.0.0.9:8472"), state=UP)
        assert (outcome.save, outcome.urgency, outcome.to_launcher) == (True, Urgency.NOW, ())
        report = to_wire(outcome.state)
        assert [(one.node, one.peer_address) for one in report.peers] == [(node, "10.0.0.9:8472")]
        assert not run(PeerMoved(node, "10.0.0.9:8472"), state=outcome.state).save
        assert run(PeerMoved("elsewhere", "x:1"), state=UP).state == UP
        assert run(PeerMoved(node, "x:1")).state == PodState(UID)

    def test_a_new_incarnation_drops_the_ranks_of_the_previous_one(self) -> None:
        state = run(RankUpdate(1, 0, "RUNNING"), progress_of(0, Progress(10)), state=UP).state
        state = run(plan(2), state=state).state
        assert state.ranks == {}
        assert run(RankUpdate(1, 0, "EXITED"), state=state).state == state

    def test_shutdown_survives_a_reconnect_and_ends_with_the_incarnation(self) -> None:
        outcome = run(Shutdown(3, "why", immediate=True), LauncherDisconnected(), hello(1), state=UP)
        expected = {"type": "shutdown", "exitCode": 3, "reason": "why", "immediate": True}
        assert outcome.to_launcher == (expected,)
        assert run(plan(2), LauncherDisconnected(), hello(2), state=outcome.state).to_launcher == ()

    def test_a_port_is_requested_once_and_kept(self) -> None:
        outcome = run(PickPort(2), state=UP)
        assert outcome.to_launcher == ({"type": "pickPort", "incarnation": 2},)
        assert outcome.save
        assert run(PickPort(2), state=outcome.state).to_launcher == ()
        again = run(LauncherDisconnected(), hello(1), state=outcome.state)
        assert again.to_launcher == ({"type": "pickPort", "incarnation": 2},)
        picked = run(PortPicked(2, 31000), PortPicked(2, 31001), state=again.state).state
        assert (picked.port_incarnation, picked.master_port) == (2, 31000)
        repeated = run(PickPort(2), state=picked)
        assert (repeated.to_launcher, repeated.urgency) == ((), Urgency.NOW)

    @pytest.mark.parametrize("incarnation", [1, 3])
    def test_an_unrequested_port_is_ignored(self, incarnation: int) -> None:
        state = run(PickPort(2), state=UP).state
        assert run(PortPicked(incarnation, 31000), state=state).state == state

    def test_a_restarted_agent_accepts_the_port_without_a_request(self) -> None:
        assert run(hello(), PortPicked(2, 31000)).state.master_port == 31000


class TestRanks:
    @pytest.mark.parametrize("before", RANK_STATES)
    @pytest.mark.parametrize("after", RANK_STATES)
    def test_states_only_move_forward(self, before: str, after: str) -> None:
        state = run(RankUpdate(1, 0, before), state=UP).state
        outcome = run(RankUpdate(1, 0, after), state=state)
        forward = RANK_STATES.index(after) > RANK_STATES.index(before)
        assert outcome.state.ranks[0].update.state == (after if forward else before)
        assert outcome.urgency is (Urgency.NOW if forward else Urgency.NONE)

    @pytest.mark.parametrize(
        ("update", "problem"),
        [
            (RankUpdate(1, 1, "RUNNING"), False),
            (RankUpdate(1, 2, "RUNNING"), True),
            (RankUpdate(0, 0, "RUNNING"), False),
            (RankUpdate(9, 0, "RUNNING"), False),
        ],
        ids=["own", "another pod's", "of an older incarnation", "of one to come"],
    )
    def test_only_the_pod_s_own_ranks_count(self, update: RankUpdate, problem: bool) -> None:
        outcome = run(update, state=UP)
        assert bool(outcome.problem) is problem
        assert (update.rank in outcome.state.ranks) is (update == RankUpdate(1, 1, "RUNNING"))

    def test_the_number_of_ranks_is_limited_without_an_assignment(self) -> None:
        state = run(hello(1)).state
        for rank in range(64):
            state = run(RankUpdate(1, rank, "RUNNING"), state=state).state
        assert run(RankUpdate(1, 64, "RUNNING"), state=state).problem
        assert not run(RankUpdate(1, 63, "EXITED"), state=state).problem

    def test_a_first_step_is_sent_now_and_later_steps_are_batched(self) -> None:
        outcome = run(RankUpdate(1, 0, "STARTING"), progress_of(0, Progress(0)), state=UP)
        assert (outcome.state.ranks[0].update.state, outcome.urgency) == ("STARTING", Urgency.BATCHED)
        outcome = run(progress_of(0, Progress(1)), state=outcome.state)
        assert (outcome.state.ranks[0].update.state, outcome.urgency) == ("RUNNING", Urgency.NOW)
        outcome = run(progress_of(0, Progress(2)), state=outcome.state)
        assert outcome.urgency is Urgency.BATCHED

    @pytest.mark.parametrize("progress_first", [False, True])
    def test_a_rank_s_start_time_is_known_in_either_message_order(self, progress_first: bool) -> None:
        events: list[Event] = [
            RankUpdate(1, 0, "RUNNING", started_ms=70),
            progress_of(0, Progress(1, time_ms=90)),
        ]
        state = run(*reversed(events) if progress_first else events, state=UP).state
        state = run(RankUpdate(1, 0, "RUNNING", started_ms=99), state=state).state
        [report] = to_wire(state).ranks
        assert (report.started_unix_ms, report.progress.step, report.ended_unix_ms) == (70, 1, 0)

    def test_a_rank_is_finished_until_it_makes_steps_again(self) -> None:
        begun = RankUpdate(1, 0, "RUNNING", started_ms=70)
        state, seen = UP, []
        for update in (
            begun,
            replace(begun, finished_ms=90),
            begun,
            replace(begun, finished_ms=95),
            RankUpdate(1, 0, "STARTING"),
            replace(begun, state="EXITED", ended_ms=99, finished_ms=95),
            begun,
        ):
            outcome = run(update, state=state)
            state = outcome.state
            [report] = to_wire(state).ranks
            seen.append((report.finished_unix_ms, report.started_unix_ms, outcome.urgency is Urgency.NONE))
        assert seen == [
            (0, 70, False), (90, 70, False), (0, 70, False), (95, 70, False), (95, 70, True),
            (95, 70, False), (95, 70, True),
        ]  # fmt: skip

    def test_the_end_of_the_first_step_is_reported_immediately_and_once(self) -> None:
        state = run(RankUpdate(1, 0, "RUNNING", started_ms=70), progress_of(0, Progress(40)), state=UP).state
        outcome = run(progress_of(0, Progress(41, time_ms=90, first_step_ms=90)), state=state)
        assert outcome.urgency is Urgency.NOW
        assert to_wire(outcome.state).ranks[0].first_step_unix_ms == 90
        latest = Progress(42, first_step_ms=90, checkpoint_ms=250, save_ms=12, copy_ms=70, restore_ms=33)
        outcome = run(progress_of(0, latest), state=outcome.state)
        assert outcome.urgency is Urgency.BATCHED
        progress = to_wire(outcome.state).ranks[0].progress
        assert (progress.checkpoint_ms, progress.save_ms, progress.copy_ms) == (250, 12, 70)
        assert progress.restore_ms == 33
        # The first step of each incarnation must be reported without delay.
        outcome = run(plan(2), progress_of(0, Progress(41, first_step_ms=95), 2), state=outcome.state)
        assert outcome.urgency is Urgency.NOW
        assert to_wire(outcome.state).ranks[0].first_step_unix_ms == 95

    END = RankUpdate(
        1,
        0,
        "EXITED",
        exit_code=137,
        signal=9,
        started_ms=70,
        ended_ms=99,
        first_step_ms=80,
        step=45,
        step_ms=98,
        checkpoint_ms=9,
    )

    @pytest.mark.parametrize(
        ("before", "after", "step", "saving", "loss"),
        [
            ([], [], 45, 9, 0.0),
            ([Progress(41, time_ms=90, loss=0.5, first_step_ms=80, checkpoint_ms=7)], [], 45, 9, 0.5),
            ([], [Progress(44, time_ms=97, loss=0.5, first_step_ms=80, checkpoint_ms=7)], 45, 9, 0.5),
            ([Progress(46, time_ms=98, loss=0.5, first_step_ms=80, checkpoint_ms=7)], [], 46, 7, 0.5),
        ],
        ids=["nothing reported before", "older report", "read late", "reported already"],
    )
    def test_a_rank_that_dies_is_reported_with_its_true_last_step(
        self, before: list[Progress], after: list[Progress], step: int, saving: int, loss: float
    ) -> None:
        events = [progress_of(0, one) for one in before] + [self.END] + [progress_of(0, one) for one in after]
        [report] = to_wire(run(*events, state=UP).state).ranks
        assert report.state == 2
        assert (report.progress.step, report.progress.time_unix_ms) == (step, 98)
        assert (report.started_unix_ms, report.first_step_unix_ms, report.ended_unix_ms) == (70, 80, 99)
        assert (report.progress.loss, report.progress.checkpoint_ms) == (loss, saving)

    def test_a_rank_that_never_stepped_is_reported_without_progress(self) -> None:
        [report] = to_wire(run(RankUpdate(1, 0, "EXITED", ended_ms=99), state=UP).state).ranks
        assert (report.HasField("progress"), report.ended_unix_ms) == (False, 99)

    def test_an_exit_keeps_the_last_progress(self) -> None:
        state = run(
            progress_of(0, Progress(5, loss=0.5)), RankUpdate(1, 0, "EXITED", exit_code=1), state=UP
        ).state
        [report] = to_wire(state).ranks
        assert (report.exit_code, report.progress.step, report.progress.loss) == (1, 5, 0.5)

    def test_a_diverged_loss_is_reported_without_a_value(self) -> None:
        for diverged in (True, False):
            [report] = to_wire(run(progress_of(0, Progress(5, diverged=diverged)), state=UP).state).ranks
            assert (report.progress.diverged, report.progress.HasField("loss")) == (diverged, False)

    def test_each_metric_is_reported_from_the_lowest_rank(self) -> None:
        both = Progress(5, metrics=(Metric("ratio", None, 5), Metric("rate", 2.0, 4)))
        other = Progress(6, metrics=(Metric("rate", 3.0, 6), Metric("last_stage", 0.25, 6)))
        state = run(progress_of(1, other), progress_of(0, both), state=UP).state
        first, second = to_wire(state).ranks
        assert [(one.name, one.HasField("value"), one.value, one.step) for one in first.progress.metrics] == [
            ("ratio", False, 0.0, 5),
            ("rate", True, 2.0, 4),
        ]
        assert [(one.name, one.value) for one in second.progress.metrics] == [("last_stage", 0.25)]

    def test_a_pod_reports_a_bounded_number_of_metrics(self) -> None:
        events = [
            progress_of(
                rank,
                Progress(5, metrics=tuple(Metric(f"m{rank}_{one}", 1.0, 5) for one in range(MAX_METRICS))),
            )
            for rank in range(2)
        ]
        first, second = to_wire(run(*events, state=UP).state).ranks
        assert (len(first.progress.metrics), len(second.progress.metrics)) == (MAX_METRICS, 0)


class TestGenerations:
    @pytest.mark.parametrize("tier", list(Tier))
    def test_a_commit_is_reported_and_saved(self, tier: Tier) -> None:
        outcome = run(CommitDecided(tier, Generation(1, 10), Verdict.COMMITTED, 1, 77), state=UP)
        assert (outcome.save, outcome.urgency, outcome.to_ranks) == (True, Urgency.NOW, None)
        (report,) = to_wire(outcome.state).committed
        assert (report.incarnation, report.step, report.time_unix_ms, report.tier) == (1, 10, 77, tier.value)

    def test_a_late_verdict_does_not_replace_a_newer_commit(self) -> None:
        newest = Committed(Generation(2, 5), 1)
        state = replace(UP, committed={Tier.REMOTE: newest})
        outcome = run(CommitDecided(Tier.REMOTE, Generation(1, 90), Verdict.COMMITTED, 1, 2), state=state)
        assert outcome.state.committed == {Tier.REMOTE: newest}

    @pytest.mark.parametrize(
        ("verdict", "seen", "refused"),
        [(Verdict.STALE, 2, True), (Verdict.STALE, 1, False), (Verdict.EXPIRED, 0, False)],
        ids=["a later incarnation", "overtaken", "no answer"],
    )
    def test_only_a_later_incarnation_causes_a_refusal(
        self, verdict: Verdict, seen: int, refused: bool
    ) -> None:
        outcome = run(CommitDecided(Tier.LOCAL, Generation(1, 10), verdict, seen, 0), state=UP)
        assert outcome.to_ranks == ({**REFUSED, "seen": 2} if refused else None)
        assert outcome.state.committed == {}

    @pytest.mark.parametrize(
        "later", [plan(2), PickPort(2), hello(2)], ids=["assigned", "port requested", "launcher knows it"]
    )
    def test_a_later_assignment_of_the_own_pod_causes_a_refusal_too(self, later: Event) -> None:
        outcome = run(later, CommitDecided(Tier.LOCAL, Generation(1, 10), Verdict.STALE, 1, 0), state=UP)
        assert outcome.to_ranks == {**REFUSED, "seen": 2}


def test_the_state_file_has_the_state_a_restarted_agent_needs() -> None:
    state = run(
        PickPort(2), CommitDecided(Tier.REMOTE, Generation(1, 10), Verdict.COMMITTED, 1, 77), state=UP
    ).state
    again = state_file.load(UID, state_file.dump(state))
    assert (again.assignment, again.committed, again.seen) == (state.assignment, state.committed, 2)
    assert to_wire(again).incarnation == 1
    assert not again.connected
    assert state_file.load(UID, state_file.dump(PodState(UID))) == PodState(UID)


incarnations, ranks, steps = st.integers(0, 4), st.integers(0, 5), st.integers(0, 6)
events: st.SearchStrategy[Event] = st.one_of(
    st.builds(hello, incarnations),
    st.just(LauncherDisconnected()),
    st.builds(PortPicked, incarnations, st.integers(1, 3)),
    st.builds(RankUpdate, incarnations, ranks, st.sampled_from(RANK_STATES)),
    st.builds(RankProgress, incarnations, ranks, st.builds(Progress, steps)),
    st.builds(plan, st.integers(1, 4)),
    st.builds(PickPort, incarnations),
    st.builds(PeerMoved, st.sampled_from(["one", "two"]), st.sampled_from(["a:1", "b:1"])),
    st.builds(Shutdown, st.integers(0, 3), st.just("")),
    st.builds(
        CommitDecided, st.sampled_from(Tier), st.builds(Generation, incarnations, steps),
        st.sampled_from(Verdict), incarnations, steps,
    ),
)  # fmt: skip


class AnyHistory(RuleBasedStateMachine):
    """Applies random events to a pod's state, and checks the invariants after each event."""

    def __init__(self) -> None:
        super().__init__()
        self.state = PodState(UID)
        self.seen = 0
        self.committed: dict[Tier, Generation] = {}
        self.assigned = 0

    @rule(event=events)
    def happens(self, event: Event) -> None:
        outcome = reduce(self.state, event)
        if outcome.to_ranks:
            assert outcome.to_ranks["type"] == "refused"
            assert outcome.to_ranks["incarnation"] < outcome.to_ranks["seen"]
        if (
            outcome.state.assignment != self.state.assignment
            or outcome.state.committed != self.state.committed
        ):
            assert outcome.save
        if outcome.problem:
            assert outcome.state == self.state
        for frame in outcome.to_launcher:
            assert outcome.state.connected
            assert frame["type"] in ("assignment", "pickPort", "shutdown")
        assert reduce(self.state, event) == outcome  # reduce must be a pure function
        self.state = outcome.state

    @invariant()
    def nothing_goes_back(self) -> None:
        state = self.state
        assigned = state.assignment.incarnation if state.assignment else 0
        assert assigned >= self.assigned
        self.assigned = assigned
        for tier, before in self.committed.items():
            assert state.committed[tier].generation >= before
        self.committed = {tier: one.generation for tier, one in state.committed.items()}

    @invariant()
    def nothing_grows_without_end(self) -> None:
        assert len(self.state.ranks) <= 64
        assert set(self.state.ranks) <= set(range(6))

    @invariant()
    def the_report_can_be_made(self) -> None:
        report = to_wire(self.state)
        assert report.launcher_connected == self.state.connected
        assert all(entry.update.incarnation == self.state.current for entry in self.state.ranks.values())


TestAnyHistory = pytest.mark.timeout(cases(180))(AnyHistory.TestCase)
TestAnyHistory.settings = settings(max_examples=cases(50), stateful_step_count=40)


@pytest.mark.timeout(cases(180))
@given(st.lists(events, max_size=30))
@settings(max_examples=cases(60))
def test_the_state_file_round_trips_from_any_state(history: list[Event]) -> None:
    state = run(*history).state
    again = state_file.load(UID, state_file.dump(state))
    assert again.assignment == state.assignment
    assert again.committed == state.committed
    assert again.port_wanted == state.port_wanted
