from __future__ import annotations

import pytest

from convoy_workloads.launcher import orphans
from convoy_workloads.launcher.orphans import describe, is_foreign, select
from convoy_workloads.launcher.proc import Process

POD = [b"PATH=/bin", b"CONVOY_SOCKET=/run/convoy/agent.sock"]
RANK = [*POD, b"CONVOY_INCARNATION=3"]
HERE = "0::/kubepods/pod1/worker\n"


@pytest.mark.parametrize(
    ("environment", "cgroup", "foreign"),
    [
        pytest.param(RANK, HERE, False, id="a rank's"),
        pytest.param([*POD, b"CONVOY_ZYGOTE_FD=7"], HERE, False, id="forked from a warm rank"),
        pytest.param(POD, HERE, True, id="kubectl exec"),
        pytest.param([], HERE, False, id="a daemon that has cleared its environment"),
        pytest.param([b"", b"ray::IDLE"], HERE, False, id="one that has overwritten it by a title"),
        pytest.param([], "0::/kubepods/pod1/debugger\n", True, id="a debug container"),
        pytest.param(RANK, "0::/kubepods/pod1/debugger\n", True, id="one with a rank's environment"),
        pytest.param(RANK, "0::/kubepods/pod1/worker2\n", True, id="a container of a like name"),
        pytest.param(RANK, "0::/kubepods/pod1/worker/own\n", False, id="a cgroup that a rank has made"),
        pytest.param([], "", True, id="it has just ended"),
    ],
)
def test_foreign_children_of_pid_1_are_distinguished_from_ranks(
    environment: list[bytes], cgroup: str, foreign: bool
) -> None:
    assert is_foreign(environment, cgroup, HERE) is foreign


@pytest.mark.parametrize(
    ("cgroup", "foreign"), [("0::/\n", False), ("0::/../debugger\n", True), ("0::/own\n", False)]
)
def test_in_a_cgroup_namespace_the_container_is_the_root(cgroup: str, foreign: bool) -> None:
    assert is_foreign([], cgroup, "0::/\n") is foreign


@pytest.mark.parametrize("unified", ["", "0::/\n", "0::/system.slice/containerd.service\n"])
def test_all_hierarchies_of_cgroup_v1_are_compared(unified: str) -> None:
    own = "4:memory:/pod1/worker\n1:name=systemd:/pod1/worker\n" + unified
    assert not is_foreign(RANK, own, own)
    assert is_foreign(RANK, own.replace("worker", "debugger"), own)


TREE = {
    one.pid: one
    for one in (
        Process(1, "launcher", "S", 0, 1, 1),
        Process(2, "zygote", "S", 1, 1, 1),
        Process(3, "gcc", "S", 2, 1, 1),  # The zygote started this process during its imports.
        Process(4, "worker", "S", 2, 4, 4),  # This process was forked from the zygote.
        Process(5, "tracker", "S", 1, 5, 5),
        Process(6, "below it", "S", 5, 6, 6),
        Process(7, "nohup", "S", 1, 7, 7),
        Process(8, "below it", "S", 7, 8, 8),
        Process(20, "sh", "S", 0, 20, 20),  # This process was started by `kubectl exec`.
        Process(21, "vim", "S", 20, 20, 20),
    )
}


@pytest.mark.parametrize(
    ("foreign", "found"), [(set(), [4, 5, 6, 7, 8]), ({7}, [4, 5, 6]), ({2, 5}, [4, 7, 8])]
)
def test_orphans_are_the_launchers_descendants_outside_its_ranks(foreign: set[int], found: list[int]) -> None:
    assert select(TREE, 1, foreign.__contains__) == found


def test_the_log_names_a_few_of_them_on_one_line() -> None:
    assert describe({7: b"sleep\x001001"}) == "7 (sleep 1001)"
    many = describe(dict.fromkeys(range(1, 9), b"python\x00-c\x00import time\n\x1b[2J" + b"x" * 500))
    assert many.endswith(" and 3 more") and many.count("(python -c import time ?[2Jxxx") == 5
    assert len(many) < 600 and many.isprintable()


async def test_the_wait_for_an_unkillable_process_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    stuck = {999_999_999: Process(999_999_999, "nfs", "D", 1, 5, 5)}
    monkeypatch.setattr(orphans, "find", lambda _: stuck)
    reports: list[str] = []
    await orphans.kill_all((), reports.append, 0.05)
    assert [report.partition(":")[0] for report in reports] == [
        "killed processes that earlier ranks had left running",
        "WARNING",
    ]
    assert "999999999 (nfs)" in reports[1]


async def test_a_process_killed_with_its_rank_is_not_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    dying = [{999_999_999: Process(999_999_999, "worker", "R", 1, 5, 5)}, {}]
    monkeypatch.setattr(orphans, "find", lambda _: dying.pop(0))
    reports: list[str] = []
    await orphans.kill_all({5}, reports.append, 5.0)
    assert not reports and not dying


async def test_a_daemon_that_forks_while_proc_is_read_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    daemon, child = (Process(pid, "daemon", "S", 1, pid, pid) for pid in (999_999_998, 999_999_999))
    scans = [{daemon.pid: daemon}, {}, {child.pid: child}, {}, {}]
    monkeypatch.setattr(orphans, "find", lambda _: scans.pop(0))
    reports: list[str] = []
    await orphans.kill_all((), reports.append, 5.0)
    assert not scans and "999999998 (daemon), 999999999 (daemon)" in reports[0]
