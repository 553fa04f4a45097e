"""Random lives: whatever happens to pods, ranks and users, the plan keeps its promises."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from convoy_controllers.plan import Assign, PickPort
from convoy_controllers.testing.builders import ToyCluster, make_engine, make_job
from convoy_crds.trainingjob import TERMINAL, Phase

MAX_RESTARTS = 4


class Life(RuleBasedStateMachine):
    """One job of three workers on a toy cluster."""

    cluster: ToyCluster

    @initialize()
    def start(self) -> None:
        job = make_job(roles=[{"name": "worker", "replicas": 3}], recovery={"maxRestarts": MAX_RESTARTS})
        self.cluster = ToyCluster(job, make_engine())
        self.highest = 0
        self.ended: Phase | None = None

    @property
    def phase(self) -> Phase | None:
        return self.cluster.job.status.phase

    @rule(steps=st.integers(1, 4))
    def reconcile(self, steps: int) -> None:
        for _ in range(steps):
            stored = self.cluster.job.status.incarnation
            made = self.cluster.step()
            named = [c.incarnation for c in made.commands if isinstance(c, Assign | PickPort)]
            after = self.cluster.job.status.incarnation
            assert all(incarnation == after for incarnation in named)
            assert not named or after == stored or made.status_first, "named before it was stored"

    @rule(rank=st.integers(0, 2), code=st.sampled_from([0, 1, 75, 76]), signal=st.sampled_from([0, 9]))
    def end_rank(self, rank: int, code: int, signal: int) -> None:
        self.cluster.exit(rank, code, signal=signal)

    @rule()
    def end_all_well(self) -> None:
        self.cluster.exit_all(0)

    @precondition(lambda self: self.cluster.pods)
    @rule(data=st.data())
    def lose_pod(self, data: st.DataObject) -> None:
        self.cluster.lose(data.draw(st.sampled_from(sorted(self.cluster.pods))))

    @precondition(lambda self: self.cluster.pods)
    @rule(data=st.data(), code=st.sampled_from([1, 75, 137]))
    def fail_pod(self, data: st.DataObject, code: int) -> None:
        name = data.draw(st.sampled_from(sorted(self.cluster.pods)))
        self.cluster.pod(name, phase="Failed", exit_code=code)

    @precondition(lambda self: self.cluster.pods)
    @rule(data=st.data(), code=st.sampled_from([0, 137]), sidecar=st.booleans())
    def end_first_container(self, data: st.DataObject, code: int, sidecar: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.cluster.pods)))
        phase = "Running" if sidecar else ("Failed" if code else "Succeeded")
        self.cluster.pod(name, phase=phase, exit_code=code)

    @rule(number=st.integers(1, 3))
    def change_engine(self, number: int) -> None:
        self.cluster.engine = make_engine(image=f"convoy/workloads:{number}")

    @precondition(lambda self: self.cluster.pods)
    @rule(data=st.data())
    def begin_deleting_pod(self, data: st.DataObject) -> None:
        self.cluster.pod(data.draw(st.sampled_from(sorted(self.cluster.pods))), deleting=True)

    @rule()
    def finish_deletions(self) -> None:
        for name in [name for name, pod in self.cluster.pods.items() if pod.deleting]:
            self.cluster.lose(name)

    @rule(suspend=st.booleans())
    def suspend(self, suspend: bool) -> None:
        self.cluster.spec(suspend=suspend)

    @rule(seconds=st.integers(1, 120))
    def wait(self, seconds: int) -> None:
        self.cluster.wait(seconds)

    @rule()
    def restart(self) -> None:
        recovery = {"maxRestarts": MAX_RESTARTS, "restartId": f"r{self.cluster.now.timestamp():.0f}"}
        self.cluster.spec(recovery=recovery)

    @rule(placed=st.booleans())
    def capacity(self, placed: bool) -> None:
        self.cluster.schedulable = placed

    @invariant()
    def the_incarnation_never_goes_back(self) -> None:
        now = self.cluster.job.status.incarnation
        assert now >= self.highest
        self.highest = now

    @invariant()
    def a_terminal_phase_stays(self) -> None:
        if self.ended is not None:
            assert self.phase is self.ended
        elif self.phase in TERMINAL:
            self.ended = self.phase

    @invariant()
    def the_budget_is_never_passed(self) -> None:
        assert self.cluster.job.status.restarts.in_window <= MAX_RESTARTS

    def teardown(self) -> None:
        """When nothing more goes wrong, the job runs, or it has ended, or it is suspended; never stuck."""
        if not hasattr(self, "cluster"):
            return
        self.cluster.schedulable = True
        self.finish_deletions()
        for _ in range(40):
            self.finish_deletions()
            made = self.cluster.step()
            idle = made.status is None and not (made.create or made.delete or made.commands)
            if idle and self.phase in {*TERMINAL, Phase.RUNNING, Phase.SUSPENDED}:
                return
            self.cluster.wait(made.requeue_after or 1.0 if idle else 0.0)
        raise AssertionError(f"stuck in {self.phase}: {self.cluster.job.status.message}")


Life.TestCase.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
TestLife = Life.TestCase
