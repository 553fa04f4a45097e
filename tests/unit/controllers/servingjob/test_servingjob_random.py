"""Random lives of a ServingJob: edits, scaling, pauses, checkpoints, faults and lost nodes in any order.

In every life the plan keeps its budget, and it converges once the faults stop and the revision is good.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.cases import cases
from tests.unit.controllers.servingjob.servers import NODES, Servers, make_store, make_trained

from convoy_controllers.servingjob.rollout import budget
from convoy_controllers.views import PodView
from convoy_crds.servingjob_rollout import ENDPOINT_LAG_SECONDS

BUDGETS = st.sampled_from([("25%", 0), (1, 1), (0, 1), (2, 0), (0, "50%"), (3, 2)])
PICK = st.integers(0, 30)


class ServingLife(RuleBasedStateMachine):
    """A life of one job. Revisions with an odd `size` never become ready."""

    @initialize(
        replicas=st.integers(1, 4), group_size=st.integers(1, 2), limits=BUDGETS, follows=st.booleans()
    )
    def start(
        self, replicas: int, group_size: int, limits: tuple[int | str, int | str], follows: bool
    ) -> None:
        self.group_size = group_size
        self.size = 0
        source = {"job": "train", "store": "s3", "follow": True, "minInterval": "10s"}
        more = {"model": {"checkpoint": source}} if follows else {}
        self.servers = Servers(replicas=replicas, roles=[self.role()], **more)
        self.servers.store, self.servers.source = make_store(), make_trained(1)
        self.saved = 1
        self.damaged: set[int] = set()
        self.servers.model = lambda order: (
            ("DIGEST_MISMATCH", "it is damaged") if order.source.step in self.damaged else ("", "")
        )
        self.servers.rollout(maxSurge=limits[0], maxUnavailable=limits[1])
        self.flaky: set[str] = set()
        self.servers.good = self.is_good
        self.reconcile()

    def role(self) -> dict[str, object]:
        engine = {"name": "lm", "params": {"size": self.size}}
        return {"name": "worker", "groupSize": self.group_size, "engine": engine}

    def is_good(self, pod: PodView) -> bool:
        name = pod.labels["convoy.dev/revision"]
        revision = self.servers.revisions.get(name)
        role = revision.spec.role("worker") if revision else None
        return role is not None and role.params.get("size", 0) % 2 == 0 and pod.name not in self.flaky

    def available(self) -> set[str]:
        """Return the groups of which every pod has been ready for the endpoint lag, and runs."""
        groups: dict[str, list[bool]] = {}
        for pod in self.servers.pods.values():
            view = self.servers.slots.get(pod.uid)
            record = next((one for one in self.servers.records if str(one.number) == self.group(pod)), None)
            runs = view is not None and all(rank.state == "RUNNING" for rank in view.ranks)
            settled = pod.ready_changed + ENDPOINT_LAG_SECONDS <= self.servers.now.timestamp()
            lost = self.servers._dead(pod.node)
            formed = record is not None and bool(record.membership)
            good = pod.ready and settled and runs and formed and not pod.deleting and not lost
            groups.setdefault(self.group(pod), []).append(good)
        return {name for name, pods in groups.items() if all(pods) and len(pods) == self.group_size}

    @staticmethod
    def group(pod: PodView) -> str:
        return pod.labels["convoy.dev/group"]

    def live(self) -> set[str]:
        return {self.group(pod) for pod in self.servers.live()}

    def reconcile(self) -> None:
        """Run one plan, and check what it deletes and creates."""
        before, available = self.live(), self.available()
        pods = dict(self.servers.pods)
        made = self.servers.step()
        spec = self.servers.job.spec
        limits = budget(spec.rollout, self.servers.job.desired("worker"))
        gone = {self.group(pods[one.name]) for one in made.deletions}
        taken = available & gone
        if taken and spec.replicas:
            assert len(available - gone) >= limits.minimum, (taken, limits)
            revisions = {pod.labels["convoy.dev/revision"] for pod in pods.values()}
            rolls = revisions != {self.servers.job.status.update_revision}
            assert rolls or available - gone, "the last available replica is deleted"
        created = {body["metadata"]["labels"]["convoy.dev/group"] for body in made.manifests}
        after = (before - {name for name in gone if self.all_deleted(name, pods, made)}) | created
        most = limits.desired + max(limits.surge, 1)
        assert len(after) <= max(most, len(before)), (before, after, limits)

    def all_deleted(self, name: str, pods: dict[str, PodView], made: object) -> bool:
        deleted = {one.name for one in made.deletions}  # type: ignore[attr-defined]
        return all(pod.name in deleted or pod.deleting for pod in pods.values() if self.group(pod) == name)

    def choose(self, pick: int) -> PodView | None:
        names = sorted(self.servers.pods)
        return self.servers.pods[names[pick % len(names)]] if names else None

    @rule(seconds=st.sampled_from([0.5, 2.0, 5.0, 30.0]))
    def pass_time(self, seconds: float) -> None:
        self.servers.wait(seconds)
        self.reconcile()

    @rule()
    def plan_again(self) -> None:
        self.reconcile()

    @rule(size=st.integers(0, 5))
    def edit(self, size: int) -> None:
        self.size = size
        self.servers.edit(roles=[self.role()])
        self.reconcile()

    @rule(damaged=st.booleans())
    def save(self, damaged: bool) -> None:
        """Save a checkpoint that replicas with `follow` roll to."""
        self.saved += 1
        self.damaged |= {self.saved} if damaged else set()
        self.servers.source = make_trained(self.saved)
        self.reconcile()

    @precondition(lambda self: self.damaged)
    @rule()
    def repair_checkpoints(self) -> None:
        self.damaged = set()
        self.servers.retry_deliveries()
        self.reconcile()

    @rule(replicas=st.integers(0, 5))
    def scale(self, replicas: int) -> None:
        self.servers.edit(replicas=replicas)
        self.reconcile()

    @rule(paused=st.booleans())
    def pause(self, paused: bool) -> None:
        self.servers.rollout(paused=paused)
        self.reconcile()

    @rule(pick=PICK)
    def undo(self, pick: int) -> None:
        names = [one.name for one in self.servers.job.status.revisions]
        self.servers.rollout(revision=names[pick % len(names)] if names else "")
        self.reconcile()

    @rule(limits=BUDGETS)
    def change_budget(self, limits: tuple[int | str, int | str]) -> None:
        self.servers.rollout(maxSurge=limits[0], maxUnavailable=limits[1])
        self.reconcile()

    @rule(pick=PICK, code=st.sampled_from([0, 1, 76]))
    def end_a_rank(self, pick: int, code: int) -> None:
        pod = self.choose(pick)
        if pod is not None and pod.uid in self.servers.slots:
            self.servers.exit(pod.name, code)
        self.reconcile()

    @rule(pick=PICK)
    def remove_a_pod(self, pick: int) -> None:
        if (pod := self.choose(pick)) is not None:
            self.servers._remove(pod.name)
        self.reconcile()

    @rule(pick=PICK)
    def evict_a_pod(self, pick: int) -> None:
        if (pod := self.choose(pick)) is not None:
            at = self.servers.now.timestamp()
            self.servers.pod(pod.name, deleting=True, ready=False, ready_changed=at, leaving_since=at)
        self.reconcile()

    @rule(pick=PICK)
    def fail_a_pod(self, pick: int) -> None:
        if (pod := self.choose(pick)) is not None and pod.node:
            self.servers.pod(pod.name, phase="Failed", exit_code=1, ready=False)
        self.reconcile()

    @rule(pick=PICK)
    def flap(self, pick: int) -> None:
        if (pod := self.choose(pick)) is not None:
            self.flaky ^= {pod.name}
        self.reconcile()

    @rule(node=st.integers(0, NODES - 1), seconds=st.sampled_from([6.0, 20.0]))
    def lose_a_node(self, node: int, seconds: float) -> None:
        if len([one for one in self.servers.nodes.values() if one.silent_seconds]) < NODES - 1:
            self.servers.silence(f"node-{node}", seconds)
        self.reconcile()

    @rule(first=st.integers(0, NODES - 1), second=st.integers(0, NODES - 1), cordons=st.booleans())
    def close_nodes(self, first: int, second: int, cordons: bool) -> None:
        for node in {f"node-{first}", f"node-{second}"} - set(self.servers.nodes):
            self.servers.cordon(node) if cordons else self.servers.quarantine(node)
        self.reconcile()

    @precondition(lambda self: self.servers.nodes)
    @rule()
    def nodes_return(self) -> None:
        self.servers.nodes = {}
        self.reconcile()

    @rule(drains=st.booleans())
    def drain_slowly(self, drains: bool) -> None:
        self.servers.drains = drains

    @invariant()
    def records_are_bounded(self) -> None:
        if hasattr(self, "servers"):
            assert len(self.servers.records) <= 16

    def converged(self) -> bool:
        status, wanted = self.servers.job.status, self.servers.job.desired("worker")
        settled = status.ready == f"{wanted}/{wanted}" and status.current_revision == status.update_revision
        return settled and len(self.servers.pods) == wanted * self.group_size

    def teardown(self) -> None:
        """Stop all faults, and check that the job converges to a good revision."""
        if not hasattr(self, "servers"):
            return
        self.flaky, self.size = set(), 4
        self.servers.nodes, self.servers.drains = {}, True
        self.damaged = set()
        self.servers.retry_deliveries()
        self.servers.edit(roles=[self.role()])
        self.servers.rollout(paused=False, revision="")
        for _ in range(250):
            self.reconcile()
            self.servers.wait(30)
            if self.converged():
                break
        # It stays so when restarts have left the window of the budget. A roll to a newer generation may come
        # first, which has waited for its interval.
        self.servers.wait(2 * self.servers.job.spec.recovery.window_seconds)
        for number in range(100):
            self.reconcile()
            self.servers.wait(30)
            if number >= 20 and self.converged():
                break
        status, wanted = self.servers.job.status, self.servers.job.desired("worker")
        assert status.ready == f"{wanted}/{wanted}", (status, self.servers.pods)
        assert {pod.labels["convoy.dev/revision"] for pod in self.servers.pods.values()} <= {
            status.update_revision
        }
        assert status.current_revision == status.update_revision
        made = self.servers.step()
        assert made.status is None and not made.creations and not made.deletions and not made.commands


TestServingLife = pytest.mark.timeout(cases(180))(ServingLife.TestCase)
TestServingLife.settings = settings(
    max_examples=cases(7),
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
