from __future__ import annotations

from typing import Any

import pytest

from convoy_commands.launch import CONVOY_VARIABLES, read_launch
from convoy_workloads.launcher.rank_env import (
    Container,
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
    facts: dict[str, Any] = {"cpus": 8, "interface": "eth0", "library": "/lib"}
    facts |= {name: more.pop(name) for name in facts if name in more}
    return rank_environment(base, parse_assignment(MESSAGE), local_rank, Container(**facts), "/b", **more)


def test_a_rank_receives_the_variables_of_torchrun() -> None:
    found = environment({"HOME": "/home"})
    message = {
        "RANK": "7", "LOCAL_RANK": "1", "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "3",
        "MASTER_ADDR": "10.0.0.9", "MASTER_PORT": "4242", "CONVOY_INCARNATION": "7", "CONVOY_JOB": "ml/gpt",
        "OMP_NUM_THREADS": "4", "GLOO_SOCKET_IFNAME": "eth0", "PYTHONPATH": "/lib", "HOME": "/home",
    }  # fmt: skip
    assert found.items() >= message.items()


def test_a_rank_finds_the_key_of_its_incarnation_beside_the_socket() -> None:
    socket = "/var/run/convoy/agent.sock"
    plan = parse_assignment({**MESSAGE, "keyed": True, "jobKeyed": True})
    found = rank_environment({"CONVOY_SOCKET": socket}, plan, 1, Container(8, "", "/lib"), "/b")
    assert found["CONVOY_KEY_FILE"] == "/var/run/convoy/incarnation.key"
    assert found["CONVOY_JOB_KEY_FILE"] == "/var/run/convoy/job.key"
    without = environment({"CONVOY_SOCKET": socket})
    assert not {"CONVOY_KEY_FILE", "CONVOY_JOB_KEY_FILE"} & set(without), "the agent has no key"


def test_user_variables_are_kept_except_those_of_the_rank() -> None:
    base = {"OMP_NUM_THREADS": "3", "GLOO_SOCKET_IFNAME": "ib0", "PYTHONPATH": "/mine", "RANK": "99"}
    found = environment(base)
    assert found["OMP_NUM_THREADS"] == "3"
    assert found["GLOO_SOCKET_IFNAME"] == "ib0"
    assert found["PYTHONPATH"] == "/lib:/mine"
    assert found["RANK"] == "7"


def test_a_torchrun_below_the_command_treats_each_rank_as_a_node() -> None:
    found = environment({"PET_NNODES": "1", "PET_NPROC_PER_NODE": "4"})
    assert {name: found[name] for name in CONVOY_VARIABLES} == {
        "PET_NNODES": "8", "PET_NODE_RANK": "7", "PET_MASTER_ADDR": "10.0.0.9", "PET_MASTER_PORT": "4242",
        "PET_RDZV_ID": "u-1",
    }  # fmt: skip
    assert found["PET_NPROC_PER_NODE"] == "4"


def test_an_incarnation_is_a_restart_of_torchruns() -> None:
    found = environment({})
    assert (found["TORCHELASTIC_RESTART_COUNT"], found["TORCHELASTIC_RUN_ID"]) == ("6", "u-1")
    assert found["TORCHELASTIC_USE_AGENT_STORE"] == "False"
    assert (found["GROUP_WORLD_SIZE"], found["ROLE_NAME"], found["ROLE_RANK"]) == ("4", "default", "7")


@pytest.mark.parametrize(
    ("words", "base", "chosen"),
    [
        ("torchrun --role=actor --rdzv-id=r --max-restarts=3 t", {},
         {"ROLE_NAME": "actor", "TORCHELASTIC_RUN_ID": "r", "TORCHELASTIC_MAX_RESTARTS": "3"}),
        ("torchrun --virtual-local-rank t", {}, {"LOCAL_RANK": "0", "CUDA_VISIBLE_DEVICES": "1"}),
        ("torchrun --virtual-local-rank t", {"CUDA_VISIBLE_DEVICES": "4, 6"}, {"CUDA_VISIBLE_DEVICES": "6"}),
        ("torchrun t", {"CUDA_VISIBLE_DEVICES": "4,6"}, {"CUDA_VISIBLE_DEVICES": "4,6", "LOCAL_RANK": "1"}),
        ("deepspeed t", {}, {"CROSS_RANK": "3", "CROSS_SIZE": "4", "LOCAL_SIZE": "2"}),
    ],
)  # fmt: skip
def test_launcher_options_set_variables(words: str, base: dict[str, str], chosen: dict[str, str]) -> None:
    assert environment(base, launch=read_launch(words.split(), base)).items() >= chosen.items()


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
def test_the_network_interface_is_that_of_the_default_route(route: str, route6: str, interface: str) -> None:
    assert default_interface(route, route6) == interface


@pytest.mark.parametrize(
    ("affinity", "cpu_max", "cpus"),
    [(8, "max 100000", 8), (8, "250000 100000", 2), (8, "50000 100000", 1), (2, "800000 100000", 2),
     (4, "", 4), (4, "junk 1", 4), (4, "100 0", 4)],
)  # fmt: skip
def test_the_quota_caps_the_cores(affinity: int, cpu_max: str, cpus: int) -> None:
    assert available_cpus(affinity, cpu_max) == cpus


@pytest.mark.parametrize(
    ("value", "own"),
    [
        ("$(RANK)", "7"),
        ("tcp://$(MASTER_ADDR):$(MASTER_PORT)", "tcp://10.0.0.9:4242"),
        ("$(WORLD_SIZE)/$(LOCAL_WORLD_SIZE) $(GROUP_RANK)", "8/2 3"),
        ("$(CONVOY_JOB)", "ml/gpt"),
        # The kubelet has already expanded the variables that it knows. All other text stays unchanged.
        ("$(date) $RANK ${RANK} $$ $(RANK", "$(date) $RANK ${RANK} $$ $(RANK"),
    ],
)
def test_variables_of_the_template_refer_to_the_ranks_own(value: str, own: str) -> None:
    assert environment({"MINE": value})["MINE"] == own


def test_references_in_parameters_are_not_expanded() -> None:
    assert environment({"CONVOY_PARAMS": '{"a": "$(RANK)"}'})["CONVOY_PARAMS"] == '{"a": "$(RANK)"}'
