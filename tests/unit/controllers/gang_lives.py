"""Random lives of several gangs on a simulated cluster with racks and little room.

`GangLife` injects faults and checks at every change: a Required gang never spans two racks, the ranks of a
first incarnation follow the topology, and claims leave each job its `minReplicas`. At the end all jobs must
end.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import permutations
from typing import Any

from convoy_controllers.placement.topology import Topology, topology
from convoy_controllers.resources import Resource
from convoy_controllers.simulate.cluster import Cluster
from convoy_controllers.simulate.cluster_events import ClusterEvent, PlanMade, StatusStored
from convoy_controllers.simulate.faults import Faults
from convoy_controllers.simulate.invariants import InvariantChecker
from convoy_controllers.simulate.latencies import Latencies
from convoy_controllers.simulate.machines import Machine
from convoy_controllers.simulate.program import Program
from convoy_controllers.testing.builders import make_engine, make_job
from convoy_controllers.views import ENDED_PHASES, PodView
from convoy_crds.layout import present
from convoy_crds.placement import ClaimedPod, Pack
from convoy_crds.terms import LABEL_JOB
from convoy_crds.trainingjob import TrainingJob
from convoy_crds.trainingjob_status import TERMINAL, Phase

RACK, ZONE = "rack", "zone"
BOUND_SECONDS = 3600.0
"""Maximum virtual seconds in which all jobs must end after all faults are healed."""
RACKS = {"a": ("r0", "r0", "r1", "r1"), "b": ("r0", "r0")}
"""Rack of each node, by zone."""
PRIORITIES = {"low": 10, "high": 1000}
LATENCIES = Latencies(progress_write=60.0)
RECOVERY = {"maxRestarts": 100, "windowSeconds": 600, "scheduleSeconds": 40, "maxIdenticalErrors": 0}
TIERS = {"interval": "10s", "tiers": {"local": {}, "peer": {}}}


def machines(capacity: int) -> list[Machine]:
    """Return the nodes, each with room for `capacity` pods."""
    places = [(zone, rack) for zone, racks in RACKS.items() for rack in racks]
    return [
        Machine(f"node-{number}", capacity, labels={ZONE: zone, RACK: rack})
        for number, (zone, rack) in enumerate(places)
    ]


def job(
    name: str,
    replicas: int,
    least: int | None = None,
    *,
    priority: str = "low",
    **placement: Any,
) -> TrainingJob:
    """Return a job with one role."""
    role: dict[str, Any] = {
        "name": "w",
        "replicas": replicas,
        "template": {"spec": {"priorityClassName": priority, "containers": [{"name": "w"}]}},
    }
    if least is not None:
        role["minReplicas"] = least
    wanted = {"topologyKeys": [RACK, ZONE], **placement}
    made = make_job(name, roles=[role], recovery=RECOVERY, checkpoint=TIERS, placement=wanted)
    made.metadata.uid = ""
    return made


class GangLife:
    """A cluster with several jobs, and the checks of their placement."""

    def __init__(self, seed: int, served: Sequence[Resource] = (), capacity: int = 2) -> None:
        self.rng = random.Random(seed)
        self.cluster = Cluster(
            machines(capacity), latencies=LATENCIES, engines=[make_engine()], seed=seed, served=served
        )
        self.cluster.api.priorities |= PRIORITIES
        self.topology: Topology = topology(
            (RACK, ZONE), {one.name: one.labels for one in self.cluster.machines.by_name.values()}
        )
        self.faults = Faults(self.cluster)
        self.formations = 0
        """Number of first incarnations whose order was checked."""
        self.claims = 0
        """Number of claims that were checked."""
        self.partial: list[PodView] = []
        """Pods that held a node while a pod of their job was unschedulable, before the first incarnation."""
        InvariantChecker(self.cluster)
        self.cluster.listeners.append(self.check_event)
        self.cluster.api.listeners.append(self.check_domains)
        self.cluster.operator.lead()

    def submit(self, made: TrainingJob, steps: int = 60) -> None:
        """Create a job whose ranks make `steps` steps of half a second."""
        self.cluster.submit(made, Program(total_steps=steps))

    # Checks

    def jobs(self) -> list[TrainingJob]:
        """Return the jobs that exist."""
        return [stored.job for stored in self.cluster.api.jobs.values()]

    def pods(self, made: TrainingJob) -> list[PodView]:
        """Return the job's pods with a node that neither end nor have ended."""
        return [
            pod
            for pod in self.cluster.api.pods_of(made.metadata.name)
            if pod.owner_uid == made.metadata.uid
            and pod.node
            and not pod.deleting
            and pod.phase not in ENDED_PHASES
        ]

    def check_domains(self, kind: str, name: str) -> None:
        """Check that the pods of a Required gang are in one rack."""
        pod = self.cluster.api.pods.get(name) if kind == "pods" else None
        if pod is not None and pod.unschedulable:
            of_job = self.cluster.api.pods_of(pod.labels[LABEL_JOB])
            self.partial += [one for one in of_job if one.node and not one.deleting]
        for made in self.jobs() if pod is not None and pod.node else ():
            placement = made.spec.placement
            if placement.pack is Pack.REQUIRED and placement.topology_keys:
                racks = {self.topology.path(one.node or "") for one in self.pods(made)}
                assert len(racks) <= 1, f"{made.metadata.name} spans {racks}"

    def check_event(self, event: ClusterEvent) -> None:
        """Check the ranks of first incarnations, and what claims leave."""
        if isinstance(event, StatusStored) and isinstance(event.after, TrainingJob):
            before, after = event.before.status, event.after.status
            if after.formed and not before.formed and after.saved is None:
                self.check_order(event.after)
            old = before.placement.claims if before.placement else []
            new = after.placement.claims if after.placement else []
            if new and not old:
                self.check_claims(event.after, new)
        if isinstance(event, PlanMade) and isinstance(event.observed.job, TrainingJob):
            self.check_yielded(event)

    def check_order(self, made: TrainingJob) -> None:
        """Check that no other order of the ranks has a shorter ring."""
        pods = {pod.name: pod.node or "" for pod in self.pods(made)}
        nodes = [pods.get(slot.pod, "") for slot in present(made)]
        if not made.spec.placement.topology_keys or not all(nodes):
            return
        best = min(self.topology.ring_hops([nodes[0], *rest]) for rest in permutations(nodes[1:]))
        assert self.topology.ring_hops(nodes) == best, f"{made.metadata.name}: {nodes} could have {best} hops"
        self.formations += 1

    def check_claims(self, claimant: TrainingJob, claims: Sequence[ClaimedPod]) -> None:
        """Check that the claimed jobs keep their `minReplicas`, and have a lower priority."""
        self.claims += 1
        placed = claimant.status.placement
        assert placed is not None and placed.priority is not None
        for donor in self.jobs():
            taken = {one.replica for one in claims if one.job == donor.metadata.name}
            if taken:
                (role,) = donor.spec.roles
                there = self.pods(donor)
                left = [one for one in there if int(one.name.rsplit("-", 1)[1]) not in taken]
                assert len(left) >= (role.min_replicas or role.replicas), (donor.metadata.name, taken)
                assert all(one.priority < placed.priority for one in there)

    def check_yielded(self, event: PlanMade) -> None:
        """Check that a job gives up no more pods than it may."""
        observed = event.observed
        for role in observed.job.spec.roles:
            given_up = sum(one.role == role.name for one in observed.yielded)
            assert given_up <= role.replicas - (role.min_replicas or role.replicas)

    def claimants(self) -> list[str]:
        """Return the names of the jobs whose claims make others shrink now."""
        reader = self.cluster.operator
        found = []
        for made in self.jobs():
            if made.status.phase not in TERMINAL:
                found += [one.claimant for one in reader.observed(made, {}).yielded]
        return found

    # Time and faults

    def run(self, seconds: float) -> None:
        """Let virtual time pass."""
        self.cluster.run(seconds)

    def run_until(self, reached: Callable[[], bool], limit: float, what: str, step: float = 2.0) -> None:
        """Let virtual time pass in steps until `reached()` is true, at most `limit` seconds."""
        end = self.cluster.kernel.now + limit
        while not reached():
            assert self.cluster.kernel.now < end, f"not within {limit:g} s: {what}\n{self.where()}"
            self.run(step)

    def random_event(self) -> None:
        """Inject a random fault, or let a user act."""
        rng, faults, api = self.rng, self.faults, self.cluster.api
        node = rng.choice(sorted(self.cluster.machines.by_name))
        pods, jobs = sorted(api.pods), sorted(api.jobs)
        chosen = rng.choice(
            [
                "pod",
                "pod",
                "rank",
                "kill",
                "drain",
                "back",
                "back",
                "back",
                "cut",
                "crash",
                "api",
                "user",
                "user",
            ]
        )
        if chosen == "pod" and pods:
            faults.delete_pod(rng.choice(pods))
        elif chosen == "rank" and jobs:
            faults.kill_rank(rng.choice(jobs), rng.randrange(4))
        elif chosen == "kill":
            faults.kill_node(node)
        elif chosen == "drain":
            faults.drain_node(node)
        elif chosen == "cut" and self.cluster.machines[node].agent:
            faults.cut_node(node)
        elif chosen == "back":
            faults.heal_node(node)
            faults.return_node(node)
            faults.uncordon_node(node)
        elif chosen == "crash":
            faults.crash_operator(rng.randrange(6))
        elif chosen == "api":
            (faults.stop_api if rng.random() < 0.3 else faults.start_api)()
        elif chosen == "user" and jobs:
            self._user_acts(rng.choice(jobs))

    def _user_acts(self, name: str) -> None:
        act = self.rng.random()
        if act < 0.5:
            self.faults.edit(name, suspend=act < 0.25)
        elif act < 0.6 and self.cluster.api.up:
            self.cluster.api.delete_job(name)

    def end(self) -> None:
        """Heal all faults, and check that all jobs end and that no claim is left."""
        self.faults.heal_all()
        for made in self.jobs():
            if made.spec.suspend:
                self.faults.edit(made.metadata.name, suspend=False)
        self.run_until(
            lambda: all(made.status.phase in TERMINAL for made in self.jobs()), BOUND_SECONDS, "all jobs end"
        )
        failed = [made.status.message for made in self.jobs() if made.status.phase is Phase.FAILED]
        assert not failed, failed

    def where(self) -> str:
        """Describe the jobs and pods."""
        lines = [
            f"{made.metadata.name}: {made.status.phase} {made.status.reason}: {made.status.message} "
            f"{made.status.placement.claims if made.status.placement else ''}"
            for made in self.jobs()
        ]
        lines += [
            f"  {pod.name} {pod.phase} {pod.node} {'deleting' if pod.deleting else ''} {pod.unschedulable}"
            for pod in self.cluster.api.pods.values()
        ]
        return "\n".join(lines)
