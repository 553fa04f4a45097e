"""Tests of the choice of the rank to blame. A table lists how ranks end, and the cause that the job must
report.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from convoy_controllers.testing.builders import ToyCluster, make_engine, make_job
from convoy_controllers.views import RankView
from convoy_controllers.workers.blame import primary
from convoy_controllers.workers.faults import EarlyEnd, Fault, rank_fault
from convoy_crds.layout import Slot
from convoy_crds.trainingjob_status import LastRestart

CLOSED = "RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.7]:20905"
TIMEOUT = "RuntimeError: [gloo] Timed out waiting 600000ms for recv operation to complete"
ABORTED = (
    CLOSED + "\nterminate called without an active exception\nFatal Python error: Aborted\n\n"
    'Current thread 0x01 (most recent call first):\n  File "/site/torch/autograd/graph.py", line 9 in run'
)


def at(file: str) -> str:
    """Return the stderr of a hung rank whose main thread is in `file`."""
    return f"no step for 9 s; its main thread is at {file}:31 in main"


COLLECTIVE, LOADING = at("/site/torch/distributed/distributed_c10d.py"), at("/app/data.py")
FATE: dict[str, dict[str, Any]] = {
    "done": {"exit_code": 0, "finished": 1.0},
    "lost": {"exit_code": 76, "stderr": CLOSED},
    "lost 1": {"exit_code": 1, "stderr": CLOSED},
    "lost 134": {"exit_code": 134, "signal": 6, "stderr": ABORTED},
    "timed out": {"exit_code": 1, "stderr": TIMEOUT},
    "own error": {"exit_code": 1, "stderr": "ValueError: boom"},
    "silent error": {"exit_code": 1},
    "killed": {"exit_code": 137, "signal": 9},
    "oom": {"exit_code": 137, "signal": 9, "oom": True},
    "segfault": {"exit_code": 139, "signal": 11},
    "terminated": {"exit_code": 143, "signal": 15},
    "saved": {"exit_code": 75},
    "hung": {"exit_code": 134, "signal": 6, "hung": True},
    "hung in a collective": {"exit_code": 134, "signal": 6, "hung": True, "stderr": COLLECTIVE},
    "hung in its data": {"exit_code": 134, "signal": 6, "hung": True, "stderr": LOADING},
    "never ended": {"exit_code": 134, "signal": 6, "hung": True, "finished": 1.0, "stderr": at("/app/x.py")},
    "port taken": {
        "exit_code": 1,
        "stderr": "torch.distributed.DistNetworkError: The server socket has failed to listen on any local "
        "network address. name: EADDRINUSE, message: address already in use",
    },
    "no data": {"exit_code": 20},
}
Ends = dict[int, tuple[Any, ...]]
"""Each rank's end: its kind, the rank's last step, and the seconds since the first end of any rank."""


def ended(cluster: ToyCluster, ends: Ends, total: int | None = None) -> None:
    now = cluster.now.timestamp()
    for rank, (fate, step, after) in ends.items():
        facts = {"step": step, "time": now - 1, "total_steps": total, "ended": now + after, **FATE[fate]}
        cluster.rank(rank, state="EXITED", **facts)


def final_restart(cluster: ToyCluster) -> LastRestart | None:
    """Return the restart after every wait for a root cause is over; None if there was no restart."""
    for _ in range(3):
        cluster.step()
        if cluster.job.status.restarts.last is not None:
            break
        cluster.wait(2)
    return cluster.job.status.restarts.last


def running(workers: int = 3, **spec: Any) -> ToyCluster:
    roles = [{"name": "worker", "replicas": workers}]
    return ToyCluster(make_job(**{"roles": roles, **spec}), make_engine()).settle().train(30).settle()


CAUSES: list[tuple[Ends, tuple[str, int | None]]] = [
    # One rank ends early, and the others fail in every way that this can cause.
    ({1: ("done", 30, 0), 0: ("lost", 30, 0.1)}, ("EndedEarly", 1)),
    ({1: ("done", 30, 0), 0: ("lost 1", 30, 0.1)}, ("EndedEarly", 1)),
    ({1: ("done", 30, 0), 0: ("lost 134", 30, 0.1)}, ("EndedEarly", 1)),
    ({1: ("done", 30, 0), 0: ("timed out", 30, 90)}, ("EndedEarly", 1)),
    ({1: ("done", 30, 0), 0: ("hung", 30, 60)}, ("EndedEarly", 1)),
    ({1: ("done", 30, 0), 0: ("hung in a collective", 30, 60), 2: ("lost", 30, 60.1)}, ("EndedEarly", 1)),
    ({2: ("done", 30, 0), 1: ("done", 30, 0), 0: ("lost", 30, 0.1)}, ("EndedEarly", 1)),
    ({2: ("done", 28, 3), 1: ("done", 30, 0), 0: ("lost", 30, 3)}, ("EndedEarly", 2)),
    ({1: ("done", None, 0), 0: ("lost", None, 0.1)}, ("EndedEarly", 1)),
    # The clocks of the nodes differ. So the lost peer seems to be reported before the early end that caused
    # it.
    ({1: ("done", 30, 1), 0: ("lost", 30, 0)}, ("EndedEarly", 1)),
    # A rank ended early, but another fault is the cause.
    ({1: ("done", 30, 0), 0: ("lost", 30, 0.1), 2: ("killed", 30, 0.2)}, ("RankKilled", 2)),
    ({1: ("done", 30, 0), 0: ("lost", 30, 0.1), 2: ("oom", 30, 0)}, ("OutOfMemory", 2)),
    ({1: ("done", 30, 0), 0: ("lost 1", 30, 0.1), 2: ("own error", 30, 0)}, ("RankFailed", 2)),
    ({1: ("done", 30, 0), 0: ("lost", 30, 0.1), 2: ("no data", 30, 9)}, None),  # type: ignore[list-item]
    ({1: ("done", 30, 0), 0: ("own error", 37, 9)}, ("RankFailed", 0)),
    ({1: ("done", 30, 0), 0: ("silent error", 30, 9)}, ("RankFailed", 0)),
    ({1: ("done", 30, 0), 0: ("saved", 31, 9)}, ("Preempted", 0)),
    ({1: ("done", 30, 0), 0: ("hung in its data", 31, 60)}, ("RankHung", 0)),
    ({1: ("done", 30, 0), 0: ("never ended", 30, 60)}, ("RankNotEnding", 0)),
    # The other rank failed 9 s before the early end.
    ({0: ("lost", 30, 0), 1: ("done", 30, 9)}, ("PeerLost", 0)),
    # Rank 2 fails, and other ranks fail because of it. Their failures are reported before or after that of
    # rank 2.
    ({0: ("lost", 30, 0), 2: ("killed", 30, 0.1)}, ("RankKilled", 2)),
    ({0: ("lost 1", 30, 0), 2: ("own error", 30, 0.1)}, ("RankFailed", 2)),
    ({0: ("lost 134", 30, 0), 2: ("segfault", 30, 0.1)}, ("RankCrashed", 2)),
    ({0: ("lost 1", 30, 0), 1: ("lost 134", 30, 0.1), 2: ("oom", 30, 0.2)}, ("OutOfMemory", 2)),
    ({0: ("timed out", 30, 0), 1: ("timed out", 30, 0), 2: ("hung in its data", 30, 1)}, ("RankHung", 2)),
    ({0: ("port taken", None, 0.1), 1: ("timed out", None, 0)}, ("RankFailed", 0)),
    ({0: ("lost", 30, 0), 2: ("saved", 30, 0.3)}, ("Preempted", 2)),
    ({0: ("lost", 30, 0), 2: ("terminated", 30, 0.3)}, ("RankKilled", 2)),
    # The clocks of two nodes may differ by up to 2 s. So an error without a known pattern may be the effect
    # of a fault that seems to come up to 2 s later.
    ({0: ("silent error", 30, 0), 2: ("killed", 30, 1)}, ("RankKilled", 2)),
    ({0: ("silent error", 30, 0), 2: ("killed", 30, 9)}, ("RankFailed", 0)),
    # Each failure may be the effect of another one, so the earliest failure is the cause.
    ({0: ("lost", 30, 0.2), 2: ("lost 1", 30, 0)}, ("RankFailed", 2)),
    # Several ranks hang. The rank that hangs outside a collective is at fault. If it is not known where the
    # ranks hang, the rank with the fewest steps is at fault.
    ({0: ("hung in a collective", 30, 0), 1: ("hung in a collective", 30, 0), 2: ("hung in its data", 30, 1)},
     ("RankHung", 2)),
    ({0: ("hung", 31, 0), 1: ("hung", 31, 0), 2: ("hung", 30, 1)}, ("RankHung", 2)),
    ({0: ("hung", 31, 0), 1: ("lost", 31, 0.1), 2: ("hung", 30, 1)}, ("RankHung", 2)),
    ({0: ("hung in a collective", 30, 0), 1: ("hung in a collective", 30, 0), 2: ("never ended", 30, 1)},
     ("RankNotEnding", 2)),
    # A rank failed while the agent of its node was away. The failure was reported only after the other ranks
    # hung because of it.
    ({0: ("hung", 30, 60), 1: ("hung", 30, 60), 2: ("own error", 30, 0)}, ("RankFailed", 2)),
    # The watchdog aborted a hung rank, and the abort made other ranks fail.
    ({2: ("hung", 30, 0), 0: ("silent error", 30, 0.1), 1: ("segfault", 30, -1)}, ("RankHung", 2)),
]  # fmt: skip


@pytest.mark.parametrize(("ends", "expected"), [case for case in CAUSES if case[1]])
def test_cause_is_blamed_instead_of_its_echo(ends: Ends, expected: tuple[str, int]) -> None:
    cluster = running()
    ended(cluster, ends)
    last = final_restart(cluster)
    assert last is not None and (last.reason, last.rank) == expected
    assert last.counted


def test_permanent_error_precedes_all_other_causes() -> None:
    cluster = running()
    ended(cluster, next(ends for ends, expected in CAUSES if expected is None))
    cluster.settle()
    assert cluster.job.status.reason == "DataError"


@pytest.mark.parametrize(
    ("ends", "offender"),
    [
        ({0: ("hung", 30, 0), 1: ("hung", 30, 0), 2: ("hung", 30, 0)}, None),
        ({0: ("hung in a collective", 30, 0), 1: ("lost", 30, 0.1), 2: ("lost", 30, 0.1)}, None),
        ({0: ("hung in a collective", 30, 0), 1: ("hung in a collective", 30, 0), 2: ("hung", 29, 0)}, 2),
        ({0: ("hung", 31, 0), 1: ("hung", 31, 0), 2: ("hung", 30, 0)}, 2),
        ({0: ("hung", 31, 0)}, 0),
        ({1: ("done", 30, 0), 0: ("hung", 30, 60), 2: ("hung", 30, 60)}, None),
        ({1: ("done", 30, 0), 0: ("lost", 30, 0.1)}, None),
        ({0: ("never ended", 30, 0)}, None),
    ],
)
def test_node_is_blamed_only_if_its_own_rank_is_at_fault(ends: Ends, offender: int | None) -> None:
    cluster = running()
    nodes = {number: cluster.pods[f"job-worker-{number}"].node for number in range(3)}
    ended(cluster, ends)
    final_restart(cluster)
    assert [one.node for one in cluster.job.status.offenders] == (
        [] if offender is None else [nodes[offender]]
    )


def test_hang_waits_for_the_watchdogs_of_other_ranks() -> None:
    """The watchdog of rank 0, which waits in a collective, reports first. The job waits until the watchdog
    of rank 2 reports a hang outside a collective, and blames rank 2.
    """
    cluster = running()
    ended(cluster, {0: ("hung in a collective", 30, 0)})
    cluster.settle()
    assert cluster.job.status.restarts.last is None
    cluster.wait(1)
    ended(cluster, {1: ("lost", 30, 0), 2: ("hung in its data", 30, 0)})
    last = final_restart(cluster)
    assert last is not None and (last.reason, last.rank) == ("RankHung", 2)
    assert "its main thread is at /app/data.py:31 in main" in last.message.lower().replace(
        "main thread is", "main thread is"
    )


def test_hang_without_a_watchdog_report_names_the_running_ranks() -> None:
    """The collectives of ranks 0 and 1 time out, and rank 2 still runs. The message advises a check of rank
    2.
    """
    cluster = running()
    ended(cluster, {0: ("timed out", 30, 0), 1: ("timed out", 30, 0.1)})
    last = final_restart(cluster)
    assert last is not None and (last.reason, last.rank) == ("RankFailed", 0)
    assert "Still running: rank 2. Check there" in last.message


def test_exit_code_of_a_finished_rank_is_awaited() -> None:
    """The main program of rank 1 returns, and rank 0 loses its peer before the exit code of rank 1 arrives.
    The job waits for this exit code, and blames rank 1.
    """
    cluster = running()
    now = cluster.now.timestamp()
    cluster.rank(1, finished=now)
    ended(cluster, {0: ("lost", 30, 0)})
    cluster.settle().wait(2).settle()
    assert cluster.job.status.restarts.last is None
    ended(cluster, {1: ("done", 30, 0)})
    last = final_restart(cluster)
    assert last is not None and (last.reason, last.rank) == ("EndedEarly", 1)


# Tests of the end of a pod, which affects its own ranks and those of other pods


@pytest.mark.parametrize("fate", ["lost", "lost 1", "silent error", "own error", "segfault"])
@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"deleting": True}, "PodDeleted"),
        ({"deleting": True, "disruption": "EvictionByEvictionAPI"}, "PodEvicted"),
        ({"phase": "Failed", "exit_code": 137, "termination_reason": "OOMKilled"}, "ContainerOutOfMemory"),
        ({"phase": "Failed", "exit_code": 137}, "PodLost"),
    ],
)
def test_end_of_a_pod_explains_ranks_of_other_pods(facts: dict[str, Any], reason: str, fate: str) -> None:
    cluster = running()
    cluster.pod("job-worker-2", **facts)
    ended(cluster, {0: (fate, 30, 0), 1: (fate, 30, 0.1)})
    last = final_restart(cluster)
    assert last is not None and (last.reason, last.pod) == (reason, "job-worker-2")


@pytest.mark.parametrize("fate", ["lost 1", "silent error", "own error", "saved", "done"])
def test_exit_code_of_a_rank_in_a_deleted_pod_is_ignored(fate: str) -> None:
    cluster = running()
    begin = cluster.now.timestamp()
    cluster.pod("job-worker-2", deleting=True, leaving_since=begin, leaves_by=begin + 30)
    ended(cluster, {2: (fate, 30, 1), 0: ("lost", 30, 1.1)})
    last = final_restart(cluster)
    assert last is not None and (last.reason, last.counted) == ("PodDeleted", False)


def test_error_before_the_pod_deletion_counts() -> None:
    cluster = running()
    begin = cluster.now.timestamp()
    cluster.pod("job-worker-2", deleting=True, leaving_since=begin + 10, leaves_by=begin + 40)
    ended(cluster, {0: ("own error", 30, 0)})
    last = final_restart(cluster)
    assert last is not None and (last.reason, last.rank) == ("RankFailed", 0)


def test_launcher_with_the_exit_code_of_its_ranks_is_not_the_cause() -> None:
    """The agent of a pod is away, so the launcher ends the pod with the exit code of its ranks, 76. The
    rank that ended early is blamed.
    """
    cluster = running()
    pod = cluster.pods["job-worker-2"]
    cluster.pod("job-worker-2", phase="Failed", exit_code=76)
    cluster.views[pod.uid] = replace(cluster.views[pod.uid], agent_away=True, launcher_connected=False)
    ended(cluster, {1: ("done", 30, 0), 0: ("lost", 30, 0.1)})
    last = final_restart(cluster)
    assert last is not None and (last.reason, last.rank) == ("EndedEarly", 1)


def test_node_loss_precedes_an_early_end() -> None:
    cluster = running()
    node = cluster.pods["job-worker-2"].node
    assert node is not None
    ended(cluster, {1: ("done", 30, 0), 0: ("lost", 30, 0.1)})
    cluster.wait(7).silence(node, 7.0, agent_ready=False)
    last = final_restart(cluster)
    assert last is not None and last.reason == "NodeLost"


# Tests of properties

SLOT = Slot(0, "worker", 0, "job-worker-0", 0, 1, 0)
OWN = ("own error", "silent error", "killed", "oom", "segfault", "hung in its data", "never ended", "no data")
ECHOES = ("lost", "lost 1", "lost 134", "timed out", "hung in a collective")


def made(rank: int, fate: str, step: int, after: float) -> Fault:
    view = RankView(rank, "EXITED", step=step, time=1e9, ended=1e9 + 100 + after, **FATE[fate])
    found = rank_fault(view, SLOT, f"node-{rank}", 60, leaving=False)
    assert found is not None
    return found


ends = st.tuples(st.integers(30, 31), st.floats(0, 60))


@given(
    own=st.lists(st.tuples(st.sampled_from(OWN), ends), min_size=1, max_size=3),
    echoes=st.lists(st.tuples(st.sampled_from(ECHOES), ends), max_size=6),
    early=st.booleans(),
    order=st.randoms(use_true_random=False),
)
def test_echoes_never_change_the_blamed_rank(own: Any, echoes: Any, early: bool, order: Any) -> None:
    causes = [made(rank, fate, *end) for rank, (fate, end) in enumerate(own)]
    ended_early = [EarlyEnd(9, "node-9", "job-worker-9", "worker", 30, None, 1e9)] if early else []
    alone = primary(causes, ended_early)
    faults = causes + [made(10 + rank, fate, *end) for rank, (fate, end) in enumerate(echoes)]
    order.shuffle(faults)
    found = primary(faults, ended_early)
    assert alone is not None and found is not None
    assert (found.reason, found.rank) == (alone.reason, alone.rank)


@given(
    echoes=st.lists(st.tuples(st.sampled_from((*ECHOES, "hung")), ends), min_size=1, max_size=6),
    order=st.randoms(use_true_random=False),
)
def test_echoes_never_change_the_blamed_early_end(echoes: Any, order: Any) -> None:
    early = [EarlyEnd(number, "n", "p", "worker", 29 + number, None, 1e9 + 100) for number in (1, 2)]
    faults = [made(10 + rank, fate, *end) for rank, (fate, end) in enumerate(echoes)]
    order.shuffle(faults)
    found = primary(faults, early)
    assert found is not None and (found.reason.name, found.rank, found.step) == ("EndedEarly", 1, 30)
