"""Tests of the hub's orders for faults, and of the agents' reports on them."""

from __future__ import annotations

import pytest
from tests.unit.operator.hub_agents import AgentsHarness

from convoy_agents.wire import hub_pb2 as wire
from convoy_controllers.commands import InjectFault, UndoFault
from convoy_controllers.faults import FaultPhase
from convoy_controllers.keys import Key
from convoy_controllers.views import PodView
from convoy_crds.perturbations import PerturbationKind
from convoy_operator import views
from convoy_operator.hub import faults as hub_faults
from convoy_operator.hub.command_router import route

LABEL = {"convoy.dev/fault-injection": "true"}
ORDER = InjectFault("n0", "u", "f-1", "job", ("job",), PerturbationKind.LINK_LIMIT, 20.0, 30.0)
POD = PodView("p", "u", "Running", node="n0")


class TestFaults(AgentsHarness):
    def states(self, *pods: PodView) -> dict[str, FaultPhase]:
        return {name: one.phase for name, one in self.hub.reader.faults(pods or (POD,)).items()}

    def report(self, state: int, node: str = "n0", **more: object) -> None:
        known = {"id": "f-1", "pod_uid": "u", "kind": "LinkLimit", "state": state, **more}
        self.hub.faults.record_report(node, wire.FaultReport(**known))  # type: ignore[arg-type]

    def label(self, name: str, labels: dict[str, str]) -> None:
        raw = {"metadata": {"name": name, "uid": name, "resourceVersion": "1", "labels": labels}}
        self.cache.nodes.upsert(views.node(raw))

    def add_job(self, name: str, owner: str = "") -> None:
        reference = {"kind": "TrainingJob", "name": owner, "uid": owner, "controller": True}
        metadata = {"name": name, "namespace": "ns", "uid": name, "resourceVersion": "1"}
        raw = {"metadata": {**metadata, "ownerReferences": [reference] if owner else []}, "spec": {}}
        self.cache.jobs.upsert(views.cached_object(raw))

    async def test_an_order_reaches_the_agent_and_is_repeated_until_it_is_acknowledged(self) -> None:
        self.label("n0", LABEL)
        stream = self.join("n0")
        route(self.hub, ORDER)
        sent = stream.outbox.get_nowait().inject_fault
        assert (sent.id, sent.pod_uid, sent.owner_uid, [*sent.job_uids]) == ("f-1", "u", "job", ["job"])
        assert (sent.kind, sent.magnitude, sent.seconds) == ("LinkLimit", 20.0, 30.0)
        self.hub.faults.send(ORDER)
        assert stream.outbox.empty()
        self.now += hub_faults.AGAIN_SECONDS
        self.hub.faults.send(ORDER)
        assert stream.outbox.get_nowait().HasField("inject_fault"), "no agent acknowledged it"
        self.report(wire.FaultReport.INJECTED)
        self.now += hub_faults.AGAIN_SECONDS
        self.hub.faults.send(ORDER)
        assert stream.outbox.empty()
        self.hub.faults.send(UndoFault("n0", "u", "f-1"))
        assert stream.outbox.get_nowait().undo_fault.id == "f-1"
        self.report(wire.FaultReport.UNDONE, achieved=19.5)
        self.now += hub_faults.AGAIN_SECONDS
        self.hub.faults.send(UndoFault("n0", "u", "f-1"))
        assert stream.outbox.empty()
        [state] = self.hub.reader.faults((POD,)).values()
        assert (state.phase, state.achieved) == (FaultPhase.UNDONE, 19.5)

    async def test_a_fault_of_an_earlier_pod_with_the_same_name_counts_for_that_pod_only(self) -> None:
        self.label("n0", LABEL)
        stream = self.join("n0")
        self.report(wire.FaultReport.UNDONE, pod_uid="earlier")
        assert self.states() == {}
        self.hub.faults.send(ORDER)
        assert stream.outbox.get_nowait().HasField("inject_fault")

    async def test_a_node_without_the_label_gets_no_fault(self) -> None:
        stream = self.join("n0")
        self.hub.faults.send(ORDER)
        assert stream.outbox.empty()
        [state] = self.hub.reader.faults((POD,)).values()
        assert state.phase is FaultPhase.REFUSED
        assert 'node n0 has no label convoy.dev/fault-injection: "true"' in state.message
        self.label("n0", LABEL)
        self.now += hub_faults.AGAIN_SECONDS
        self.hub.faults.send(ORDER)
        assert stream.outbox.get_nowait().HasField("inject_fault")

    async def test_a_report_counts_for_a_pod_of_the_reporting_node_only(self) -> None:
        self.report(wire.FaultReport.INJECTED, node="n1")
        assert self.states() == {}
        self.report(wire.FaultReport.INJECTED, achieved=float("nan"))
        assert self.states() == {"f-1": FaultPhase.INJECTED}
        assert self.hub.reader.faults((POD,))["f-1"].achieved is None
        self.report(9)
        self.report(wire.FaultReport.UNDONE, id="")
        assert self.states() == {"f-1": FaultPhase.INJECTED}

    async def test_the_hub_remembers_few_faults_of_a_node(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(hub_faults, "MAX_FAULTS", 2)
        for number in range(4):
            self.report(wire.FaultReport.UNDONE, id=f"f-{number}")
        assert [*self.states()] == ["f-2", "f-3"]
        self.hub.streams.drop("n0")
        assert self.states() == {}

    async def test_a_new_state_wakes_the_owner_of_the_pods_job(self) -> None:
        self.add_job("parent")
        self.add_job("job", "parent")
        self.report(wire.FaultReport.INJECTED)
        assert Key("TrainingJob", "ns", "parent") in [key for key, _ in self.queue.added]
        self.queue.drain()
        self.report(wire.FaultReport.INJECTED)
        assert self.queue.added == [], "nothing has changed"
