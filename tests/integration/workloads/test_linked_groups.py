"""Tests of plain DistributedDataParallel on emulated links, with two ranks and a clock of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).parent / "programs" / "linked.py"
STEPS, GRADIENT = 3, 64 * 64 * 4
"""Number of steps, and bytes of the gradients of one step."""


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Return the report of each rank, by name of the links."""
    folder = tmp_path_factory.mktemp("rendezvous")
    found = [
        subprocess.Popen([sys.executable, str(PROGRAM), str(rank), str(folder)], stdout=subprocess.PIPE)
        for rank in (0, 1)
    ]
    try:
        return [json.loads(one.communicate(timeout=120)[0]) for one in found]
    finally:
        for one in found:
            one.kill()


def test_plain_ddp_is_slowed_by_the_asked_factor_and_computes_the_same(ranks: list[dict[str, Any]]) -> None:
    for one in ranks:
        assert one["fast"]["sent"] == one["slow"]["sent"] == STEPS * GRADIENT, "an all_reduce of two ranks"
        assert one["fast"]["seconds"] == STEPS * GRADIENT / 1_048_576
        assert one["slow"]["seconds"] == 4 * one["fast"]["seconds"]
        assert one["slow"]["weights"] == one["fast"]["weights"] == one["plain"]["weights"]


def test_each_second_on_the_links_is_waited_for(ranks: list[dict[str, Any]]) -> None:
    for one in ranks:
        assert 0 < one["slow"]["slept"] == one["slow"]["allSeconds"]
        assert one["plain"]["slept"] == 0


def test_the_latency_counts_for_both_steps_of_the_ring(ranks: list[dict[str, Any]]) -> None:
    for one in ranks:
        assert one["far"]["seconds"] - one["fast"]["seconds"] == STEPS * 2 * 0.125


@pytest.mark.parametrize(
    "operation",
    [
        "all_gather",
        "all_gather_single",
        "all_reduce",
        "all_to_all_single",
        "barrier",
        "broadcast",
        "control_group",
        "gather",
        "objects",
        "reduce",
        "reduce_scatter_single",
        "scatter",
        "send_and_receive",
    ],
)
def test_an_operation_has_its_usual_result(ranks: list[dict[str, Any]], operation: str) -> None:
    assert [one["fast"]["operations"][operation] for one in ranks] == [True, True]
