from __future__ import annotations

from typing import Any

import pytest

from convoy_workloads.launcher.rank_env import (
    available_cpus,
    default_interface,
    parse_assignment,
    rank_environment,
)

MESSAGE: dict[str, Any] = {
    "type": "assignment", "incarnation": 7, "slot": 3, "rankOffset": 6, "processes": 2, "worldSize": 8,
    "masterAddr": "10.0.0.9", "masterPort": 4242, "hangSeconds": 60, "command": ["python", "t.py"],
    "role": "worker", "replica": 3, "job": "ml/gpt", "jobUid": "u-1", "slots": 4,
}  # fmt: skip


def environment(base: dict[str, str], local_rank: int = 1, **more: Any) -> dict[str, str]:
    facts = {"cpus": 8, "interface": "eth0", "beat": "/b", "library": "/lib"} | more
    return rank_environment(base, parse_assignment(MESSAGE), local_rank, **facts)


def test_a_rank_is_told_what_torchrun_would_tell_it() -> None:
    found = environment({"HOME": "/home"})
    told = {
        "RANK": "7", "LOCAL_RANK": "1", "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "3",
        "MASTER_ADDR": "10.0.0.9", "MASTER_PORT": "4242", "CONVOY_INCARNATION": "7", "CONVOY_JOB": "ml/gpt",
        "OMP_NUM_THREADS": "4", "GLOO_SOCKET_IFNAME": "eth0", "PYTHONPATH": "/lib", "HOME": "/home",
    }  # fmt: skip
    assert found.items() >= told.items()


def test_what_the_user_set_stays_except_the_ranks_own() -> None:
    base = {"OMP_NUM_THREADS": "3", "GLOO_SOCKET_IFNAME": "ib0", "PYTHONPATH": "/mine", "RANK": "99"}
    found = environment(base)
    assert found["OMP_NUM_THREADS"] == "3"
    assert found["GLOO_SOCKET_IFNAME"] == "ib0"
    assert found["PYTHONPATH"] == "/lib:/mine"
    assert found["RANK"] == "7"


def test_every_rank_gets_a_thread_and_no_interface_is_guessed() -> None:
    found = environment({}, cpus=1, interface="")
    assert found["OMP_NUM_THREADS"] == "1"
    assert "GLOO_SOCKET_IFNAME" not in found


@pytest.mark.parametrize(
    "change",
    [{"command": []}, {"processes": 0}, {"worldSize": 7}, {"incarnation": "x"}, {"masterPort": None}],
    ids=str,
)
def test_an_assignment_that_contradicts_itself_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError)):
        parse_assignment({**MESSAGE, **change})


ROUTE = """Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
eth1\t0000FEA9\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0
eth0\t00000000\t0101A8C0\t0003\t0\t0\t0\t00000000\t0\t0\t0
"""
ZERO = "0" * 32
ROUTE6 = f"""{ZERO} 00 {ZERO} 00 fe800000000000000000000000000001 00000400 00000001 00000000 00000003 net1
{ZERO} 00 {ZERO} 00 {ZERO} ffffffff 00000001 00000000 00200200       lo
"""


@pytest.mark.parametrize(
    ("route", "route6", "interface"),
    [(ROUTE, "", "eth0"), ("", ROUTE6, "net1"), (ROUTE.rpartition("eth0")[0], "", ""), ("", "", "")],
)
def test_the_interface_is_that_of_the_default_route(route: str, route6: str, interface: str) -> None:
    assert default_interface(route, route6) == interface


@pytest.mark.parametrize(
    ("affinity", "cpu_max", "cpus"),
    [(8, "max 100000", 8), (8, "250000 100000", 2), (8, "50000 100000", 1), (2, "800000 100000", 2),
     (4, "", 4), (4, "junk 1", 4), (4, "100 0", 4)],
)  # fmt: skip
def test_the_quota_caps_the_cores(affinity: int, cpu_max: str, cpus: int) -> None:
    assert available_cpus(affinity, cpu_max) == cpus
