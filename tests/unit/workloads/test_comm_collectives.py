"""Tests of counted collectives on ranks that are threads."""

from __future__ import annotations

import torch

from convoy_workloads.comm.collectives import Collectives, Traffic

from .gloo_threads import run_ranks


def test_calls_bytes_and_seconds_are_counted() -> None:
    times = iter(range(0, 100, 3))
    counted = Collectives(lambda tensor: tensor.mul_(2), rank=0, world=2, clock=lambda: float(next(times)))
    tensor = torch.ones(10, dtype=torch.float64)
    counted.all_reduce(tensor)
    counted.all_reduce(tensor[:3].bfloat16())
    assert counted.traffic == Traffic(calls=2, payload_bytes=86, seconds=6.0)
    assert tensor.tolist() == [2.0] * 10


def test_a_rank_that_is_alone_calls_nothing() -> None:
    alone = Collectives(lambda _: 1 / 0)
    alone.all_reduce(torch.ones(3))
    assert alone.gather_bytes([b"a", b""]) == [b"a", b""]
    assert alone.mean([2.0]) == [2.0] and alone.traffic == Traffic()


def test_messages_of_any_size_reach_all_ranks_in_order() -> None:
    sent = [[b"first", b""], [], [b"\x00\xff" * 1000]]
    found = run_ranks(3, lambda collectives: collectives.gather_bytes(sent[collectives.rank]))
    assert found == [[b"first", b"", b"\x00\xff" * 1000]] * 3
    assert run_ranks(2, lambda collectives: collectives.gather_bytes([])) == [[], []]
    assert run_ranks(2, lambda collectives: collectives.mean([collectives.rank, 4.0])) == [[0.5, 4.0]] * 2
