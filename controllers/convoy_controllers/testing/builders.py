"""Builders for tests of the operator's decisions: resources, and a simulated cluster without latencies."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from datetime import datetime
from typing import Any, Self

from convoy_controllers.commands import JobCommand
from convoy_controllers.plan import Plan
from convoy_controllers.simulate.api import Node
from convoy_controllers.simulate.cluster import Cluster
from convoy_controllers.simulate.informer_cache import InformerCache
from convoy_controllers.simulate.kernel import EPOCH
from convoy_controllers.simulate.latencies import instant
from convoy_controllers.simulate.machines import Machine
from convoy_controllers.simulate.plan_executor import PlanExecutor
from convoy_controllers.trainingjob.observed import Observed
from convoy_controllers.trainingjob.plan import plan
from convoy_controllers.views import CommitView, GuardView, NodeView, PodView, PodWarning, SlotView
from convoy_controllers.workers.refusal import Refusal
from convoy_crds.checkpointstore import CheckpointStore
from convoy_crds.engine import Engine
from convoy_crds.layout import slots
from convoy_crds.spotpool import SpotPool
from convoy_crds.trainingjob import TrainingJob

NOW = EPOCH
"""Virtual time at which every test starts."""
NODES = 3


class Crash(Exception):
    """Raised when the operator crashes between two effects of a plan."""


def make_engine(name: str = "gpt", **spec: Any) -> Engine:
    """Return an Engine that takes one integer parameter, `steps`."""
    schema = {"type": "object", "properties": {"steps": {"type": "integer", "minimum": 1}}}
    body = {
        "image": "convoy/workloads:dev",
        "command": ["python", "-m", "gpt"],
        "paramsSchema": schema,
        **spec,
    }
    return Engine.model_validate({"metadata": {"name": name}, "spec": body})


def make_store(name: str = "s3", ready: str = "True", why: str = "", **spec: Any) -> CheckpointStore:
    """Return a CheckpointStore for all namespaces.

    `ready` and `why` are status and message of its condition Ready. With an empty `ready` it has no
    condition.
    """
    body = {"s3": {"bucket": "bucket", "credentialsSecret": "keys"}, "allowedNamespaces": ["*"], **spec}
    condition = {
        "type": "Ready",
        "status": ready,
        "reason": "Probed" if ready == "True" else "StoreUnreachable",
        "message": why,
        "lastTransitionTime": NOW,
    }
    return CheckpointStore.model_validate(
        {
            "metadata": {"name": name, "uid": f"uid-{name}", "generation": 1},
            "spec": body,
            "status": {"observedGeneration": 1, "conditions": [condition] if ready else []},
        }
    )


def make_job(name: str = "job", **spec: Any) -> TrainingJob:
    """Return a job of two `gpt` workers. Fields in `spec` (camelCase) replace those of its spec."""
    body = {"engine": {"name": "gpt"}, "roles": [{"name": "worker", "replicas": 2}], **spec}
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}", "generation": 1}
    return TrainingJob.model_validate({"metadata": metadata, "spec": body})


class ToyCluster:
    """One job on a simulated cluster (`convoy_controllers.simulate`) without latencies.

    Each `step` is one reconcile of an operator whose caches are up to date. Ranks make no steps by
    themselves. A state that a test sets stays until the cluster itself changes it.
    """

    def __init__(self, job: TrainingJob, engine: Engine | None = None) -> None:
        machines = [Machine(f"node-{number}", capacity=1000) for number in range(NODES)]
        self._cluster = Cluster(machines, latencies=instant())
        self._api, self._workers = self._cluster.api, self._cluster.workers
        for machine in machines:
            self._api.put_node(Node(machine.name, machine.capacity, agent_ready=True))
        self._cache = InformerCache(self._cluster.kernel, self._cluster.latencies, self._api)
        self._name = job.metadata.name
        self._cluster.submit(job)
        self._last: TrainingJob = self._api.jobs[self._name].job
        self.engine = engine
        self.stores: dict[str, CheckpointStore] = {}
        self.pools: dict[str, SpotPool] = {}
        self.source: TrainingJob | None = None
        self.create_errors: dict[str, str] = {}
        self.warnings: dict[str, PodWarning] = {}
        """Newest Warning Event of each pod, by uid."""
        self.nodes: dict[str, NodeView] = {}
        """Views of unhealthy nodes, by name. All other nodes are healthy."""
        self.holders: tuple[str, ...] = ()
        """Nodes that have checkpoints of the job in memory."""
        self.guard: GuardView | None = None
        """The guard's view of the job, which plans use; None if the guard has none."""
        self.drop_commands = False
        """True if all commands are lost before they reach a launcher."""
        self.deleted = False
        self.events: list[str] = []
        self.plans: list[Plan] = []

    @property
    def job(self) -> TrainingJob:
        """The job as it is stored, or its last state if it is deleted."""
        stored = self._api.jobs.get(self._name)
        self._last = stored.job if stored else self._last
        return self._last

    @property
    def now(self) -> datetime:
        """The virtual time. It advances only in `wait`."""
        return self._cluster.kernel.time

    @property
    def pods(self) -> dict[str, PodView]:
        """Pods by name."""
        return self._api.pods

    @property
    def views(self) -> dict[str, SlotView]:
        """Reports of the agents, by pod uid."""
        return self._workers.slots

    @property
    def schedulable(self) -> bool:
        """True if the scheduler finds a node for each pod."""
        return self._cluster.scheduler.open

    @schedulable.setter
    def schedulable(self, value: bool) -> None:
        self._cluster.scheduler.open = value

    @property
    def launchers(self) -> bool:
        """True if launchers connect to their agents."""
        return self._cluster.kubelets.launchers

    @launchers.setter
    def launchers(self, value: bool) -> None:
        self._cluster.kubelets.launchers = value

    def observed(self) -> Observed:
        """Return the state of the job from which plans are made."""
        return Observed(
            job=self.job,
            engine=self.engine,
            known_engines=("gpt",) if self.engine else (),
            store=self.stores.get(self.job.spec.checkpoint.tiers.store or ""),
            trace_store=self.stores.get(self.job.spec.trace_store or ""),
            source=self.source,
            pools=dict(self.pools),
            known_pools=tuple(self.pools),
            known_stores=tuple(self.stores),
            pods=tuple(self.pods.values()),
            slots=dict(self.views),
            nodes={
                pod.node: self.nodes.get(pod.node, NodeView(pod.node))
                for pod in self.pods.values()
                if pod.node
            },
            agent_nodes=NODES,
            holders=self.holders,
            guard=self.guard,
            warnings=dict(self.warnings),
            create_errors={pod: Refusal(why) for pod, why in self.create_errors.items()},
        )

    def step(self, effects: int | None = None) -> Plan:
        """Run one reconcile and its effects. With `effects`, the operator crashes after so many effects."""
        made = plan(self.observed(), self.now)
        self.plans.append(made)
        self.events += [event.reason.name for event in made.events]
        self.deleted = self.deleted or made.delete_parent
        effects_left = [effects]

        def before_effect() -> None:
            if effects_left[0] == 0:
                raise Crash
            effects_left[0] = effects_left[0] - 1 if effects_left[0] is not None else None

        kernel, latencies = self._cluster.kernel, self._cluster.latencies
        executor = PlanExecutor(
            kernel=kernel,
            latencies=latencies,
            api=self._api,
            send=self._handle_command,
            cache=self._cache,
            notify=self._cluster.notify,
            before_effect=before_effect,
        )
        with contextlib.suppress(Crash):
            for _ in executor.execute(self._api.jobs[self._name], made, kernel.now):
                pass
        kernel.drain()
        return made

    def settle(self, limit: int = 30) -> Self:
        """Reconcile until a plan writes nothing and repeats the commands of the previous plan.

        Raises AssertionError after `limit` reconciles.
        """
        commands: tuple[Any, ...] = ()
        for _ in range(limit):
            made = self.step()
            writes = made.status is not None or made.manifests or made.deletions or made.delete_parent
            if not writes and made.commands in ((), commands):
                return self
            commands = made.commands
        raise AssertionError(f"the plan still writes after {limit} reconciles: {made}")

    def wait(self, seconds: float) -> Self:
        """Advance the virtual time by `seconds`."""
        self._cluster.run(seconds)
        return self

    def _handle_command(self, command: JobCommand) -> None:
        if not self.drop_commands:
            self._workers.handle_command(command)

    def connect(self, pod: str) -> Self:
        """Connect a pod's launcher to its agent."""
        self._workers.connect(self.pods[pod].uid)
        return self

    def rank(self, number: int, **facts: Any) -> Self:
        """Change fields in the report of one rank."""
        for uid, view in self.views.items():
            ranks = tuple(replace(rank, **facts) if rank.rank == number else rank for rank in view.ranks)
            self.views[uid] = replace(view, ranks=ranks)
        return self

    def train(self, step: int, **facts: Any) -> Self:
        """Let all running ranks report that they have just finished this step."""
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

    def commit(self, step: int, tier: str = "local") -> Self:
        """Let every agent report that this step is committed at a tier."""
        at = self.now.timestamp()
        for uid, view in self.views.items():
            mark = CommitView(view.incarnation, step, at)
            self.views[uid] = replace(view, committed={**view.committed, tier: mark})
        return self

    def silence(self, node: str, seconds: float, **facts: Any) -> Self:
        """Make a node's agent silent for the last `seconds` seconds.

        By default the node's pods are also unreachable, and its Lease is as old as the silence. Fields in
        `facts` replace those of the NodeView.
        """
        since = self.now.timestamp() - seconds
        silent = {
            "silent_seconds": seconds,
            "silent_since": since,
            "pods_reachable": False,
            "lease_seconds": seconds,
        }
        self.nodes[node] = replace(self.nodes.get(node, NodeView(node)), **{**silent, **facts})
        self._api.set_node(node, agent_ready=self.nodes[node].agent_ready)
        seen = self.nodes[node]
        if node in self._cluster.machines.by_name:
            # If the kubelet still runs, keep its connection to the control plane, so that it receives changes
            # of pods.
            dead = not (seen.pods_reachable and seen.ready) and seen.lease_seconds >= seconds
            self._cluster.machines.set(node, control_cut=dead)
        for uid, view in self.views.items():
            if view.node == node:
                self.views[uid] = replace(view, launcher_connected=False, agent_away=True)
        return self

    def exit(self, number: int, code: int = 0, **facts: Any) -> Self:
        """Let the agent report that one rank has exited."""
        return self.rank(number, state="EXITED", exit_code=code, **facts)

    def exit_all(self, code: int = 0) -> Self:
        """Let the agents report that all ranks have exited."""
        for view in list(self.views.values()):
            for rank in view.ranks:
                self.exit(rank.rank, code)
        return self

    def lose(self, pod: str) -> Self:
        """Remove a pod at once, as `kubectl delete --force` does."""
        uid = self.pods[pod].uid
        self._workers.remove(uid)
        self._api.remove_pod(pod, uid)
        return self

    def pod(self, name: str, **facts: Any) -> Self:
        """Change fields of one pod."""
        self.pods[name] = replace(self.pods[name], **facts)
        return self

    def spec(self, **fields: Any) -> Self:
        """Change fields of the job's spec as a user does."""
        self._api.edit_job(self._name, fields)
        return self

    @property
    def condition(self) -> dict[str, tuple[str, str]]:
        """Status and reason of every condition, by type."""
        return {c.type: (c.status, c.reason) for c in self.job.status.conditions}

    @property
    def uids(self) -> list[str]:
        """Uids of the job's pods in slot order."""
        return [self.pods[slot.pod].uid for slot in slots(self.job) if slot.pod in self.pods]
