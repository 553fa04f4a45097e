"""Fluent builders and a toy cluster: what tests of decisions are written in."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Self

from convoy_controllers.plan import Assign, NodeView, PickPort, Plan, PodView, RankView, Shutdown, SlotView
from convoy_controllers.trainingjob.observed import Observed
from convoy_controllers.trainingjob.plan import plan
from convoy_crds.engine import Engine
from convoy_crds.layout import slots
from convoy_crds.trainingjob import TrainingJob

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def make_engine(name: str = "gpt", **spec: Any) -> Engine:
    """An Engine that takes one integer parameter, `steps`."""
    schema = {"type": "object", "properties": {"steps": {"type": "integer", "minimum": 1}}}
    body = {
        "image": "convoy/workloads:dev",
        "command": ["python", "-m", "gpt"],
        "paramsSchema": schema,
        **spec,
    }
    return Engine.model_validate({"metadata": {"name": name}, "spec": body})


def make_job(name: str = "job", **spec: Any) -> TrainingJob:
    """A job of two `gpt` workers unless `spec` (camelCase) says otherwise."""
    body = {"engine": {"name": "gpt"}, "roles": [{"name": "worker", "replicas": 2}], **spec}
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}", "generation": 1}
    return TrainingJob.model_validate({"metadata": metadata, "spec": body})


class ToyCluster:
    """Pods, agents and launchers that do at once what a plan asks, with a clock that only `wait` moves."""

    def __init__(self, job: TrainingJob, engine: Engine | None = None) -> None:
        self.job = job
        self.engine = engine
        self.now = NOW
        self.pods: dict[str, PodView] = {}
        self.views: dict[str, SlotView] = {}
        self.create_errors: dict[str, str] = {}
        self.nodes: dict[str, NodeView] = {}
        self.schedulable = True
        self.launchers = True
        self.deleted = False
        self.events: list[str] = []
        self.plans: list[Plan] = []
        self._count = 0

    def observed(self) -> Observed:
        """What the operator would see."""
        return Observed(
            job=self.job,
            engine=self.engine,
            known_engines=("gpt",) if self.engine else (),
            pods=tuple(self.pods.values()),
            slots=dict(self.views),
            nodes={
                pod.node: self.nodes.get(pod.node, NodeView(pod.node))
                for pod in self.pods.values()
                if pod.node
            },
            agent_nodes=3,
            create_errors=dict(self.create_errors),
        )

    def step(self) -> Plan:
        """One reconcile and its effects."""
        made = plan(self.observed(), self.now)
        self.plans.append(made)
        self.events += [event.reason.name for event in made.events]
        if made.delete_parent:
            self.deleted = True
        if made.status is not None:
            self.job = TrainingJob.model_validate({**self.job.to_dict(), "status": dict(made.status)})
        for gone in made.delete:
            pod = self.pods.pop(gone.name, None)
            if pod is not None:
                self.views.pop(pod.uid, None)
        for body in made.create:
            self._create(body)
        for command in made.commands:
            self._obey(command)
        return made

    def settle(self, limit: int = 30) -> Self:
        """Reconciles until nothing more is to be done; AssertionError when that never comes."""
        for _ in range(limit):
            made = self.step()
            if made.status is None and not (
                made.create or made.delete or made.commands or made.delete_parent
            ):
                return self
        raise AssertionError(f"no fixpoint: {made}")

    def wait(self, seconds: float) -> Self:
        """Moves the clock."""
        self.now += timedelta(seconds=seconds)
        return self

    def _create(self, body: dict[str, Any] | Any) -> None:
        name = body["metadata"]["name"]
        if name in self.pods:
            raise AssertionError(f"pod {name} created twice")
        self._count += 1
        uid = f"pod-{self._count}"
        placed = self.schedulable
        self.pods[name] = PodView(
            name=name,
            uid=uid,
            phase="Running" if placed else "Pending",
            node=f"node-{self._count % 3}" if placed else None,
            ip=f"10.0.0.{self._count % 250}" if placed else None,
            labels=body["metadata"]["labels"],
            annotations=dict(body["metadata"]["annotations"]),
            created=self.now.timestamp(),
            owner_uid=self.job.metadata.uid,
            unschedulable="" if placed else "0/3 nodes are available: 3 Insufficient cpu.",
        )
        if placed and self.launchers:
            self.views[uid] = SlotView(uid, self.pods[name].node or "", True)

    def _obey(self, command: Any) -> None:
        view = self.views.get(command.pod_uid)
        if view is None:
            return
        if isinstance(command, PickPort):
            fresh = replace(
                view, port_incarnation=command.incarnation, master_port=29500 + command.incarnation
            )
        elif isinstance(command, Assign):
            ranks = range(command.rank_offset, command.rank_offset + command.processes)
            fresh = replace(
                view,
                incarnation=command.incarnation,
                ranks=tuple(
                    RankView(rank, "RUNNING", time=self.now.timestamp(), started=self.now.timestamp())
                    for rank in ranks
                ),
            )
        elif isinstance(command, Shutdown):
            phase = "Failed" if command.exit_code else "Succeeded"
            name = next(name for name, pod in self.pods.items() if pod.uid == command.pod_uid)
            self.pods[name] = replace(self.pods[name], phase=phase, exit_code=command.exit_code)
            return
        else:
            raise TypeError(command)
        self.views[command.pod_uid] = fresh

    def connect(self, pod: str) -> Self:
        """A pod's launcher meets its agent."""
        view = self.pods[pod]
        self.views[view.uid] = SlotView(view.uid, view.node or "", True)
        return self

    def rank(self, number: int, **facts: Any) -> Self:
        """Changes what is reported of one rank."""
        for uid, view in self.views.items():
            ranks = tuple(replace(rank, **facts) if rank.rank == number else rank for rank in view.ranks)
            self.views[uid] = replace(view, ranks=ranks)
        return self

    def train(self, step: int, **facts: Any) -> Self:
        """All ranks that run are through with a step, at this moment."""
        at = self.now.timestamp()
        for uid, view in self.views.items():
            ranks = tuple(
                replace(rank, step=step, time=at, first_step=rank.first_step or at, **facts)
                if rank.state == "RUNNING"
                else rank
                for rank in view.ranks
            )
            self.views[uid] = replace(view, ranks=ranks, stepped=at)
        return self

    def commit(self, step: int) -> Self:
        """Every agent knows of a committed generation."""
        for uid, view in self.views.items():
            self.views[uid] = replace(
                view,
                committed_incarnation=view.incarnation,
                committed_step=step,
                committed_tier="remote",
                committed_time=self.now.timestamp(),
            )
        return self

    def silence(self, node: str, seconds: float, **facts: Any) -> Self:
        """Nothing has come from a node's agent for so long; by default nothing on it answers either."""
        since = self.now.timestamp() - seconds
        silent = {
            "silent_seconds": seconds,
            "silent_since": since,
            "answers": False,
            "lease_seconds": seconds,
        }
        self.nodes[node] = replace(self.nodes.get(node, NodeView(node)), **{**silent, **facts})
        for uid, view in self.views.items():
            if view.node == node:
                self.views[uid] = replace(view, launcher_connected=False)
        return self

    def exit(self, number: int, code: int = 0, **facts: Any) -> Self:
        """Ends one rank."""
        return self.rank(number, state="EXITED", exit_code=code, **facts)

    def exit_all(self, code: int = 0) -> Self:
        """Ends every rank."""
        for view in list(self.views.values()):
            for rank in view.ranks:
                self.exit(rank.rank, code)
        return self

    def lose(self, pod: str) -> Self:
        """A pod vanishes, as after `kubectl delete --force`."""
        self.views.pop(self.pods.pop(pod).uid, None)
        return self

    def pod(self, name: str, **facts: Any) -> Self:
        """Changes what is seen of one pod."""
        self.pods[name] = replace(self.pods[name], **facts)
        return self

    def spec(self, **fields: Any) -> Self:
        """Edits the spec, as a user would."""
        body = self.job.to_dict()
        body["spec"].update(fields)
        body["metadata"]["generation"] += 1
        self.job = TrainingJob.model_validate(body)
        return self

    @property
    def condition(self) -> dict[str, tuple[str, str]]:
        """Status and reason of every condition, by type."""
        return {c.type: (c.status, c.reason) for c in self.job.status.conditions}

    @property
    def uids(self) -> list[str]:
        """The pods' uids in slot order."""
        return [self.pods[slot.pod].uid for slot in slots(self.job) if slot.pod in self.pods]
