"""What the hub believes of agents: liveness, reports, urgency, commands."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import replace
from math import inf
from typing import Any
from unittest.mock import Mock

import grpc
import pytest
from structlog.testing import capture_logs

from convoy_agents.wire import hub_pb2 as wire
from convoy_agents.wire.callers import Caller
from convoy_agents.wire.warrants import Warrant
from convoy_controllers.plan import Assign, CommitView, Member, MemoryTiers, PickPort, Shutdown
from convoy_controllers.testing.builders import make_job
from convoy_operator import views
from convoy_operator.hub import messages, sessions
from convoy_operator.hub.agents import Agents
from convoy_operator.hub.ca import Authority, make_authority
from convoy_operator.hub.liveness import Liveness
from convoy_operator.hub.sessions import Sessions
from convoy_operator.hub.streams import Stream
from convoy_operator.hub.warranting import WarrantOffice
from convoy_operator.keys import TRAINING_JOB, Key
from convoy_operator.metrics import Metrics
from convoy_operator.settings import Settings
from convoy_operator.world import World

from .conftest import FakeApi

STATE = wire.RankReport.State


def liveness(count: int = 1, at: float = 0.0) -> Liveness:
    alive = Liveness(silent_seconds=5, grace_seconds=10, farewell_seconds=15)
    alive.begin(at)
    for n in range(count):
        alive.heard(f"n{n}", at)
    return alive


class TestLiveness:
    def test_an_agent_is_there_until_it_has_been_silent_for_long(self) -> None:
        alive = liveness()
        assert alive.connected("n0", 5.0)
        assert not alive.connected("n0", 5.1)
        alive.heard("n0", 6.0)
        assert alive.connected("n0", 10.0)

    def test_an_agent_never_heard_is_not_there(self) -> None:
        assert not liveness().connected("other", 0.0)
        assert liveness().silence("other", 0.0) == float("inf")

    def test_an_announced_absence_may_last_longer(self) -> None:
        alive = liveness()
        alive.farewell("n0", 0.0)
        assert alive.connected("n0", 14.0)
        assert not alive.connected("n0", 15.1)

    @pytest.mark.parametrize(
        ("agents", "silent", "alarm"),
        [
            (1, 1, False),
            (2, 2, False),
            (3, 3, True),
            (10, 3, False),
            (10, 4, True),
            (100, 30, False),
            (100, 31, True),
        ],
    )
    def test_too_many_silent_at_once_are_not_believed(self, agents: int, silent: int, alarm: bool) -> None:
        alive = liveness(agents)
        for n in range(silent, agents):
            alive.heard(f"n{n}", 20.0)
        assert alive.alarm(21.0) is alarm
        assert alive.connected("n0", 21.0) is alarm

    def test_agents_that_fell_silent_one_after_another_are_believed(self) -> None:
        alive = liveness(10)
        for n in range(10):
            alive.heard(f"n{n}", 100.0 + 20 * min(n, 4))
        assert not alive.alarm(181.0)
        assert not alive.connected("n0", 181.0)

    def test_agents_that_said_goodbye_raise_no_alarm(self) -> None:
        alive = liveness(10)
        for n in range(10):
            (alive.farewell if n < 8 else alive.heard)(f"n{n}", 20.0 if n < 8 else 40.0)
        assert not alive.alarm(41.0)
        assert not alive.connected("n0", 41.0)

    def test_an_alarm_ends_and_those_removed_for_good_do_not_count_in_the_next(self) -> None:
        alive = liveness(20)
        for second in range(10, 400, 2):
            for n in range(15, 20):
                alive.heard(f"n{n}", float(second))
            assert alive.alarm(second + 1.0) is (second < 300)
        for n in range(15, 19):
            alive.heard(f"n{n}", 410.0)
        assert not alive.alarm(411.0)
        assert alive.alarm(418.0), "all that were left, at once"
        assert alive.connected("n15", 418.0) and not alive.connected("n0", 418.0)

    def test_a_silence_counts_once_it_is_long_and_believed(self) -> None:
        alive = liveness()
        assert alive.silent("n0", 15.0) == 15.0
        alive.heard("n0", 15.0)
        assert (alive.silent("n0", 20.0), alive.silent("n0", 20.5)) == (0.0, 5.5)

    def test_no_silence_is_believed_before_a_new_leader_may_judge(self) -> None:
        alive = liveness(at=90.0)
        alive.begin(100.0)
        assert alive.silent("n0", 109.0) == 0.0
        assert alive.silent("n0", 110.0) == 20.0

    @pytest.mark.parametrize(
        ("dialled", "missing", "grace"), [(0, 1, 10), (2, 1, 5.5), (2, 2, 10), (8, 3, 5.5), (8, 4, 10)]
    )
    def test_a_leader_judges_early_where_all_but_a_few_have_dialled(
        self, dialled: int, missing: int, grace: float
    ) -> None:
        alive = Liveness(5.0, 10.0, 15.0)
        alive.begin(100.0)
        alive.expect([f"missing{n}" for n in range(missing)], 100.0)
        for n in range(dialled):
            alive.heard(f"n{n}", 101.0)
        assert alive.grace(100.0) == grace

    def test_an_announced_absence_is_no_silence(self) -> None:
        alive = liveness()
        alive.farewell("n0", 20.0)
        assert alive.silent("n0", 35.0) == 0.0
        assert alive.silent("n0", 36.0) == 16.0

    def test_too_many_silences_at_once_are_none(self) -> None:
        alive = liveness(10)
        for n in range(4, 10):
            alive.heard(f"n{n}", 20.0)
        assert alive.silent("n0", 21.0) == 0.0
        assert alive.quiet(5.0, 21.0).keys() == {"n0", "n1", "n2", "n3"}, "but they are known"

    def test_an_agent_that_must_be_there_and_never_came_is_silent_from_when_it_was_asked_for(self) -> None:
        alive = Liveness(5, 10, 15)
        alive.begin(100.0)
        alive.expect({"lost"}, 101.0)
        alive.expect({"lost"}, 109.0)
        assert alive.silent("lost", 109.9) == 0.0
        assert alive.silent("lost", 112.0) == 11.0
        assert alive.silent("nobody's", 112.0) == 0.0
        assert not alive.known("lost") and not alive.connected("lost", 112.0)
        alive.heard("lost", 112.0)
        assert alive.silent("lost", 113.0) == 0.0
        alive.forget("lost")
        alive.expect({"lost"}, 200.0)
        assert alive.silent("lost", 204.0) == 0.0, "its silence begins anew with the node"

    def test_a_node_that_is_no_more_takes_its_expected_agent_along(self) -> None:
        alive = Liveness(5, 10, 15)
        alive.begin(0.0)
        alive.expect({"n"}, 0.0)
        alive.forget("n")
        assert alive.silent("n", 30.0) == 0.0

    def test_agents_that_are_no_more_expected_are_forgotten(self) -> None:
        alive = Liveness(5, 10, 15)
        alive.begin(0.0)
        alive.expect({"n"}, 0.0)
        alive.expect((), 20.0)
        assert alive.silent("n", 30.0) == 0.0 and not alive.quiet(0.0, 30.0)

    def test_a_new_leader_to_which_nobody_comes_is_itself_cut_off(self) -> None:
        alive = Liveness(5, 10, 15)
        alive.begin(0.0)
        alive.expect({"a", "b", "c"}, 0.0)
        assert alive.alarm(12.0)
        assert alive.silent("a", 12.0) == 0.0

    def test_nobody_is_silent_while_the_operator_itself_stood_still(self) -> None:
        alive = liveness(2)
        alive.heard("n1", 20.0)
        alive.excuse(6.0, 20.5)
        assert alive.silent("n0", 20.5) == 14.5
        assert alive.quiet(-1.0, 20.5)["n1"] == 0.0, "and nobody is heard in the future"

    def test_grace_begins_with_the_leadership(self) -> None:
        alive = Liveness(5, 10, 15)
        assert alive.grace(1e9) == 10, "who does not lead has not begun to judge"
        alive.begin(100.0)
        assert (alive.grace(104.0), alive.grace(111.0)) == (6.0, 0.0)


def report(**more: Any) -> wire.PodReport:
    return wire.PodReport(**{"pod_uid": "u", "launcher_connected": True, **more})


def rank(state: int = STATE.RUNNING, **more: Any) -> wire.RankReport:
    return wire.RankReport(rank=0, state=state, **more)  # type: ignore[arg-type]


class TestMessages:
    def test_a_report_becomes_a_view(self) -> None:
        progress = wire.Progress(
            step=3,
            total_steps=9,
            samples_per_second=1.5,
            loss=0.5,
            time_unix_ms=1500,
            checkpoint_ms=2250,
            save_ms=12,
            copy_ms=700,
            restore_ms=1500,
            diverged=True,
        )
        view = messages.slot_view(
            report(
                incarnation=2,
                master_port=29500,
                port_incarnation=2,
                ranks=[
                    rank(
                        STATE.EXITED,
                        exit_code=1,
                        oom=True,
                        stderr_tail="x" * 5000,
                        progress=progress,
                        started_unix_ms=500,
                        first_step_unix_ms=1250,
                        ended_unix_ms=1750,
                        finished_unix_ms=1500,
                    )
                ],
                committed=[wire.Committed(incarnation=1, step=8, time_unix_ms=2500, tier="remote")],
                interval_seconds=42,
            ),
            "n0",
        )
        (one,) = view.ranks
        assert (view.node, view.incarnation, view.master_port) == ("n0", 2, 29500)
        assert (view.interval_seconds, one.save_seconds, one.copy_seconds) == (42, 0.012, 0.7)
        assert one.restore_seconds == 1.5
        assert (one.state, one.exit_code, one.oom, len(one.stderr)) == ("EXITED", 1, True, 2048)
        assert (one.step, one.total_steps, one.loss, one.metrics, one.time) == (3, 9, 0.5, (), 1.5)
        assert one.diverged is True
        assert (one.started, one.first_step, one.ended, one.checkpoint_seconds) == (0.5, 1.25, 1.75, 2.25)
        assert one.finished == 1.5
        assert view.committed == {"remote": CommitView(1, 8, 2.5)}

    def test_all_troubles_are_looked_at_and_a_kind_that_is_not_known_is_the_gravest(self) -> None:
        told = [
            wire.Trouble(kind=wire.Trouble.INEXACT, message="two.weight"),
            wire.Trouble(kind=99, message="x" * 5000),  # type: ignore[arg-type]
        ]
        view = messages.slot_view(report(troubles=told), "n0")
        assert view.troubles == (("INEXACT", "two.weight"), ("NO_MEMORY", "x" * 2048))
        assert messages.skeleton(view) != messages.skeleton(messages.slot_view(report(), "n0"))
        many = messages.slot_view(report(troubles=told * 100), "n0")
        assert len(many.troubles) == messages.MOST_TROUBLES >= len(wire.Trouble.Kind.keys())

    def test_what_was_not_reported_is_none(self) -> None:
        view = messages.slot_view(report(ranks=[rank()]), "n0")
        assert view.committed == {}
        (one,) = view.ranks
        assert one.step is None and one.total_steps is None
        assert (one.started, one.first_step, one.ended, one.checkpoint_seconds) == (0.0, 0.0, 0.0, 0.0)
        assert one.finished == 0.0

    @pytest.mark.parametrize(
        ("before", "after", "urgent"),
        [
            pytest.param(report(), report(ranks=[rank()]), False, id="a rank runs"),
            pytest.param(report(ranks=[rank()]), report(ranks=[rank(STATE.EXITED)]), True, id="a rank exits"),
            pytest.param(
                report(ranks=[rank(STATE.EXITED)]),
                report(ranks=[rank(STATE.EXITED)]),
                False,
                id="it exited before",
            ),
            pytest.param(report(ranks=[rank()]), report(ranks=[rank(hung=True)]), True, id="a rank hangs"),
            pytest.param(report(), report(master_port=1, port_incarnation=1), True, id="a port is there"),
            pytest.param(report(), report(incarnation=2), True, id="an incarnation began"),
            pytest.param(
                report(ranks=[rank()]),
                report(ranks=[rank(progress=wire.Progress(step=2))]),
                False,
                id="a step",
            ),
            pytest.param(
                report(ranks=[rank(progress=wire.Progress(step=1))]),
                report(ranks=[rank(progress=wire.Progress(step=1), first_step_unix_ms=9)]),
                True,
                id="a rank ended its first step",
            ),
            pytest.param(
                report(ranks=[rank(progress=wire.Progress(step=1), first_step_unix_ms=9)]),
                report(ranks=[rank(progress=wire.Progress(step=2), first_step_unix_ms=9)]),
                False,
                id="its first step was over before",
            ),
        ],
    )
    def test_urgency(self, before: wire.PodReport, after: wire.PodReport, urgent: bool) -> None:
        assert messages.urgent(messages.slot_view(before, "n"), messages.slot_view(after, "n")) is urgent

    @pytest.mark.parametrize("field", ["started_unix_ms", "first_step_unix_ms", "ended_unix_ms"])
    def test_the_times_of_a_rank_are_worth_a_look(self, field: str) -> None:
        before = messages.slot_view(report(ranks=[rank()]), "n")
        after = messages.slot_view(report(ranks=[rank(**{field: 5})]), "n")
        assert messages.skeleton(before) != messages.skeleton(after)

    @pytest.mark.parametrize(
        "more",
        [{"ranks": [rank(progress=wire.Progress(save_ms=9, copy_ms=7))]}, {"interval_seconds": 42}],
        ids=["what a save costs", "how often it saves"],
    )
    def test_what_can_wait_for_the_next_write_wakes_nobody(self, more: dict[str, Any]) -> None:
        before = messages.slot_view(report(ranks=[rank(progress=wire.Progress())]), "n")
        after = messages.slot_view(report(**{"ranks": [rank(progress=wire.Progress())], **more}), "n")
        assert before != after and messages.skeleton(before) == messages.skeleton(after)
        assert not messages.urgent(before, after)

    def test_an_assignment_tells_what_its_nodes_keep(self) -> None:
        given = MemoryTiers(1, 7, ("n1",), ("n2",), interval_seconds=42)
        made = messages._memory(given, lambda node: f"{node}:1")
        assert (made.copies, made.limit, made.interval_seconds) == (1, 7, 42)
        assert [one.peer_address for one in (*made.hosts, *made.holders)] == ["n1:1", "n2:1"]

    def test_an_assignment_tells_where_all_peers_are(self) -> None:
        given = Assign(
            node="n0",
            pod_uid="u0",
            job_uid="j",
            job="ns/job",
            incarnation=3,
            slot=0,
            rank_offset=0,
            processes=2,
            world_size=4,
            master_addr="10.0.0.1",
            master_port=29500,
            hang_seconds=600,
            role="worker",
            replica=0,
            command=("python3", "t.py"),
            members=(Member(0, "u0", "n0", 2), Member(1, "u1", "n1", 2)),
            strict=True,
            slots=2,
        )
        made = messages.command(given, lambda node: f"{node}:1", repr).assignment
        assert (made.incarnation, made.world_size, list(made.command)) == (3, 4, ["python3", "t.py"])
        assert made.slots == 2
        assert [member.peer_address for member in made.members] == ["n0:1", "n1:1"]
        assert made.strict and made.warrant == repr(Warrant(given.job_uid, 3, given.slot, given.node))
        assert not messages.command(replace(given, strict=False), str, repr).assignment.strict

    def test_the_other_commands(self) -> None:
        port = messages.command(PickPort("n", "u", 4), str, repr).pick_port
        end = messages.command(Shutdown("n", "u", 7, "why"), str, repr).shutdown
        kill = messages.command(Shutdown("n", "u", 7, "why", immediate=True), str, repr).shutdown
        assert (port.pod_uid, port.incarnation) == ("u", 4)
        assert (end.pod_uid, end.exit_code, end.reason) == ("u", 7, "why")
        assert (end.immediate, kill.immediate) == (False, True)


class Queue:
    """Keeps what was added."""

    def __init__(self) -> None:
        self.added: list[tuple[Key, float]] = []

    def add(self, key: Key, delay: float = 0.0, *, high: bool = True) -> None:
        self.added.append((key, delay))

    def take(self) -> list[float]:
        """Delays of what was added since the last look."""
        delays = [delay for _, delay in self.added]
        self.added.clear()
        return delays


class Aborted(Exception):
    """Ends a call, as gRPC has it."""


class Silent:
    """The context of a stream on which nothing comes but what is given."""

    def __init__(self, said: list[wire.AgentMessage]) -> None:
        self.said = said
        self.written: list[wire.HubMessage] = []
        self.code: grpc.StatusCode | None = None

    async def read(self) -> wire.AgentMessage:
        if not self.said:
            await asyncio.Event().wait()
        return self.said.pop(0)

    async def write(self, message: wire.HubMessage) -> None:
        self.written.append(message)

    async def send_initial_metadata(self, metadata: object) -> None:
        pass

    async def abort(self, code: grpc.StatusCode, why: str) -> None:
        self.code = code
        raise Aborted(why)


class TestAgents:
    KEY = Key(TRAINING_JOB, "ns", "job")

    @pytest.fixture(autouse=True)
    async def hub(self, api: FakeApi) -> None:
        self.now = 100.0
        self.world = World()
        self.queue = Queue()
        self.agents = Agents(
            self.world,
            self.queue,  # type: ignore[arg-type]
            Metrics(),
            Settings(),
            api,
            progress_delay=lambda key: 10.0,
            clock=lambda: self.now,
            wall=lambda: self.now + 1e6,
        )
        self.agents.presence.begin()
        self.authority = Authority(make_authority())
        self.agents.office.begin(self.authority)
        self.pod = self.add_pod("u", "n0")

    def add_pod(self, uid: str, node: str) -> Any:
        raw = {
            "metadata": {
                "name": f"job-{uid}",
                "namespace": "ns",
                "uid": uid,
                "resourceVersion": "1",
                "labels": {"convoy.dev/job": "job"},
            },
            "spec": {"nodeName": node},
        }
        self.world.pods.upsert(views.pod(raw))
        return views.pod(raw).view

    def add_node(self, name: str) -> None:
        raw = {"metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": "1"}}
        self.world.nodes.upsert(views.node(raw))

    async def session(self, monkeypatch: pytest.MonkeyPatch, node: str, left: float) -> Silent:
        """A stream of an agent that says Hello and nothing more, with a certificate for so many seconds."""
        monkeypatch.setattr(sessions, "caller", lambda context: Caller(node, time.time() + left))
        context = Silent([wire.AgentMessage(hello=wire.Hello(node=node, peer_address=f"{node}:8472"))])
        its = Sessions(
            self.agents, Metrics(), leads=lambda: True, leader_address=str, renewals=int, own_address="own"
        )
        async with asyncio.timeout(5):
            with suppress(Aborted):
                await its.Session(None, context)
        return context

    def join(self, node: str = "n0", *pods: wire.PodReport) -> Any:
        return self.agents.join(wire.Hello(node=node, peer_address=f"{node}:8472", pods=pods))

    async def test_a_report_is_believed_of_the_node_the_pod_is_on_alone(self) -> None:
        self.join("n1", report())
        assert self.agents.slots((self.pod,)) == {}
        assert self.queue.take() == []
        self.join("n0", report(incarnation=1))
        assert self.agents.slots((self.pod,))["u"].incarnation == 1

    async def test_a_report_that_is_faster_than_the_watch_is_not_lost(self) -> None:
        self.join("n0", report(pod_uid="later"))
        pod = self.add_pod("later", "n0")
        assert self.agents.slots((pod,))["later"].launcher_connected

    async def test_an_exit_wakes_the_job_at_once_progress_does_not(self) -> None:
        self.join("n0", report(ranks=[rank()]))
        self.queue.take()
        self.agents.report("n0", report(ranks=[rank(progress=wire.Progress(step=1))]))
        assert self.queue.take() == [0.15], "the first step is news"
        self.agents.report("n0", report(ranks=[rank(progress=wire.Progress(step=2))]))
        assert self.queue.take() == [10.0]
        self.agents.report("n0", report(ranks=[rank(progress=wire.Progress(step=2))]))
        assert self.queue.take() == [], "nothing new"
        self.agents.report("n0", report(ranks=[rank(STATE.EXITED)]))
        assert self.queue.take() == [0.0]

    async def test_a_silent_agents_launchers_are_not_connected(self) -> None:
        self.join("n0", report(incarnation=1))
        self.agents.presence.look()
        self.queue.take()
        self.now += 6
        self.agents.presence.look()
        assert self.queue.take() == [0.0]
        view = self.agents.slots((self.pod,))["u"]
        assert not view.launcher_connected and view.incarnation == 1
        self.agents.heard("n0")
        assert self.agents.slots((self.pod,))["u"].launcher_connected
        assert self.queue.take() == [0.15]

    async def test_a_new_hello_replaces_all_that_was_known(self) -> None:
        other = self.add_pod("v", "n0")
        first = self.join("n0", report(), report(pod_uid="v"))
        self.join("n0", report())
        assert first.superseded.is_set()
        assert set(self.agents.slots((self.pod, other))) == {"u"}

    async def test_what_a_superseded_stream_still_holds_is_not_taken(self) -> None:
        first = self.join("n0", report())
        self.join("n0", report(incarnation=9))
        left = [wire.AgentMessage(pod=report(incarnation=3)), wire.AgentMessage(goodbye=wire.Goodbye())]

        class Context:
            async def read(self) -> wire.AgentMessage | None:
                return left.pop(0) if left else None

        its = Sessions(
            self.agents, Metrics(), leads=lambda: True, leader_address=str, renewals=int, own_address="own"
        )
        await its._listen(Context(), first, Caller("n0", inf))  # type: ignore[arg-type]
        assert self.agents.slots((self.pod,))["u"].incarnation == 9

    @pytest.mark.parametrize(
        ("left", "welcomed", "code"),
        [(0.5, True, None), (0.0, False, grpc.StatusCode.UNAUTHENTICATED)],
        ids=["runs out while nothing is said", "has run out"],
    )
    async def test_a_stream_lasts_no_longer_than_its_certificate(
        self, monkeypatch: pytest.MonkeyPatch, left: float, welcomed: bool, code: grpc.StatusCode | None
    ) -> None:
        self.add_node("n0")
        first = self.join("n0")
        context = await self.session(monkeypatch, "n0", left)
        assert (bool(context.written), context.code) == (welcomed, code)
        assert first.superseded.is_set() is welcomed

    async def test_an_agent_of_no_node_is_not_let_in(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.add_node("n0")
        context = await self.session(monkeypatch, "n1", 1.0)
        assert (context.written, context.code) == ([], grpc.StatusCode.FAILED_PRECONDITION)
        assert not self.agents.peer_address("n1")

    async def test_no_more_is_remembered_of_a_node_than_a_node_may_have(self) -> None:
        long = "x" * 10_000
        ranks = [rank(stderr_tail=long) for _ in range(200)]
        asks = [wire.Place(node=long, peer_address=long)] * 100
        held = [wire.Held(job_uid=f"{number}{long}", warrant=long) for number in range(1000)]
        hardware = wire.Hardware(known=True, accelerators=[long] * 1000, driver=long)
        hello = wire.Hello(node="n0", peer_address=long, holdings=wire.Holdings(held=held), hardware=hardware)
        self.agents.join(hello)
        for number in range(1000):
            self.agents.report("n0", report(pod_uid=f"u{number}", ranks=ranks, asks=asks))
            self.agents.report("n0", report(pod_uid=f"few{number}"))
            self.agents.report("n0", report(pod_uid=f"{number}{long}"))
        agent = self.agents._agents["n0"]
        sizes = [sum(len(one.stderr) for one in view.ranks) for view in agent.slots.values()]
        assert len(agent.slots) == 512 and sum(sizes) == 4096 * 2048 and max(sizes) == 64 * 2048
        assert {len(one) for asked in agent.asks.values() for place in asked for one in place} == {256}
        assert max(map(len, agent.asks.values())) == 64 and len(agent.peer_address) == 256
        assert len(agent.holdings) == 512 and {*map(len, agent.holdings.values())} == {4096}
        assert agent.hardware.ByteSize() < 32_768
        # What is known already goes on being told.
        self.agents.report("n0", report(pod_uid="few0", incarnation=7))
        assert agent.slots["few0"].incarnation == 7

    async def test_an_agent_that_floods_is_slowed_and_no_other(self) -> None:
        self.join("n0", report())
        self.join("n1", report())
        beat = wire.AgentMessage(heartbeat=wire.Heartbeat())
        large = wire.AgentMessage(pod=report(ranks=[rank(stderr_tail="x" * 2**20)]))
        for _ in range(1000):
            self.agents.spend("n0", beat)
        assert not self.agents.owes("n0")
        for _ in range(60):
            self.agents.spend("n0", large)
        # Whoever dials again has what was said before against it.
        self.join("n0", report())
        assert self.agents.owes("n0") > 1 and not self.agents.owes("n1")
        self.now += 20
        assert not self.agents.owes("n0")

    async def test_an_agent_pays_for_windows_of_steps_but_64_ranks_may_tell_all_that_they_have_saved_up(
        self,
    ) -> None:
        def told(pods: int, windows: int) -> wire.AgentMessage:
            one = wire.PodTelemetry(windows=[wire.StepWindow()] * windows)
            return wire.AgentMessage(telemetry=wire.Telemetry(pods=[one] * pods))

        self.agents.spend("n0", told(1, 64 * 32))
        for _ in range(100):
            self.agents.spend("n0", told(1, 64))
            self.now += 1
            assert not self.agents.owes("n0")
        self.agents.spend("n0", told(64, 4096))
        assert self.agents.owes("n0") > 50
        self.agents.spend("n1", told(100_000, 0))
        assert self.agents.owes("n1") > 15

    async def test_who_owes_dials_in_vain_and_nothing_is_read_of_it(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.add_node("n0")
        monkeypatch.setattr(sessions, "REFUSED_SECONDS", 0)
        monkeypatch.setattr(self.agents, "owes", lambda node: 1.0)
        context = await self.session(monkeypatch, "n0", 1.0)
        assert (context.written, context.code) == ([], grpc.StatusCode.RESOURCE_EXHAUSTED)
        assert len(context.said) == 1 and not self.agents.peer_address("n0")

    async def test_what_an_agent_says_as_it_dials_counts(self, monkeypatch: pytest.MonkeyPatch) -> None:
        spent: list[str] = []
        monkeypatch.setattr(self.agents, "spend", lambda node, message: spent.append(node))
        await self.session(monkeypatch, "n0", 0.1)
        assert spent == ["n0"], "although there is no such node"

    async def test_streams_of_one_agent_are_counted(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.add_node("n0")
        monkeypatch.setattr(sessions, "caller", lambda context: Caller("n0", inf))
        its = Sessions(
            self.agents, Metrics(), leads=lambda: True, leader_address=str, renewals=int, own_address="own"
        )
        silent = [Silent([]) for _ in range(sessions.MOST_STREAMS)]
        calls = [asyncio.create_task(its.Session(None, context)) for context in silent]
        await asyncio.sleep(0)
        monkeypatch.setattr(sessions, "REFUSED_SECONDS", 0)
        with capture_logs() as logged:
            for _ in range(100):
                late = Silent([])
                with pytest.raises(Aborted):
                    await its.Session(None, late)
                assert late.code is grpc.StatusCode.RESOURCE_EXHAUSTED
        said = [one for one in logged if one["event"] == "an agent says too much"]
        assert 20 <= len(said) <= 22, "who is turned away again and again fills no log"
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        assert not its._open

    async def test_what_follows_is_read_when_its_time_has_come(self, monkeypatch: pytest.MonkeyPatch) -> None:
        beats = [wire.AgentMessage(heartbeat=wire.Heartbeat(sent_unix_ms=number)) for number in range(3)]
        order: list[object] = []
        debts = [0.0, 1.0, 2.0, 0.0]

        class Context:
            async def read(self) -> wire.AgentMessage | None:
                order.append("read")
                return beats.pop(0) if beats else None

        async def sleep(seconds: float) -> None:
            order.append(seconds)

        monkeypatch.setattr(sessions.asyncio, "sleep", sleep)
        monkeypatch.setattr(self.agents, "owes", lambda node: debts.pop(0))
        monkeypatch.setattr(self.agents, "spend", lambda node, message: order.append(f"pays at {node}"))
        monkeypatch.setattr(
            self.agents, "beat", lambda stream, beat: order.append(f"beat {beat.sent_unix_ms}")
        )
        its = Sessions(
            self.agents, Metrics(), leads=lambda: True, leader_address=str, renewals=int, own_address="own"
        )
        await its._listen(Context(), Stream("n0"), Caller("n0", inf))
        pays = "pays at n0"
        assert order == [
            *("read", pays, "beat 0"),
            *(1.0, "read", pays, "beat 1"),
            *(2.0, "read", pays, "beat 2"),
            "read",
        ]

    async def test_while_telemetry_is_taken_in_others_have_a_turn(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        told = wire.Telemetry(pods=[wire.PodTelemetry(pod_uid=uid) for uid in "ab"])
        left = [wire.AgentMessage(telemetry=told)]
        order: list[str] = []

        def heard(node: str, pod: wire.PodTelemetry, since: int = 0) -> int:
            order.append(f"{pod.pod_uid}{since}")
            return 7 if pod.pod_uid == "a" and not since else 0

        monkeypatch.setattr(self.agents.watches, "heard", heard)

        class Context:
            async def read(self) -> wire.AgentMessage | None:
                return left.pop(0) if left else None

        metrics = Metrics()
        its = Sessions(
            self.agents, metrics, leads=lambda: True, leader_address=str, renewals=int, own_address="own"
        )

        async def other() -> None:
            for _ in range(3):
                order.append("other")
                await asyncio.sleep(0)

        listening = asyncio.create_task(its._listen(Context(), self.join("n0"), Caller("n0", inf)))
        await asyncio.gather(listening, asyncio.create_task(other()))
        assert order == ["a0", "other", "a7", "other", "b0", "other"]
        assert metrics.agent_messages.labels("telemetry")._value.get() == 1

    @pytest.mark.parametrize(
        ("addresses", "unreachable", "dies_at", "leads_at", "found", "seconds"),
        [
            (["", "own"], "", 0.0, 1.0, None, 1.0),
            (["other"], "", 99.0, 99.0, "other", 0.0),
            (["dead"], "dead", 0.0, 3.0, None, 3.0),
            (["dead"] * 20 + ["next"], "dead", 0.0, 99.0, "next", 2.0),
            (["dead"], "dead", 0.0, 99.0, "own", 5.0),
            (["dead"], "dead", 1.0, 99.0, "own", 5.0),
            (["well"], "well", 99.0, 99.0, "well", 5.0),
            ([""], "well", 99.0, 99.0, "own", 5.0),
        ],
    )
    def test_who_does_not_lead_sends_agents_on_or_keeps_them_until_somebody_does(
        self,
        virtual: Any,
        addresses: list[str],
        unreachable: str,
        dies_at: float,
        leads_at: float,
        found: str | None,
        seconds: float,
    ) -> None:
        async def scenario() -> None:
            now = asyncio.get_running_loop().time
            began = now()
            its = Sessions(
                self.agents,
                Metrics(),
                leads=lambda: now() - began >= leads_at,
                leader_address=lambda: addresses.pop(0) if len(addresses) > 1 else addresses[0],
                renewals=lambda: int(min(now() - began, dies_at)),
                own_address="own",
            )
            assert await its._elsewhere(unreachable) == found
            assert now() - began == pytest.approx(seconds, abs=0.11)

        virtual(scenario())

    async def test_the_end_of_an_old_stream_does_not_end_the_new(self) -> None:
        first = self.join("n0")
        second = self.join("n0")
        self.agents.leave(first)
        self.agents.send(PickPort("n0", "u", 1))
        assert second.outbox.get_nowait().pick_port.incarnation == 1

    async def test_a_command_for_nobody_is_dropped_and_counted(self) -> None:
        self.agents.send(PickPort("n9", "u", 1))
        assert self.agents._metrics.commands_dropped._value.get() == 1

    async def test_an_agent_that_takes_no_commands_is_hung_up_on(self) -> None:
        stream = self.join("n0")
        for n in range(stream.outbox.maxsize + 1):
            self.agents.send(PickPort("n0", "u", n))
        assert stream.superseded.is_set()

    async def test_nothing_is_settled_before_all_agents_dialled_or_their_time_is_up(self) -> None:
        self.join("n0")
        assert self.agents.unsettled({"n0"}) == 0
        assert self.agents.unsettled({"n0", "n1"}) == 5.5
        self.now += 4
        assert self.agents.unsettled({"n1"}) == 1.5
        self.now += 2
        assert self.agents.unsettled({"n1"}) == 0

    async def test_who_asks_a_moved_agent_for_commits_is_told_until_it_knows(self) -> None:
        asks = report(asks=[wire.Place(node="n1", peer_address="n1:old")])
        stream = self.join("n0", asks)
        self.agents.look()
        assert stream.outbox.empty(), "that agent has not dialled yet: nobody knows better"
        self.join("n1")
        self.agents.look()
        moved = stream.outbox.get_nowait().peer_moved
        assert (moved.pod_uid, moved.node, moved.peer_address) == ("u", "n1", "n1:8472")
        self.agents.report("n0", asks)
        assert stream.outbox.empty(), "it is on its way"
        self.now += 2
        self.agents.report("n0", asks)
        assert stream.outbox.get_nowait().HasField("peer_moved"), "it still says what is wrong"
        self.agents.join(wire.Hello(node="n1", peer_address="n1:9"))
        self.agents.look()
        assert stream.outbox.get_nowait().peer_moved.peer_address == "n1:9", "which is news"
        self.agents.join(wire.Hello(node="n1", peer_address="n1:8472"))
        self.agents.report("n0", report(asks=[wire.Place(node="n1", peer_address="n1:8472")]))
        self.agents.look()
        assert stream.outbox.empty()

    async def test_who_has_all_addresses_wrong_is_told_once_of_each_and_no_more_than_fits(self) -> None:
        def hello(nodes: list[str]) -> wire.Hello:
            asks = [wire.Place(node=node, peer_address="wrong") for node in nodes]
            pods = [report(pod_uid=f"u{number}", asks=asks) for number in range(512)]
            return wire.Hello(node="n0", peer_address="n0:8472", pods=pods)

        dropped = self.agents._metrics.commands_dropped._value
        stream = self.agents.join(hello(["n0"] * 64))
        assert stream.outbox.qsize() == 512 and not stream.superseded.is_set()
        for number in range(64):
            self.join(f"n{number}")
        stream = self.agents.join(hello([f"n{number}" for number in range(64)]))
        assert stream.outbox.full() and stream.superseded.is_set()
        assert dropped.get() == 1, "it is not gone on with"

    async def test_an_agent_pays_for_what_it_asks_but_110_pods_may_tell_at_once(self) -> None:
        asks = [wire.Place(node=f"n{number}") for number in range(64)]
        hello = wire.Hello(pods=[report(pod_uid=f"u{number}", asks=asks[:6]) for number in range(110)])
        for _ in range(20):
            self.agents.spend("n0", wire.AgentMessage(hello=hello))
        assert not self.agents.owes("n0")
        for _ in range(3):
            hello = wire.Hello(pods=[report(pod_uid=f"u{number}", asks=asks) for number in range(512)])
            self.agents.spend("n1", wire.AgentMessage(hello=hello))
        assert self.agents.owes("n1") > 3
        for _ in range(2000):
            self.agents.spend("n2", wire.AgentMessage(pod=report(asks=asks)))
        assert self.agents.owes("n2") > 9

    async def test_a_new_leader_corrects_what_a_hello_says(self) -> None:
        self.join("n1")
        self.agents.look()
        stream = self.join("n0", report(asks=[wire.Place(node="n1", peer_address="n1:old")]))
        assert stream.outbox.get_nowait().peer_moved.peer_address == "n1:8472"

    @pytest.mark.parametrize(("fencing", "told"), [("Strict", True), ("Commit", False)])
    async def test_the_peers_of_a_strict_job_are_told_where_an_agent_has_moved(
        self, fencing: str, told: bool
    ) -> None:
        job = make_job(recovery={"fencing": fencing}).to_dict()
        job["metadata"] |= {"namespace": "ns", "resourceVersion": "1"}
        self.world.jobs.upsert(views.parent(job))
        self.add_pod("v", "n1")
        stream = self.join("n0", report())
        self.join("n1", report(pod_uid="v"))
        self.agents.look()
        assert stream.outbox.empty(), "a new leader learns addresses; nobody has moved"
        self.agents.join(wire.Hello(node="n1", peer_address="n1:9", pods=[report(pod_uid="v")]))
        self.agents.look()
        if told:
            moved = stream.outbox.get_nowait().peer_moved
            assert (moved.pod_uid, moved.node, moved.peer_address) == ("u", "n1", "n1:9")
        assert stream.outbox.empty()

    async def test_a_command_is_not_repeated_at_once(self) -> None:
        stream = self.join("n0")
        for _ in range(3):
            self.agents.send(PickPort("n0", "u", 1))
        self.agents.send(PickPort("n0", "u", 2))
        assert [stream.outbox.get_nowait().pick_port.incarnation for _ in range(2)] == [1, 2]
        assert stream.outbox.empty()
        self.now += 2
        self.agents.send(PickPort("n0", "u", 1))
        assert stream.outbox.get_nowait().pick_port.incarnation == 1
        self.agents.send(PickPort("n0", "u", 1))
        assert self.join("n0").outbox.empty()
        self.agents.send(PickPort("n0", "u", 1))
        assert not self.agents._agents["n0"].stream.outbox.empty(), "it may never have heard of the other"

    async def test_a_heartbeat_is_answered_and_keeps_the_agent_there(self) -> None:
        stream = self.join("n0")
        self.now += 6
        self.agents.beat(stream, wire.Heartbeat(sent_unix_ms=1234))
        assert stream.outbox.get_nowait().pulse.sent_unix_ms == 1234
        assert self.agents.presence.connected("n0")

    async def test_pulses_that_find_no_room_are_left_out_and_end_no_stream(self) -> None:
        stream = self.join("n0")
        for n in range(stream.outbox.maxsize + 10):
            self.agents.beat(stream, wire.Heartbeat(sent_unix_ms=n))
        assert stream.outbox.full() and not stream.superseded.is_set()
        assert self.agents._metrics.commands_dropped._value.get() == 0

    async def test_whom_an_agent_has_heard_of_is_known(self) -> None:
        stream = self.join("n1")
        self.agents.beat(stream, wire.Heartbeat(vouched=[wire.Vouched(node="n0", age_ms=15_000)]))
        assert self.agents.nodes((self.pod,))["n0"].vouched_by == {"n1"}
        self.now += 5
        assert self.agents.nodes((self.pod,))["n0"].vouched_by == {"n1"}
        self.now += 1
        assert self.agents.nodes((self.pod,))["n0"].vouched_by == set(), "longer ago than the fencing time"

    async def test_an_agents_word_on_nodes_without_pods_is_not_kept(self) -> None:
        stream = self.join("n1")
        made_up = [wire.Vouched(node=f"made-up-{n}") for n in range(1000)]
        self.agents.beat(stream, wire.Heartbeat(vouched=[*made_up, wire.Vouched(node="n0")]))
        assert set(self.agents.presence._vouches._asked) == {"n0"}

    async def test_the_time_of_the_last_step_is_the_operators(self) -> None:
        def stepped() -> float:
            return self.agents.slots((self.pod,))["u"].stepped

        step = lambda n: report(incarnation=1, ranks=[rank(progress=wire.Progress(step=n))])  # noqa: E731
        self.join("n0", step(7))
        assert stepped() == 0.0, "when the seventh was over nobody knows"
        self.now += 1
        self.agents.report("n0", step(8))
        assert stepped() == 1e6 + 101
        self.now += 1
        self.agents.report("n0", step(8))
        assert stepped() == 1e6 + 101
        self.agents.report("n0", report(incarnation=2, ranks=[rank(progress=wire.Progress(step=9))]))
        assert stepped() == 1e6 + 101, "a restored step is none"

    def holding(self, node: str, *uids: str) -> Any:
        held = [wire.Held(job_uid=uid, warrant=self.warrant(node, uid)) for uid in uids]
        hello = wire.Hello(node=node, peer_address=f"{node}:8472", holdings=wire.Holdings(held=held))
        return self.agents.join(hello)

    def warrant(self, node: str, uid: str) -> str:
        return self.agents.office.sign(Warrant(uid, 1, 0, node))

    def run_job(self, **status: Any) -> None:
        self.now += 1
        version = str(int(self.now))
        raw = {
            "metadata": {"name": "job", "namespace": "ns", "uid": "j", "resourceVersion": version},
            "spec": {"checkpoint": {"tiers": {"local": {}, "peer": {}}}},
            "status": status,
        }
        self.world.jobs.upsert(views.parent(raw))

    def forgotten(self, stream: Any) -> list[str]:
        """What a node is told to forget at the next two looks."""
        for _ in range(2):
            self.now += 11
            self.agents.clear()
        said = [stream.outbox.get_nowait() for _ in range(stream.outbox.qsize())]
        return [one.forget.job_uid for one in said if one.HasField("forget")]

    async def test_memory_of_jobs_that_are_over_or_gone_is_given_back(self) -> None:
        stream = self.holding("n0", "j", "gone")
        self.run_job(phase="Running")
        assert self.forgotten(stream) == ["gone"]
        self.run_job(phase="Succeeded")
        assert sorted(set(self.forgotten(stream))) == ["gone", "j"]
        self.agents.holdings("n0", wire.Holdings())
        assert self.forgotten(stream) == []

    async def test_a_look_goes_through_a_jobs_pods_once_however_many_nodes_hold_it(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for node in ("n0", "n1", "n2"):
            self.holding(node, "j")
        self.run_job(phase="Running")
        looks = Mock(wraps=self.world.pods.indexed)
        monkeypatch.setattr(self.world.pods, "indexed", looks)
        self.now += 11
        self.agents.clear()
        assert looks.call_count == 1

    async def test_memory_that_seems_useless_for_a_moment_stays(self) -> None:
        stream = self.holding("n0", "j")
        self.now += 11
        self.agents.clear()
        self.run_job(phase="Running")
        assert self.forgotten(stream) == []

    @pytest.mark.parametrize(
        ("mark", "told"),
        [
            ({"incarnation": 3, "step": 5}, ["j"]),
            ({"incarnation": 2, "step": 5}, []),
            (None, []),
        ],
    )
    async def test_memory_of_nodes_that_a_job_has_left_is_given_back(
        self, mark: Any, told: list[str]
    ) -> None:
        self.add_pod("v", "n1")
        self.run_job(
            phase="Running",
            incarnation=3,
            membership="m",
            checkpoint={"watermarks": {"local": {"incarnation": 3, "step": 9}, "peer": mark}},
        )
        member, left = self.holding("n0", "j"), self.holding("n2", "j")
        assert self.forgotten(left) == told
        assert self.forgotten(member) == []

    async def test_holders_are_those_that_may_still_answer(self) -> None:
        self.holding("n0", "j")
        self.holding("n1", "j", "k")
        assert self.agents.holders("j") == ("n0", "n1") and self.agents.holders("k") == ("n1",)
        self.now += 60
        self.agents.heard("n1")
        assert self.agents.holders("j") == ("n1",)

    async def test_nobody_holds_what_was_never_given_to_them(self) -> None:
        """What a holder says is newest would be restored."""
        theirs = WarrantOffice()
        theirs.begin(Authority(make_authority()))
        shown = {
            "none": "",
            "another-s": self.warrant("n1", "j"),
            "of-another-job": self.warrant("of-another-job", "k"),
            "signed-by-others": theirs.sign(Warrant("j", 1, 0, "signed-by-others")),
        }
        streams = {}
        for node, token in shown.items():
            held = wire.Holdings(held=[wire.Held(job_uid="j", warrant=token)])
            streams[node] = self.agents.join(wire.Hello(node=node, peer_address=node, holdings=held))
        self.holding("n0", "j")
        assert self.agents.holders("j") == ("n0",)
        for stream in streams.values():
            assert set(self.forgotten(stream)) == {"j"}, "a job that is over is forgotten all the same"

    async def test_what_another_authority_has_signed_is_told_again(self) -> None:
        self.join("n0", report())
        known = [self.agents.slots((self.pod,))["u"].warranted]
        # An agent that has taken over an assignment from one of before names none.
        for key in (self.authority.key_id, "another", self.authority.key_id, ""):
            self.agents.report("n0", report(authority=key, incarnation=1))
            known.append(self.agents.slots((self.pod,))["u"].warranted)
        assert known == [True, True, False, True, False]
        assert self.queue.take()[-1] == 0.15, "that is news to the job"

    async def test_an_assignment_that_is_told_again_has_the_same_warrant(self) -> None:
        once = self.warrant("n0", "j")
        assert self.warrant("n0", "j") == once and self.warrant("n1", "j") != once

    async def test_a_gone_pod_is_forgotten(self) -> None:
        self.join("n0", report())
        self.queue.take()
        self.agents.gone("n0", "u")
        assert self.agents.slots((self.pod,)) == {} and self.queue.take() == [0.15]

    async def test_a_deleted_node_is_forgotten(self) -> None:
        self.join("n0", report())
        raw = {"metadata": {"name": "n0", "uid": "x", "resourceVersion": "1"}}
        self.world.nodes.upsert(views.node(raw))
        self.world.nodes.remove(views.node(raw))
        assert self.agents.slots((self.pod,)) == {} and not self.agents.presence.liveness.known("n0")

    async def test_an_agent_that_dials_once_more_after_its_node_is_deleted_is_forgotten(self) -> None:
        raw = {"metadata": {"name": "n2", "uid": "x", "resourceVersion": "1"}}
        self.world.nodes.upsert(views.node(raw))
        first = self.join("n2")
        self.world.nodes.remove(views.node(raw))
        assert first.superseded.is_set()
        again = self.join("n2")
        self.agents.clear()
        assert self.agents.peer_address("n2"), "it may be faster than the watch"
        self.agents.leave(again)
        self.now += 20
        self.agents.presence.look()
        silent = self.agents._metrics.nodes_silent
        assert silent._value.get() == 1
        self.agents.clear()
        self.agents.presence.look()
        assert silent._value.get() == 0
        assert not self.agents.peer_address("n2") and not [*self.agents.sweeps.all()]
