"""Tests of a replica with several ranks: the bits are those of one rank, and a lost rank ends the others."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from tests.ports import free_port
from tests.unit.workloads import rank_processes

from convoy_workloads.engines.lm.engine import LanguageModel
from convoy_workloads.engines.lm.params import Params
from convoy_workloads.engines.lm.pipeline import layers_of
from convoy_workloads.runtime.heartbeat import DRAINING, SERVING, STARTED, HeartbeatWriter, read
from convoy_workloads.serving.group import Group
from convoy_workloads.serving.protocol import ModelError, Prompt, Sampling

PARAMS = Params(context=64, layers=3, width=32, heads=2, rows=8, max_sequences=3, kv_tokens=64, block=4)
PROMPTS = [Prompt(one, tuple(range(one, one + 9)), Sampling(20, one, logprobs=1)) for one in range(4)]


def run(engine: LanguageModel) -> list[tuple[int, int, float]]:
    """Return the tokens of all prompts, in the order in which they are generated."""
    found: list[tuple[int, int, float]] = []
    waiting = list(PROMPTS)
    counts = dict.fromkeys(range(len(PROMPTS)), 0)
    while len(found) < 80:
        while waiting and engine.admit(waiting[0]):
            waiting.pop(0)
        engine.idle()
        for token in engine.step():
            found.append((token.sequence, token.token, token.logprob))
            counts[token.sequence] += 1
            if counts[token.sequence] == 20:
                engine.cancel(token.sequence)
    return found


def rank(number: int, world: int, port: int, folder: str, case: str) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo")
    key = Path(folder) / f"key-{number}"
    key.write_text("ab" * 32)
    os.environ["CONVOY_KEY_FILE"] = str(key)
    torch.set_num_threads(1)
    engine = LanguageModel(PARAMS, None, torch.device("cpu"), Group(number, world))
    beat = Path(folder) / f"beat-{number}"
    beat.touch()
    if number:
        if case == "lost follower":
            engine.load(lambda: None)
            os._exit(9)
        try:
            engine.follow(HeartbeatWriter(str(beat), joined=True))
        except RuntimeError as error:
            (Path(folder) / f"error-{number}").write_text(str(error))
        return
    if case == "late":
        while read(str(Path(folder) / "beat-1")).state != STARTED:
            time.sleep(0.01)
    engine.load(lambda: None)
    if case == "lost follower":
        with pytest.raises(RuntimeError):
            engine.self_test()
        return
    engine.self_test()
    assert read(str(Path(folder) / "beat-1")).state == SERVING
    if case == "lost front":
        os._exit(0)
    found = run(engine)
    if case == "late":
        engine.load(lambda: None)  # A reload gives the same model, and an empty cache.
        engine.self_test()
        assert run(engine) == found
    assert engine._scheduler.preemptions > 0
    (Path(folder) / "found").write_text(repr(found))
    engine.close()


def spawn(world: int, folder: Path, case: str) -> None:
    port = free_port()
    processes = [
        rank_processes.context().Process(target=rank, args=(number, world, port, str(folder), case))
        for number in range(world)
    ]
    for one in processes:
        one.start()
    try:
        for one in processes:
            one.join(120)
    finally:
        for one in processes:
            one.kill()
    expected = [9 if case == "lost follower" and number else 0 for number in range(world)]
    assert [one.exitcode for one in processes] == expected


@pytest.fixture(scope="module")
def alone() -> str:
    engine = LanguageModel(PARAMS, None, torch.device("cpu"))
    engine.load(lambda: None)
    engine.self_test()
    return repr(run(engine))


@pytest.mark.parametrize(("world", "case"), [(2, "late"), (3, "")])
def test_several_ranks_give_the_bits_of_one(world: int, case: str, alone: str, tmp_path: Path) -> None:
    spawn(world, tmp_path, case)
    assert (tmp_path / "found").read_text() == alone
    for number in range(1, world):
        assert read(str(tmp_path / f"beat-{number}")).state == DRAINING


def test_a_rank_ends_when_the_front_is_lost(tmp_path: Path) -> None:
    spawn(2, tmp_path, "lost front")
    assert (tmp_path / "error-1").read_text()
    assert read(str(tmp_path / "beat-1")).state == SERVING


def test_the_front_fails_when_a_rank_is_lost(tmp_path: Path) -> None:
    spawn(2, tmp_path, "lost follower")


def test_the_blocks_are_shared_out_in_order() -> None:
    assert [layers_of(Group(one, 3), 7) for one in range(3)] == [range(2), range(2, 4), range(4, 7)]
    with pytest.raises(ModelError, match="4 pods cannot share a model of 3 transformer blocks"):
        layers_of(Group(0, 4), 3)


def test_one_rank_needs_no_group() -> None:
    assert not dist.is_initialized() and threading.active_count() >= 1
    engine = LanguageModel(PARAMS, None, torch.device("cpu"))
    assert engine.usage().running == 0
    engine.load(lambda: None)
    engine.idle()
    engine.close()
