"""Tests of the ledger against the truth: for each cause, the status and the simulated processes must agree.

There are at most two faults, and the first is handled before the second. The operator sees the placement of
a pod 0.2 s late, and such errors add up. Steps are short, because the end of a node that loses power is
known only from its last step and its last heartbeat (one per second).
"""

from __future__ import annotations

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from tests.cases import cases

from convoy_controllers.simulate.cluster import Cluster
from convoy_controllers.simulate.faults import Faults
from convoy_controllers.simulate.machines import Machine
from convoy_controllers.simulate.program import Program
from convoy_controllers.simulate.truth import GoodputTruth
from convoy_controllers.testing.builders import make_engine, make_job
from convoy_controllers.trainingjob import goodput
from convoy_crds.goodput import Cause, totals
from convoy_crds.trainingjob_status import TERMINAL

SECONDS, SHARE = 0.5, 0.05
"""Allowed error of a cause: the larger of SECONDS and the fraction SHARE of the cause's true time."""
KINDS = ("kill", "error", "hang", "delete", "oom", "power", "cut", "drain", "operator", "api", "suspend")
RECOVERY = {"hangSeconds": 15, "maxRestarts": 50, "maxIdenticalErrors": 0}
CHECKPOINT = {"interval": "30s", "tiers": {"local": {}, "peer": {}}}

FAULTS = st.lists(
    st.tuples(st.sampled_from(KINDS), st.integers(0, 2), st.floats(80.0, 110.0)), min_size=1, max_size=2
)


class Course:
    """A job with its faults, its ledger, and the true seconds by cause."""

    def __init__(self, seed: int, step: float, elastic: bool, saves: bool, spare: bool) -> None:
        machines = [Machine(f"node-{number}", capacity=1) for number in range(3 + spare)]
        self.cluster = Cluster(machines, engines=[make_engine()], seed=seed)
        self.faults = Faults(self.cluster)
        self.truth = GoodputTruth(self.cluster)
        self.cluster.operator.lead()
        self.cluster.run(2.0)
        role = {"name": "worker", "replicas": 3} | ({"minReplicas": 2} if elastic else {})
        checkpoint = {"checkpoint": CHECKPOINT} if saves else {}
        job = make_job(roles=[role], recovery=RECOVERY, **checkpoint)
        self.cluster.submit(job, Program(step_seconds=step, total_steps=round(300 / step)))
        self.cluster.run(25.0)

    def ended(self) -> bool:
        return self.cluster.job("job").status.phase in TERMINAL

    def inject_fault(self, kind: str, number: int) -> None:
        pod = f"job-worker-{number}"
        placed = self.cluster.api.pods.get(pod)
        node = placed.node if placed is not None else None
        later = self.cluster.kernel.after
        match kind:
            case "kill":
                self.faults.kill_rank("job", number)
            case "error":
                self.faults.end_rank("job", number, 1)
            case "hang":
                self.faults.hang_rank("job", number)
            case "delete":
                self.faults.delete_pod(pod)
            case "oom":
                self.faults.kill_container(pod)
            case "operator":
                self.faults.crash_operator()
            case "api":
                self.faults.stop_api()
                later(20.0, self.faults.start_api)
            case "suspend":
                self.faults.edit("job", suspend=True)
                later(30.0, lambda: self.faults.edit("job", suspend=False))
            case "power" if node:
                self.faults.kill_node(node)
                later(30.0, lambda: self.faults.return_node(node))
            case "cut" if node:
                self.faults.cut_node(node)
                later(30.0, lambda: self.faults.heal_node(node))
            case "drain" if node:
                self.faults.drain_node(node)
                later(30.0, lambda: self.faults.uncordon_node(node))
            case _:
                pass

    def finish(self) -> dict[str, tuple[float, float]]:
        """Let the job run to its end. Return (seconds in the ledger, true seconds) by cause."""
        for _ in range(200):
            if self.ended():
                break
            self.cluster.run(10.0)
        job = self.cluster.job("job")
        assert self.ended(), job.status.message
        booked = totals(job.status.goodput, self.cluster.kernel.time)
        true = self.truth.seconds(job.metadata.uid)
        assert sum(booked.values()) == pytest.approx(sum(true.values()), abs=2e-3)
        return {cause: (booked.get(cause, 0.0), true.get(cause, 0.0)) for cause in booked | true}


def wrong(books: dict[str, tuple[float, float]]) -> dict[str, tuple[float, float]]:
    return {
        cause: (booked, true)
        for cause, (booked, true) in books.items()
        if abs(booked - true) > max(SECONDS, SHARE * true)
    }


@pytest.mark.timeout(cases(180))
@settings(max_examples=cases(8), phases=[Phase.explicit, Phase.generate])
@given(
    seed=st.integers(0, 2**16),
    step=st.sampled_from([0.05, 0.1, 0.2]),
    elastic=st.booleans(),
    saves=st.booleans(),
    spare=st.booleans(),
    faults=FAULTS,
)
def test_ledger_agrees_with_the_truth_for_every_cause(
    seed: int, step: float, elastic: bool, saves: bool, spare: bool, faults: list[tuple[str, int, float]]
) -> None:
    course = Course(seed, step, elastic, saves, spare)
    suspended = False
    for kind, number, gap in faults:
        if course.ended():
            break
        # The job is suspended at most once. At each start of its pods, the operator sees their placement 0.2
        # s late. Two such errors would exceed the allowed error of a cause with few seconds.
        if kind != "suspend" or not suspended:
            course.inject_fault(kind, number)
        suspended = suspended or kind == "suspend"
        course.cluster.run(gap)
    books = course.finish()
    assert not wrong(books), books


def test_comparison_detects_a_wrongly_booked_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: the ledger books repeated steps as productive. The comparison must find both causes
    wrong.
    """
    switch = goodput._LedgerUpdate.switch

    def careless(ledger: goodput._LedgerUpdate, cause: Cause | None, at: object) -> None:
        switch(ledger, Cause.PRODUCTIVE if cause is Cause.RECOMPUTE else cause, at)  # type: ignore[arg-type]

    monkeypatch.setattr(goodput._LedgerUpdate, "switch", careless)
    course = Course(seed=1, step=0.2, elastic=False, saves=False, spare=True)
    course.inject_fault("kill", 1)
    course.cluster.run(60.0)
    assert wrong(course.finish()).keys() == {Cause.PRODUCTIVE, Cause.RECOMPUTE}


def test_ledger_of_a_life_without_a_fault() -> None:
    books = Course(seed=2, step=0.2, elastic=False, saves=True, spare=False).finish()
    assert books.keys() == {Cause.SCHEDULE, Cause.START, Cause.PRODUCTIVE, Cause.CHECKPOINT, Cause.DETECT}
    booked, true = books[Cause.PRODUCTIVE]
    assert booked == pytest.approx(300 - 0.2, abs=0.1) and true == pytest.approx(booked, abs=0.1)
