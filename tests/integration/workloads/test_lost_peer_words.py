"""Tests that the operator recognises the texts with which gloo and c10d report a lost peer. Such an error
is only a consequence of another rank's failure.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from tests.ports import free_ports

from convoy_controllers.workers.stderr import lost_peer, timed_out

RANKS = """
import datetime, json, os, socket, sys, tempfile, time
import torch
import torch.distributed as dist

def join(rank, address, seconds=20.0):
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{address}", rank=rank, world_size=2,
                            timeout=datetime.timedelta(seconds=seconds))
    dist.all_reduce(torch.ones(4))

def steps(rank, address, end):
    join(rank, address)
    if rank == 1:
        end()
    for _ in range(50):
        dist.all_reduce(torch.ones(4))

def ends(rank, address):
    steps(rank, address, lambda: sys.exit(0))

def ends_at_once(rank, address):
    steps(rank, address, lambda: os._exit(0))

def does_not_come(rank, address):
    join(rank, address, 0.7)
    dist.all_reduce(torch.ones(4)) if rank == 0 else time.sleep(5)

def barrier(rank, address):
    join(rank, address)
    dist.monitored_barrier(timeout=datetime.timedelta(seconds=0.5)) if rank == 0 else time.sleep(5)

def key_that_is_not_set(rank, address):
    dist.TCPStore("127.0.0.1", address, is_master=True, timeout=datetime.timedelta(seconds=0.5)).get("key")

def store_that_is_gone(rank, address):
    dist.TCPStore("127.0.0.1", address, timeout=datetime.timedelta(seconds=0.5))

def port_that_is_taken(rank, address):
    listener = socket.create_server(("127.0.0.1", address))
    dist.TCPStore("127.0.0.1", address, is_master=True, timeout=datetime.timedelta(seconds=1))

def server_of_somebody(rank, address):
    socket.create_connection(("127.0.0.1", address))

def wrapped(rank, address):
    try:
        ends(rank, address)
    except Exception as error:
        raise ValueError("training failed") from error

ALONE = (key_that_is_not_set, store_that_is_gone, port_that_is_taken, server_of_somebody)
found = {}
for scene in (ends, ends_at_once, does_not_come, barrier, wrapped, *ALONE):
    address, ranks = int(sys.argv.pop()), {}
    out = tempfile.TemporaryFile()
    for rank in (0,) if scene in ALONE else (1, 0):
        if not (pid := os.fork()):
            os.dup2(out.fileno() if rank == 0 else os.open(os.devnull, os.O_WRONLY), 2)
            try:
                scene(rank, address)
            except BaseException:
                sys.excepthook(*sys.exc_info())
                sys.stderr.flush()
                os._exit(1)
            os._exit(0)
        ranks[rank] = pid
    os.waitpid(ranks.pop(0), 0)
    for pid in ranks.values():
        os.kill(pid, 9)
        os.waitpid(pid, 0)
    out.seek(0)
    found[scene.__name__] = out.read().decode()[-2048:]
print(json.dumps(found))
"""

LOST = ("ends", "ends_at_once", "wrapped", "store_that_is_gone")
LATE = ("does_not_come", "barrier", "key_that_is_not_set")
OWN = ("port_that_is_taken", "server_of_somebody")


@pytest.fixture(scope="module")
def words() -> dict[str, str]:
    """The last lines of rank 0's stderr, by scene."""
    command = [sys.executable, "-c", RANKS, *map(str, free_ports(len(LOST + LATE + OWN)))]
    run = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=120)
    found: dict[str, str] = json.loads(run.stdout)
    assert found.keys() == {*LOST, *LATE, *OWN} and all(found.values())
    return found


@pytest.mark.parametrize("scene", [*LOST, *LATE])
def test_an_error_of_a_lost_peer_is_recognised(words: dict[str, str], scene: str) -> None:
    assert lost_peer(words[scene]), words[scene]


@pytest.mark.parametrize("scene", LATE)
def test_a_timeout_caused_by_a_peer_is_recognised(words: dict[str, str], scene: str) -> None:
    assert timed_out(words[scene]), words[scene]


@pytest.mark.parametrize("scene", OWN)
def test_an_error_of_the_rank_itself_is_not_a_lost_peer(words: dict[str, str], scene: str) -> None:
    assert not lost_peer(words[scene]), words[scene]
