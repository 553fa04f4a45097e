"""Tests of the agent's part in traces: the order, the results in a pod's state, and the server for files."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import asdict, replace
from typing import Any

import pytest

from convoy_agents.pods import state_file
from convoy_agents.pods.assignment import Assignment, AssignmentError, Member, from_json, from_wire
from convoy_agents.pods.fields import MessageError
from convoy_agents.pods.messages import RankHello
from convoy_agents.pods.report import to_wire
from convoy_agents.pods.rules import reduce
from convoy_agents.pods.state import Event, LauncherHello, Outcome, PodState, Urgency
from convoy_agents.tiercheck.stores.errors import StoreError
from convoy_agents.tracing import server as trace_server
from convoy_agents.tracing.order import MAX_BYTES, TraceOrder, TraceResult
from convoy_agents.tracing.requests import FAILURES, parse_failure, parse_file, parse_part
from convoy_agents.tracing.server import MAX_FILES, TraceServer
from convoy_agents.wire import hub_pb2
from convoy_controllers.trainingjob import trace_results
from convoy_crds import trainingjob_trace
from convoy_workloads.runtime.trace_protocol import Failure
from convoy_workloads.runtime.trace_sender import SENDER_SECONDS
from convoy_workloads.traces import record as recorder

ORDER = TraceOrder(3, 1, first=10, count=2, ranks=(0, 1), store="s3", max_bytes=1000)
PLAN = Assignment(
    pod_uid="pod", job_uid="job", job="ns/job", incarnation=1, slot=0, rank_offset=0, processes=2,
    world_size=2, master_addr="10.0.0.1", master_port=29500, hang_seconds=600, role="worker", replica=0,
    command=("python", "x.py"), members=(Member(0, "pod", "one", "10.0.0.1:1", 2),),
)  # fmt: skip
TRACED = replace(PLAN, trace=ORDER)
DATA = b"chakra" * 100


def run(*events: Event, state: PodState | None = None) -> Outcome:
    outcome = Outcome(state or PodState("pod"))
    for event in events:
        outcome = reduce(outcome.state, event)
    return outcome


def started(plan: Assignment = TRACED) -> PodState:
    return run(LauncherHello(0, 1, "3"), plan).state


def test_ranks_learn_of_an_order_when_they_start_and_while_they_run() -> None:
    outcome = run(LauncherHello(0, 1, "3"), TRACED)
    (frame,) = outcome.to_launcher
    assert frame["trace"] == ORDER.frame()
    assert outcome.state.welcome_frame == {"type": "trace", "incarnation": 1, "order": ORDER.frame()}
    state = started(PLAN)
    assert state.welcome_frame is None
    changed = run(TRACED, state=state)
    assert not changed.to_launcher, "the ranks are not restarted"
    assert changed.to_ranks == {"type": "trace", "incarnation": 1, "order": ORDER.frame()} and changed.save
    assert run(TRACED, state=changed.state).to_ranks is None
    over = run(PLAN, state=changed.state)
    assert over.to_ranks == {"type": "trace", "incarnation": 1, "order": None}


def test_results_are_reported_saved_and_dropped_with_their_order() -> None:
    stored = TraceResult(1, 0, ORDER.id, bytes=7, sha256="ab", nodes=3, comm_bytes_per_step=8)
    outcome = run(stored, state=started())
    assert outcome.save and outcome.urgency is Urgency.NOW
    failed = TraceResult(1, 1, ORDER.id, "TOO_LARGE", "2000 bytes")
    state = run(failed, state=outcome.state).state
    report = to_wire(state)
    assert (report.trace_recording, report.trace_attempt) == ORDER.id
    first, second = report.traces
    assert (first.rank, first.state, first.bytes, first.nodes) == (0, hub_pb2.TraceReport.STORED, 7, 3)
    assert (second.failure, second.message) == (hub_pb2.TraceReport.TOO_LARGE, "2000 bytes")
    kept = state_file.load("pod", json.loads(json.dumps(state_file.dump(state))))
    assert kept.traces == state.traces and kept.assignment == state.assignment
    late = TraceResult(1, 0, ORDER.id, "NOT_RECORDED")
    assert run(late, state=state).state is state, "a stored trace stays"
    other = replace(TRACED, trace=replace(ORDER, attempt=2))
    assert not run(other, state=state).state.traces
    assert not run(replace(PLAN, incarnation=2), state=state).state.traces
    assert not to_wire(run(PLAN, state=state).state).trace_recording


def test_first_failure_stays_until_the_trace_is_stored() -> None:
    first = TraceResult(1, 0, ORDER.id, "TOO_LARGE", "2000 bytes")
    state = run(first, state=started()).state
    for number in range(3):
        again = run(TraceResult(1, 0, ORDER.id, "NOT_RECORDED", f"cause {number}"), state=state)
        assert again.state is state and not again.save and again.urgency is not Urgency.NOW
    stored = TraceResult(1, 0, ORDER.id, bytes=7, sha256="ab")
    assert run(stored, state=state).state.traces == {0: stored}


def test_parts_of_convoy_agree_on_failures_and_the_number_of_steps() -> None:
    """Ranks, agents and controllers cannot import one another, so each has these names."""
    wire = set(hub_pb2.TraceReport.Failure.keys())
    assert set(FAILURES) == wire == {one.value for one in Failure}
    assert {*trace_results.FAILURES, trace_results.PASSED} == wire
    assert recorder.MAX_STEPS == trainingjob_trace.MAX_STEPS
    assert SENDER_SECONDS < trace_results.MISSING_SECONDS, "the cause comes first"


@pytest.mark.parametrize(
    "result",
    [
        TraceResult(2, 0, ORDER.id),
        TraceResult(1, 0, (3, 0)),
        TraceResult(1, 2, ORDER.id),
    ],
)
def test_result_of_another_order_changes_nothing(result: TraceResult) -> None:
    state = started()
    assert run(result, state=state).state is state


@pytest.mark.parametrize(
    ("order", "why"),
    [
        (replace(ORDER, ranks=(0, 2)), "ranks"),
        (replace(ORDER, ranks=()), "ranks"),
        (replace(ORDER, count=101), "101 steps"),
        (replace(ORDER, recording=0), "recording 0"),
        (replace(ORDER, max_bytes=MAX_BYTES + 1), "bytes"),
        (replace(ORDER, store=""), "no store"),
    ],
)
def test_inconsistent_order_is_refused(order: TraceOrder, why: str) -> None:
    message = hub_pb2.Assignment(
        pod_uid="pod", incarnation=1, processes=2, world_size=2, command=["x"],
        members=[hub_pb2.Member(slot=0, pod_uid="pod")], trace=hub_pb2.TraceOrder(**asdict(order)),
    )  # fmt: skip
    with pytest.raises(AssignmentError, match=f"trace: .*{why}"):
        from_wire(message)
    message.trace.CopyFrom(hub_pb2.TraceOrder(**asdict(ORDER)))
    accepted = from_wire(message)
    assert accepted.trace == ORDER
    assert from_json(json.loads(json.dumps(accepted.to_json()))) == accepted


def file_frame(data: bytes = DATA, **fields: Any) -> dict[str, Any]:
    return {
        "type": "traceFile", "recording": 3, "attempt": 1, "bytes": len(data),
        "sha256": hashlib.sha256(data).hexdigest(), "nodes": 5, "commBytesPerStep": 8,
        "exposedCommunicationRatio": 0.5, **fields,
    }  # fmt: skip


def parts(data: bytes = DATA, size: int = 256) -> list[dict[str, Any]]:
    cuts = [data[at : at + size] for at in range(0, len(data), size)]
    return [{"type": "part", "data": base64.b64encode(one).decode()} for one in cuts]


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"sha256": "ab"}, "sha256"),
        ({"bytes": MAX_BYTES + 1}, "bytes"),
        ({"bytes": 0}, "bytes"),
        ({"nodes": -1}, "nodes"),
        ({"exposedCommunicationRatio": 1.5}, "exposedCommunicationRatio"),
        ({"recording": "x"}, "recording"),
    ],
)
def test_malformed_frames_are_refused(fields: dict[str, Any], why: str) -> None:
    with pytest.raises(MessageError, match=f"^{why}: "):
        parse_file(file_frame(**fields))


def test_malformed_parts_and_failures_are_refused() -> None:
    for frame in ({"type": "other"}, {"type": "part"}, {"type": "part", "data": "a b"}):
        with pytest.raises(MessageError):
            parse_part(frame)
    with pytest.raises(MessageError, match="failure"):
        parse_failure({"type": "traceFailed", "recording": 3, "attempt": 1, "failure": "X"}, RankHello(1, 0))


class Rank:
    """The connection of a rank whose frames are known in advance."""

    def __init__(
        self, *frames: Mapping[str, Any], rank: int = 0, pod: str = "pod", stalls: bool = False
    ) -> None:
        """`stalls`: the rank stays connected after its frames, and sends nothing more."""
        self.incarnation, self.rank, self.pod = 1, rank, pod
        self.frames = self._frames(frames)
        self._stalls = stalls
        self.replies: list[Mapping[str, Any]] = []

    async def _frames(self, frames: tuple[Mapping[str, Any], ...]) -> AsyncIterator[Mapping[str, Any]]:
        for frame in frames:
            yield frame
        if self._stalls:
            await asyncio.Event().wait()

    async def send(self, frame: Mapping[str, Any]) -> None:
        self.replies.append(frame)

    @property
    def kinds(self) -> list[str]:
        return [one["type"] for one in self.replies]


class Store:
    def __init__(self, *errors: StoreError) -> None:
        self.errors = list(errors)
        self.files: dict[tuple[str, str, str], bytes] = {}
        """Files in the order in which they were stored."""
        self.busy = self.most = 0

    async def put(self, plan: Assignment, store: str, name: str, data: bytes) -> None:
        self.busy += 1
        self.most = max(self.most, self.busy)
        await asyncio.sleep(0)
        self.busy -= 1
        if self.errors:
            raise self.errors.pop(0)
        self.files[plan.job, store, name] = data


def serve(*ranks: Rank, store: Store, plan: Assignment = TRACED) -> list[TraceResult]:
    """Serve the ranks at the same time, and return the results that were recorded."""
    state, results = started(plan), list[TraceResult]()

    async def main() -> None:
        server = TraceServer(store.put, lambda _, result: results.append(result))

        async def serve_one(rank: Rank) -> None:
            own = replace(plan, pod_uid=rank.pod, job=rank.pod if rank.pod != "pod" else plan.job)
            pod = replace(state, uid=rank.pod, assignment=own)
            await server.serve(lambda: pod, rank)  # type: ignore[arg-type]

        await asyncio.gather(*map(serve_one, ranks))

    asyncio.run(main())
    return results


def test_files_are_stored_whole_one_at_a_time_under_names_of_the_ranks() -> None:
    store = Store()
    ranks = [Rank(file_frame(), *parts(), rank=number) for number in (0, 1)]
    results = serve(*ranks, store=store)
    assert store.files == {("ns/job", "s3", f"trace-3.{number}.et"): DATA for number in (0, 1)}
    assert store.most == 1
    assert all(rank.kinds == ["send", "stored"] for rank in ranks)
    assert [(one.rank, one.stored, one.bytes) for one in results] == [(0, True, 600), (1, True, 600)]


def test_rank_that_stalls_loses_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_server, "PART_SECONDS", 0.01)
    stalling = Rank(file_frame(), *parts()[:1], stalls=True)
    waiting = Rank(file_frame(), *parts(), rank=1)
    store = Store()
    (result,) = serve(stalling, waiting, store=store)
    assert result.rank == 1 and [name for _, _, name in store.files] == ["trace-3.1.et"]
    assert stalling.kinds == ["send"]


def test_rank_that_sends_too_slowly_loses_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    class SlowRank(Rank):
        """Sends parts as long as the agent takes them, each of them in time."""

        async def _frames(self, frames: tuple[Mapping[str, Any], ...]) -> AsyncIterator[Mapping[str, Any]]:
            yield file_frame(bytes=MAX_BYTES)
            while True:
                await asyncio.sleep(0.001)
                yield {"type": "part", "data": "YQ=="}

    monkeypatch.setattr(trace_server, "PART_SECONDS", 0.05)
    monkeypatch.setattr(trace_server, "MIN_RATE", 2**40)
    slow = SlowRank()
    large = replace(TRACED, trace=replace(ORDER, max_bytes=MAX_BYTES))
    assert not serve(slow, store=Store(), plan=large)
    assert slow.kinds == ["send"]


def test_pods_take_turns_whatever_the_number_of_their_ranks() -> None:
    many = [Rank(file_frame(), *parts(), rank=number, pod="a") for number in (0, 1)]
    store = Store()
    serve(*many, Rank(file_frame(), *parts(), pod="b"), store=store)
    assert [job for job, _, _ in store.files] == ["a", "b", "a"]
    assert store.most == 1


def test_half_a_file_leaves_nothing_in_the_store() -> None:
    store = Store()
    assert not serve(Rank(file_frame(), *parts()[:-1]), store=store)
    assert not store.files


@pytest.mark.parametrize(
    "frames",
    [
        [file_frame(), *parts(DATA[:-1] + b"x")],
        [file_frame(), *parts(DATA + b"x", size=601)],
        [file_frame(), {"type": "part", "data": ""}],
        [{"type": "part", "data": ""}],
    ],
)
def test_other_bytes_than_announced_end_the_connection(frames: list[dict[str, Any]]) -> None:
    store = Store()
    with pytest.raises(MessageError):
        serve(Rank(*frames), store=store)
    assert not store.files


@pytest.mark.parametrize(
    ("rank", "plan"),
    [
        (Rank(file_frame(attempt=0), *parts()), TRACED),
        (Rank(file_frame(), *parts()), PLAN),
        (Rank(file_frame(), *parts()), replace(TRACED, trace=replace(ORDER, ranks=(1,)))),
        (Rank(file_frame(), *parts()), replace(TRACED, trace=replace(ORDER, max_bytes=599))),
    ],
)
def test_file_that_nobody_asked_for_is_refused_before_it_is_sent(rank: Rank, plan: Assignment) -> None:
    store = Store()
    with pytest.raises(MessageError):  # this rank sends its parts all the same
        serve(rank, store=store, plan=plan)
    assert rank.kinds == ["refused"] and not store.files


def test_unreachable_store_is_told_to_the_rank_which_may_try_again() -> None:
    store = Store(StoreError("s3: no route", retriable=True))
    rank = Rank(file_frame(), *parts(), file_frame(), *parts())
    (result,) = serve(rank, store=store)
    assert rank.kinds == ["send", "failed", "send", "stored"]
    assert rank.replies[1] == {"type": "failed", "why": "s3: no route", "retry": True}
    assert result.stored


def test_a_rank_may_repeat_its_file_a_few_times_only() -> None:
    store = Store(*(StoreError("away", retriable=True) for _ in range(2 * MAX_FILES)))
    again = [frame for _ in range(MAX_FILES) for frame in (file_frame(), *parts())]
    rank = Rank(*again, file_frame())
    assert not serve(rank, store=store)
    assert rank.kinds.count("failed") == MAX_FILES and rank.kinds[-1] == "refused"


def test_failure_is_recorded() -> None:
    failure = {
        "type": "traceFailed",
        "recording": 3,
        "attempt": 1,
        "failure": "NOT_STORED",
        "message": "away",
    }
    rank = Rank(failure)
    (result,) = serve(rank, store=Store())
    assert (result.failure, result.message, rank.kinds) == ("NOT_STORED", "away", ["noted"])
