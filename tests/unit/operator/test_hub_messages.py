"""Tests of agents' messages as views, of the urgency of changes, and of commands as messages."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.operator.hub_agents import STATE, rank, report

from convoy_agents.wire import hub_pb2 as wire
from convoy_agents.wire.slot_tokens import SlotToken
from convoy_controllers.commands import Assign, Member, MemoryTiers, PickPort, Shutdown
from convoy_controllers.run_view import FolderView, RunView
from convoy_controllers.views import CommitView, MetricView
from convoy_crds.job_result import MAX_RESULT_BYTES
from convoy_crds.metric_names import MAX_METRICS
from convoy_operator.hub import messages


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
                        result="x" * 5000,
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
        assert one.diverged is True and len(one.result) == MAX_RESULT_BYTES + 1
        assert (one.started, one.first_step, one.ended, one.checkpoint_seconds) == (0.5, 1.25, 1.75, 2.25)
        assert one.finished == 1.5
        assert view.committed == {"remote": CommitView(1, 8, 2.5)}

    def test_metrics_of_a_report_are_validated_and_bounded(self) -> None:
        given = [
            wire.Metric(name="held_out_loss", value=1.5, step=2),
            wire.Metric(name="ratio", step=3),
            wire.Metric(name="broken", value=math.inf, step=2**64 - 1),
            wire.Metric(name="Loss\n", value=1.0),
            wire.Metric(name="a" * 64, value=1.0),
            *(wire.Metric(name=f"m{number}") for number in range(MAX_METRICS)),
        ]
        view = messages.slot_view(report(ranks=[rank(progress=wire.Progress(step=3, metrics=given))]), "n0")
        (one,) = view.ranks
        assert one.metrics[:4] == (
            MetricView("held_out_loss", 1.5, 2),
            MetricView("ratio", None, 3),
            MetricView("broken", None, 2**53),
            MetricView("m0", None, 0),
        )
        assert len(one.metrics) == MAX_METRICS - 2
        # These fields change at almost every step, so the skeleton must not contain them.
        assert messages.skeleton(view) == messages.skeleton(
            messages.slot_view(report(ranks=[rank(progress=wire.Progress(step=3))]), "n0")
        )

    def test_the_facts_of_a_run_are_bounded(self) -> None:
        folders = [wire.DataFolder(path="/\x1b" + "d" * 999, files=2**60, median_bytes=7)] * 9
        facts = wire.RunFacts(folders=folders, ms=60_000, cpu_ms=1500, accelerator_ms=900, accelerators=4)
        facts.python, facts.torch = "3.11.7", "2" * 99
        view = messages.slot_view(report(ranks=[rank(progress=wire.Progress(step=3, facts=facts))]), "n0")
        (one,) = view.ranks
        assert one.facts is not None
        assert one.facts == RunView(one.facts.folders, 1.5, 0.9, 4, 60.0, "3.11.7", "2" * 64)
        assert len(one.facts.folders) == 4
        assert one.facts.folders[0] == FolderView("/?" + "d" * 254, 2**53, 7)

    def test_all_troubles_are_read_and_an_unknown_kind_is_the_gravest(self) -> None:
        troubles = [
            wire.Trouble(kind=wire.Trouble.INEXACT, message="two.weight"),
            wire.Trouble(kind=99, message="x" * 5000),  # type: ignore[arg-type]
        ]
        view = messages.slot_view(report(troubles=troubles), "n0")
        assert view.troubles == (("INEXACT", "two.weight"), ("NO_MEMORY", "x" * 2048))
        assert messages.skeleton(view) != messages.skeleton(messages.slot_view(report(), "n0"))
        many = messages.slot_view(report(troubles=troubles * 100), "n0")
        assert len(many.troubles) == messages.MAX_TROUBLES >= len(wire.Trouble.Kind.keys())

    def test_unreported_fields_are_none(self) -> None:
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
                id="the rank exited before",
            ),
            pytest.param(report(ranks=[rank()]), report(ranks=[rank(hung=True)]), True, id="a rank hangs"),
            pytest.param(report(), report(master_port=1, port_incarnation=1), True, id="a port is available"),
            pytest.param(report(), report(incarnation=2), True, id="an incarnation started"),
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
                id="its first step ended before",
            ),
        ],
    )
    def test_only_urgent_changes_wake_a_job_immediately(
        self, before: wire.PodReport, after: wire.PodReport, urgent: bool
    ) -> None:
        assert messages.urgent(messages.slot_view(before, "n"), messages.slot_view(after, "n")) is urgent

    @pytest.mark.parametrize("field", ["started_unix_ms", "first_step_unix_ms", "ended_unix_ms"])
    def test_a_change_of_the_times_of_a_rank_changes_the_skeleton(self, field: str) -> None:
        before = messages.slot_view(report(ranks=[rank()]), "n")
        after = messages.slot_view(report(ranks=[rank(**{field: 5})]), "n")
        assert messages.skeleton(before) != messages.skeleton(after)

    @pytest.mark.parametrize(
        "more",
        [{"ranks": [rank(progress=wire.Progress(save_ms=9, copy_ms=7))]}, {"interval_seconds": 42}],
        ids=["what a save costs", "how often it saves"],
    )
    def test_changes_of_save_costs_and_intervals_wake_no_job(self, more: dict[str, Any]) -> None:
        before = messages.slot_view(report(ranks=[rank(progress=wire.Progress())]), "n")
        after = messages.slot_view(report(**{"ranks": [rank(progress=wire.Progress())], **more}), "n")
        assert before != after and messages.skeleton(before) == messages.skeleton(after)
        assert not messages.urgent(before, after)

    def test_an_assignment_has_the_memory_tiers(self) -> None:
        given = MemoryTiers(1, 7, ("n1",), ("n2",), interval_seconds=42)
        made = messages._memory(given, lambda node: f"{node}:1")
        assert (made.copies, made.limit, made.interval_seconds) == (1, 7, 42)
        assert [one.peer_address for one in (*made.hosts, *made.holders)] == ["n1:1", "n2:1"]

    def test_an_assignment_has_the_addresses_of_all_peers(self) -> None:
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
        assert made.strict and made.slot_token == repr(SlotToken(given.job_uid, 3, given.slot, given.node))
        assert not messages.command(replace(given, strict=False), str, repr).assignment.strict

    def test_other_commands_are_encoded(self) -> None:
        port = messages.command(PickPort("n", "u", 4), str, repr).pick_port
        end = messages.command(Shutdown("n", "u", 7, "why"), str, repr).shutdown
        kill = messages.command(Shutdown("n", "u", 7, "why", immediate=True), str, repr).shutdown
        assert (port.pod_uid, port.incarnation) == ("u", 4)
        assert (end.pod_uid, end.exit_code, end.reason) == ("u", 7, "why")
        assert (end.immediate, kill.immediate) == (False, True)
