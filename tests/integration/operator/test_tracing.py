"""Tests of traces on a real API server, with the complete operator. The tests act as the kubelet and the
agents.
"""

from __future__ import annotations

from typing import Any

import pytest

from convoy_agents.wire import hub_pb2 as wire

from .conftest import Installation, eventually, running
from .test_default_tiers import Jobs
from .test_operator import ranks
from .test_stores import MERGE, STORES

SHA = "a" * 64


class Traced(Jobs):
    """A job whose running ranks record steps."""

    async def store(self) -> str:
        """Create a CheckpointStore on a volume, and return its name."""
        name = f"s-{self.namespace}"
        body = {
            "apiVersion": "convoy.dev/v1alpha1",
            "kind": "CheckpointStore",
            "metadata": {"name": name},
            "spec": {"volume": {"claimName": "disk"}, "allowedNamespaces": ["*"]},
        }
        await self.installation.call("POST", STORES, body)
        return name

    async def request(self, **trace: Any) -> None:
        change = {"spec": {"trace": trace}}
        await self.installation.call("PATCH", f"{self.path}/train", change, content_type=MERGE)

    async def reports(self, step: int, order: tuple[int, int] = (0, 0), **trace: Any) -> None:
        """Report running ranks at a step, with the order that their agents have, and a trace of each."""
        for position, agent in enumerate(self.agents):
            report = wire.PodReport(
                pod_uid=self.uids[position],
                launcher_connected=True,
                incarnation=1,
                master_port=29500,
                port_incarnation=1,
                ranks=ranks(
                    "RUNNING", position, progress=wire.Progress(step=step, time_unix_ms=1_000 + step)
                ),
                trace_recording=order[0],
                trace_attempt=order[1],
            )
            if trace:
                report.traces.add(rank=position, **trace)
            await agent.send(pod=report)

    async def telemetry(self, first: int, last: int, slow: dict[int, float]) -> None:
        """Report the durations of steps, one step after the other: the detector waits for a late rank for a
        few steps only. `slow`: additional seconds of a step, by rank.
        """

        def received() -> float:
            return float(self.operator.metrics.guard_windows._value.get())

        before = received()
        for step in range(first, last + 1):
            for position, agent in enumerate(self.agents):
                report = wire.PodTelemetry(pod_uid=self.uids[position], incarnation=1)
                compute = 1 + 0.003 * ((step * 7 + position * 5) % 4) + slow.get(position, 0.0)
                report.windows.add(
                    rank=position, first=step, last=step, wall=2.0, compute=compute, wait=2 - compute
                )
                await agent.send(telemetry=wire.Telemetry(pods=[report]))
            before += len(self.agents)
            await eventually(lambda wanted=before: received() >= wanted, what=f"windows of step {step}")

    async def ordered(self, recording: int, attempt: int = 0) -> list[wire.TraceOrder]:
        """Wait until both agents have an order, and return it."""

        def order(position: int) -> Any:
            given = self.agents[position].last("assignment").trace
            return given if (given.recording, given.attempt) == (recording, attempt) else None

        what = f"order {recording}.{attempt}"
        return [await eventually(lambda at=position: order(at), what=what) for position in (0, 1)]

    async def shown(self, state: str) -> dict[str, Any]:
        """Wait until `status.trace` has this state, and return it."""

        async def found() -> Any:
            trace = (await self.status()).get("trace") or {}
            return trace if trace.get("state") == state else None

        return dict(await eventually(found, what=f"the trace is {state}"))


async def test_a_running_job_records_on_request(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(installation, monkeypatch) as operator:
        it = Traced(installation, operator)
        await it.create()
        given = await it.form()
        assert not any(one.HasField("trace") for one in given)
        await it.reports(step=10)
        store = await it.store()
        await it.request(store=store, steps={"count": 3}, maxMebibytes=1)
        orders = await it.ordered(1)
        assert [list(one.ranks) for one in orders] == [[0], [1]]
        assert {(one.first, one.count, one.store, one.max_bytes) for one in orders} == {(12, 3, store, 2**20)}
        for agent in it.agents:
            kinds = [one.WhichOneof("body") for one in agent.received]
            known = [place for place, kind in enumerate(kinds) if kind == "store"]
            assert known and known[0] < len(kinds) - 1 - kinds[::-1].index("assignment"), (
                "the store comes first"
            )

        # The ranks were past step 12, so Convoy chooses again.
        await it.reports(20, (1, 0), failure=wire.TraceReport.STEPS_PASSED)
        again = await it.ordered(2, attempt=1)
        # The operator may hear of the first agent's report alone, so the step may be that of either rank.
        first_step = again[0].first
        assert first_step == again[1].first and first_step in (10 + 16, 20 + 16)
        figures = {"nodes": 5, "comm_bytes_per_step": 80, "exposed_communication_ratio": 0.5}
        await it.reports(40, (2, 1), state=wire.TraceReport.STORED, bytes=9, sha256=SHA, **figures)
        trace = await it.shown("Stored")
        assert (trace["firstStep"], trace["lastStep"], trace["incarnation"]) == (
            first_step,
            first_step + 2,
            1,
        )
        assert (trace["bytes"], trace["nodes"], trace["commBytesPerStep"]) == (18, 10, 80)
        assert [one["file"] for one in trace["files"]] == ["traces/trace-2.0.et", "traces/trace-2.1.et"]
        assert (trace["recording"], trace["attempt"]) == (2, 2)
        await eventually(
            lambda: not any(agent.last("assignment").HasField("trace") for agent in it.agents),
            what="the order ends",
        )
        status = await it.status()
        assert (status["incarnation"], status["phase"]) == (1, "Running")
        assert "TraceStored" in await it.events()
        await it.close()


async def test_a_request_for_a_missing_store_waits_for_it(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(installation, monkeypatch) as operator:
        it = Traced(installation, operator)
        await it.create()
        await it.form()
        await it.reports(step=10)
        await it.request(store=f"s-{it.namespace}", steps={"first": 50, "count": 1})

        async def refused() -> bool:
            found = (await it.status()).get("conditions", [])
            return any(one["reason"] == "TraceStoreUnknown" for one in found)

        await eventually(refused, what="the store is missing")
        assert (await it.status())["phase"] == "Running"
        await it.store()
        assert (await it.ordered(1))[0].first == 50
        await it.close()


async def test_a_straggler_of_guard_is_recorded_beside_a_peer(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(installation, monkeypatch) as operator:
        it = Traced(installation, operator)
        await it.create()
        await it.form()
        await it.request(store=await it.store(), onStraggler={"count": 4})
        await it.reports(step=20)

        async def armed() -> bool:
            found = (await it.status()).get("conditions", [])
            return any(one["reason"] == "TraceArmed" for one in found)

        await eventually(armed, what="the job waits for a straggler")
        await it.telemetry(1, 16, {})
        assert not any(one.last("assignment").HasField("trace") for one in it.agents)
        await it.telemetry(17, 48, {1: 0.5})
        orders = await it.ordered(1)
        assert [(list(one.ranks), one.count) for one in orders] == [([0], 4), ([1], 4)]
        await it.reports(40, (1, 0), state=wire.TraceReport.STORED, bytes=9, sha256=SHA)
        trace = await it.shown("Stored")
        assert trace["trigger"] == "Straggler"
        named = trace["straggler"]
        assert (named["rank"], named["node"], named["cause"]) == (1, f"{it.namespace}-b", "Compute")
        assert "straggler: rank 1" in trace["message"]
        await it.close()
