"""State machines that put a job on the simulated cluster through random events, and check that it reaches
its goal at the end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from tests.unit.controllers import group_alone

from convoy_controllers.plan import Plan
from convoy_controllers.simulate.cluster import Cluster
from convoy_controllers.simulate.cluster_events import ClusterEvent, PlanMade
from convoy_controllers.simulate.faults import Faults
from convoy_controllers.simulate.invariants import InvariantChecker
from convoy_controllers.simulate.latencies import Latencies
from convoy_controllers.simulate.machines import Machine
from convoy_controllers.simulate.program import Program
from convoy_controllers.testing.builders import make_engine, make_job
from convoy_controllers.trainingjob.plan import plan
from convoy_crds.layout import Slot, independent_slots
from convoy_crds.trainingjob import TrainingJob
from convoy_crds.trainingjob_status import TERMINAL, Phase

NODES = 4
LATENCIES = Latencies(progress_write=60.0)
BOUND_SECONDS = 1800.0
"""Maximum virtual seconds in which a job must reach its goal after all faults are healed. Alarms about many
silent agents last 300 s, back-offs 60 s, and waits for a node's kubelet as long as the grace period.
"""
REST_SECONDS = 120.0
HOW_NODES_FAIL = ("kill", "cut", "cut", "control", "drain", "delete")
NOTHING = (None, (), (), ())
RECOVERY = {"maxRestarts": 3, "windowSeconds": 600, "hangSeconds": 30, "scheduleSeconds": 60}
OWN_IMAGE = {"spec": {"containers": [{"image": "mine", "command": ["python", "train.py"]}]}}


@dataclass(frozen=True)
class Shape:
    """A kind of job, with its program and the capacity of its nodes."""

    spec: dict[str, Any]
    program: Program = field(default_factory=Program)
    capacity: int = 1
    """Number of pods that fit on a node."""

    def job(self) -> TrainingJob:
        body = {"roles": [{"name": "worker", "replicas": 3}], **self.spec}
        made = make_job(**{**body, "recovery": {**RECOVERY, **body.get("recovery", {})}})
        made.metadata.uid = ""
        return made


class Life(RuleBasedStateMachine):
    """The life of one job. Each rule is an event, or lets time pass."""

    shape: Shape
    steps: Counter[str]
    """Number of events by kind, in all lives of this state machine; their sum is under "all"."""

    @initialize(seed=st.integers(0, 2**16))
    def start(self, seed: int) -> None:
        machines = [Machine(f"node-{number}", self.shape.capacity) for number in range(NODES)]
        self.cluster = Cluster(machines, latencies=LATENCIES, engines=[make_engine()], seed=seed)
        self.faults = Faults(self.cluster)
        InvariantChecker(self.cluster)
        self.cluster.listeners.append(self.check_plan)
        self.cluster.operator.lead()
        self.cluster.submit(self.shape.job(), self.shape.program)
        self.run(5.0)

    def check_plan(self, event: ClusterEvent) -> None:
        """Check that Independent pods have no effect on the process group."""
        if isinstance(event, PlanMade) and group_alone.names(event.observed.pods):
            group_alone.check(event.observed, self.cluster.kernel.time)

    @property
    def job(self) -> TrainingJob:
        return self.cluster.job("job")

    def run(self, seconds: float) -> None:
        """Let time pass. If this fails, the checks at the end of the life are skipped, so that they do not
        hide the failure.
        """
        self.sound = False
        self.cluster.run(seconds)
        self.sound = True

    def count(self) -> None:
        self.steps["all"] += 1

    # Rules about time

    @rule(seconds=st.sampled_from([0.01, 0.03, 0.1, 0.2, 0.5]))
    def a_blink(self, seconds: float) -> None:
        self.count()
        self.run(seconds)

    @rule(seconds=st.sampled_from([1.0, 2.0, 3.0, 5.0]))
    def a_moment(self, seconds: float) -> None:
        self.count()
        self.run(seconds)

    @rule(seconds=st.sampled_from([7.0, 12.0, 20.0, 40.0, 70.0]))
    def a_while(self, seconds: float) -> None:
        self.count()
        self.run(seconds)

    @rule(seconds=st.sampled_from([5.0, 20.0]))
    def a_rest(self, seconds: float) -> None:
        self.count()
        self.faults.heal_all()
        self.run(seconds)

    # Rules about ranks and pods

    @rule(rank=st.integers(0, 5), code=st.sampled_from([0, 1, 1, 75, 76]))
    def a_rank_ends(self, rank: int, code: int) -> None:
        self.count()
        self.faults.end_rank("job", rank, code)

    @rule(rank=st.integers(0, 5))
    def a_rank_is_killed(self, rank: int) -> None:
        self.count()
        self.faults.kill_rank("job", rank)

    @rule(rank=st.integers(0, 5))
    def a_rank_hangs(self, rank: int) -> None:
        self.count()
        self.faults.hang_rank("job", rank)

    @rule(number=st.integers(0, 5), oom=st.booleans())
    def a_pod_goes(self, number: int, oom: bool) -> None:
        self.count()
        names = sorted(self.cluster.api.pods)
        if names:
            name = names[number % len(names)]
            (self.faults.kill_container if oom else self.faults.delete_pod)(name)

    @rule(number=st.integers(0, 3), code=st.sampled_from([0, 1, 1, 10, 75]))
    def an_independent_program_ends(self, number: int, code: int) -> None:
        self.count()
        names = group_alone.names(self.cluster.api.pods.values())
        if names:
            self.faults.end_pod_rank(names[number % len(names)], code)

    # Rules about nodes

    @rule(
        node=st.integers(0, NODES - 1),
        how=st.sampled_from(["kill", "cut", "cut", "control", "drain", "delete"]),
    )
    def a_node_fails(self, node: int, how: str) -> None:
        self.count()
        name = f"node-{node}"
        if how == "kill":
            self.faults.kill_node(name)
        elif how == "drain":
            self.faults.drain_node(name)
        elif how == "delete":
            self.faults.delete_node(name)
        elif self.cluster.machines[name].agent:
            # Only the network of a node with a running agent is cut. Without an agent, nothing would stop the
            # node's ranks (see liveness/fence.py).
            self.faults.cut_node(name, control_only=how == "control")

    @rule(node=st.integers(0, NODES - 1))
    def a_node_is_well_again(self, node: int) -> None:
        self.count()
        name = f"node-{node}"
        self.faults.heal_node(name)
        self.faults.return_node(name)
        self.faults.uncordon_node(name)

    @rule(node=st.integers(0, NODES - 1), farewell=st.booleans())
    def an_agent_goes(self, node: int, farewell: bool) -> None:
        self.count()
        machine = self.cluster.machines[f"node-{node}"]
        if machine.reaches_control:
            self.faults.stop_agent(machine.name, farewell=farewell)

    @rule(node=st.integers(0, NODES - 1))
    def an_agent_comes(self, node: int) -> None:
        self.count()
        self.faults.start_agent(f"node-{node}")

    # Rules about the control plane

    @rule(effects=st.integers(0, 6))
    def the_operator_crashes(self, effects: int) -> None:
        self.count()
        self.faults.crash_operator(effects)

    @rule(up=st.sampled_from([True, True, False]))
    def the_api_server_goes_or_comes(self, up: bool) -> None:
        self.count()
        if up:
            self.faults.start_api()
        else:
            self.faults.stop_api()

    # Rules about users

    @rule(suspend=st.sampled_from([False, False, False, True]))
    def suspend(self, suspend: bool) -> None:
        self.count()
        self.faults.edit("job", suspend=suspend)

    @rule(number=st.integers(0, 3))
    def restart(self, number: int) -> None:
        self.count()
        recovery = self.job.spec.recovery.to_dict() | {"restartId": f"r{number}"}
        self.faults.edit("job", recovery=recovery)

    @rule(number=st.integers(1, 3))
    def change_engine(self, number: int) -> None:
        self.count()
        self.cluster.engines["gpt"] = make_engine(image=f"convoy/workloads:{number}")

    @precondition(lambda self: self.job.status.phase is Phase.SUSPENDED)
    @rule(role=st.integers(0, 1), replicas=st.integers(1, 3))
    def scale(self, role: int, replicas: int) -> None:
        self.count()
        roles = [entry.to_dict() for entry in self.job.spec.roles]
        one = roles[role % len(roles)]
        one["replicas"] = max(replicas, one.get("minReplicas", 1))
        self.faults.edit("job", roles=roles)

    @rule()
    def the_job_is_made_anew(self) -> None:
        self.count()
        if self.cluster.api.up:
            self.cluster.api.delete_job("job")
            self.cluster.submit(self.shape.job(), self.shape.program)

    # Rules about other objects

    @rule(room=st.sampled_from([True, True, False]))
    def room(self, room: bool) -> None:
        self.count()
        self.cluster.scheduler.open = room
        self.cluster.scheduler.request_run()

    @rule(why=st.sampled_from(["", "", "exceeded quota"]))
    def admission(self, why: str) -> None:
        self.count()
        self.cluster.api.refuse = lambda pod: why

    # The end of a life

    def teardown(self) -> None:
        if hasattr(self, "cluster") and self.sound:
            self.calm_down()
            self.at_rest()

    def calm_down(self) -> None:
        """Heal all faults, and check that the job then reaches its goal within BOUND_SECONDS.

        One node without power stays down, because the job has enough capacity without it.
        """
        dead = [machine.name for machine in self.cluster.machines.by_name.values() if not machine.powered]
        self.faults.heal_all(but=dead[0] if dead else "")
        self.room(True)
        self.admission("")
        limit = self.cluster.kernel.now + BOUND_SECONDS
        while not self.settled():
            assert self.cluster.kernel.now < limit, f"stuck: {self.where()}"
            self.run(5.0)

    def settled(self) -> bool:
        """Return True if the job has reached its goal. The job's processes decide this, not only its
        status.
        """
        status, workers = self.job.status, self.cluster.workers.by_uid.values()
        if not self.cluster.operator.leading:
            return False
        if status.phase in TERMINAL:
            return not any(worker.live for worker in workers)
        if self.job.spec.suspend:
            return status.phase is Phase.SUSPENDED and not any(worker.live for worker in workers)
        gang = self.cluster.training.gangs.get((self.job.metadata.uid, status.incarnation))
        stepping = status.phase is Phase.RUNNING and gang is not None and gang.stepping
        return stepping and all(map(self.independent_settled, independent_slots(self.job)))

    def independent_settled(self, slot: Slot) -> bool:
        """Return True if an Independent pod runs its program, or is not to be started again."""
        records = self.job.status.internal.independent
        ended = {(one.role, one.replica) for one in records if one.ending}
        pod = self.cluster.api.pods.get(slot.pod)
        view = self.cluster.workers.slots.get(pod.uid) if pod else None
        runs = view is not None and any(rank.state == "RUNNING" for rank in view.ranks)
        return (slot.role, slot.replica) in ended or runs

    def at_rest(self) -> None:
        """Check that after the next plan nothing is left to do, and that a later plan makes no change
        either.
        """
        limit = self.cluster.kernel.now + REST_SECONDS
        while not (self.settled() and self.nothing_left()):
            assert self.cluster.kernel.now < limit, f"never at rest: {self.left()} {self.where()}"
            self.run(2.0)
        left = self.left(later=1.0)
        assert left == NOTHING, f"time alone makes a difference: {left}"

    def nothing_left(self) -> bool:
        """Return True if the next plan changes at most the status, and the plan after it changes nothing."""
        made = self.plan()
        if made.status is not None:
            stored = self.cluster.api.jobs["job"]
            self.cluster.operator.cache.put_job(
                self.cluster.api.store_status("job", stored.version, made.status)
            )
        return self.left() == NOTHING

    def left(self, later: float = 0.0) -> tuple[Any, ...]:
        made = self.plan(later)
        return (made.status, made.manifests, made.deletions, made.commands)

    def plan(self, later: float = 0.0) -> Plan:
        observed = self.cluster.operator.observed(self.job, {})
        return plan(observed, self.cluster.kernel.time + timedelta(seconds=later))

    def where(self) -> str:
        status = self.job.status
        uid = self.job.metadata.uid
        pods = {
            pod.name: (pod.phase, pod.node, pod.deleting, pod.owner_uid == uid)
            for pod in self.cluster.api.pods.values()
        }
        nodes = self.cluster.operator.observed(self.job, {}).nodes
        phase = f"{status.phase} {status.reason} {status.message!r}"
        return f"{phase} incarnation {status.incarnation} {pods} {nodes}"


OF_RANKS = ("a_rank_ends", "a_rank_is_killed", "a_rank_hangs", "a_pod_goes", "an_independent_program_ends")
OF_NODES = ("a_node_fails", "a_node_is_well_again", "an_agent_goes", "an_agent_comes")
OF_CONTROL = ("the_operator_crashes", "the_api_server_goes_or_comes")
OF_PEOPLE = ("suspend", "restart", "change_engine", "scale", "the_job_is_made_anew")
OF_NEIGHBOURS = ("room", "admission")


def machine(shape: Shape, without: Iterable[str] = ()) -> type[Life]:
    """Return the state machine for lives of jobs of one shape, without the rules named in `without`."""
    plain = {name: _no_rule(getattr(Life, name)) for name in without}
    return type("LifeOfAShape", (Life,), {"shape": shape, "steps": Counter(), **plain})


def _no_rule(method: Callable[..., None]) -> Callable[..., None]:
    """Return the method without its rule, so that hypothesis does not call it."""

    def call(life: Life, *found: Any) -> None:
        method(life, *found)

    return call


SHAPES = {
    "elastic": Shape(
        {
            "roles": [{"name": "worker", "replicas": 3, "minReplicas": 2}],
            "checkpoint": {"interval": "20s", "tiers": {"local": {}, "peer": {}}},
        },
        Program(total_steps=150),
    ),
    "two roles": Shape(
        {
            "roles": [
                {"name": "actor", "replicas": 2},
                {"name": "learner", "replicas": 1, "processesPerReplica": 2},
            ],
            "success": "learner",
        },
        Program(total_steps=100, endless_roles=["actor"]),
        capacity=2,
    ),
    "own image, Strict": Shape(
        {"engine": None, "roles": [{"name": "worker", "replicas": 3, "template": OWN_IMAGE}]},
        Program(peer_lost_code=1, saves_on_term=False, peer_timeout_seconds=8.0),
    ),
    "Independent role": Shape(
        {
            "roles": [
                {"name": "worker", "replicas": 2},
                {"name": "rollout", "replicas": 2, "membership": "Independent", "budget": {"maxRestarts": 2}},
            ],
            "checkpoint": {"interval": "20s", "tiers": {"local": {}, "peer": {}}},
        },
        Program(total_steps=2000, independent_seconds=300.0),
        capacity=2,
    ),
    "all pods anew": Shape({"recovery": {"inPlace": False, "maxIdenticalErrors": 0}}, capacity=2),
    "checkpointed": Shape(
        {
            "roles": [{"name": "worker", "replicas": 2, "processesPerReplica": 2}],
            "checkpoint": {
                "interval": "10s",
                "tiers": {"local": {}, "remote": {"store": "s3", "every": "30s"}},
            },
        },
        Program(total_steps=80),
        capacity=2,
    ),
}
