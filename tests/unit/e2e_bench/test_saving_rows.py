"""Tests of rows about saves: ratios within a round, and rows that could not be measured."""

from __future__ import annotations

import pytest
from e2e.bench.tiercheck.saving import rows
from e2e.bench.tiercheck.saving.libraries import DLROVER, RESILIENCY
from e2e.bench.tiercheck.saving.memory import ALL, CPU, EARLY, FULL, LATE, Measurements
from e2e.bench.tiercheck.saving.peer import Transfers
from e2e.bench.tiercheck.saving.save_methods import COPY, OURS, PROCESS, SYNC, THREAD
from e2e.bench.tiercheck.saving.steps import EACH, PLAIN_JOURNAL, SPARSE, WITHOUT
from e2e.bench.tiercheck.saving.upload import Uploads

from convoy_workloads.bench.figures import Figures


def found(**changes):
    values = {
        "bytes": [1e9],
        COPY: [0.5, 1.0, 2.0],
        OURS: [0.5, 1.1, 2.4],
        f"first {OURS}": [0.6],
        SYNC: [5.0, 5.0, 5.0],
        THREAD: [5.0, 11.0],
        PROCESS: [2.0, 2.0],
        DLROVER: [0.5, 1.0, 2.0],
        f"first {DLROVER}": [9.0],
        "restore from memory": [1.0],
        "copy at the restore": [0.5],
        "fresh copy at the restore": [4.0],
        CPU: [0.3, 0.1, 0.2],
        FULL: [2e9],
        ALL: [3e9],
        "step": [0.1],
        "step with its gradients written": [0.3],
        "segment": [0.05],
        "segment bytes": [2.5e8],
        "full save bytes": [1e9, 1e9],
    }
    return Measurements(
        {**values, **changes}, {RESILIENCY: "it is too old", "segment bytes of bf16 values": "why"}
    )


def row(given, name):
    figures = Figures()
    rows.add_memory_rows(given, figures)
    return figures.row(name)


@pytest.mark.parametrize(
    ("name", "value", "met", "count"),
    [
        ("full save, stall / copy", 1.1, True, 3),
        ("full save, stall / async_save thread", 0.1, True, 2),
        (f"full save, stall / {DLROVER}", 1.1, False, 3),
        (f"first full save, stall / first {DLROVER}", 0.0667, True, 1),
        ("restore from local memory / copy", 2.0, None, 1),
        ("restore from local memory / copy into fresh memory", 0.25, True, 1),
        ("journal of one step, stall / full save, stall", 0.227, True, 1),
        ("journal segment of one step / full save, bytes", 0.25, True, 1),
        ("agent, processor time per GB saved", 0.2, True, 3),
        ("node's memory with full saves alone / state", 2.0, None, 1),
        ("node's memory with the journal too / state", 3.0, None, 1),
    ],
)
def test_ratios_compare_values_of_the_same_round(name, value, met, count):
    one = row(found(), name)
    assert (one["value"], one["met"]) == (value, met)
    assert one["spread"].endswith(f"n={count}")


@pytest.mark.parametrize(
    ("name", "why"),
    [
        (f"full save, stall / {RESILIENCY}", "it is too old"),
        (f"first full save, stall / first {RESILIENCY}", "it is too old"),
        ("journal segment of one step with gradients of bf16 values / full save, bytes", "why"),
    ],
)
def test_an_unmeasured_row_contains_the_reason(name, why):
    one = row(found(), name)
    assert (one["value"], one["met"], one["kind"]) == (None, None, f"not measured: {why}")


@pytest.mark.parametrize(("seconds", "targets"), [("5", (1.03, 1.01)), ("0.5", (None, None))])
def test_blocks_with_saves_are_compared_with_their_neighbours(seconds, targets):
    steps = f"steps of {seconds} s"
    given = found(
        **{
            f"{steps} {WITHOUT}": [4.0, 6.0, 8.0, 12.0],
            f"{steps} {EACH}": [5.5, 11.0],
            f"{steps} {SPARSE}": [5.0, 10.1],
            f"{steps} {EACH}: saves": [1.0, 0.5],
            f"{steps} {SPARSE}: saves": [1.0, 1.0],
        }
    )
    each, sparse = row(given, f"{steps}, {EACH} / without"), row(given, f"{steps}, {SPARSE} / without")
    assert (each["value"], sparse["value"]) == (1.1, 1.0)
    assert (each["target"], sparse["target"]) == targets
    assert row(given, f"{steps}, {EACH}: saves that found free memory")["value"] == 0.75


def test_the_plain_program_is_compared_with_the_steps_of_its_turn():
    steps = "steps of 5 s"
    given = found(
        **{
            f"{steps} {WITHOUT}": [4.0, 6.0, 5.0, 8.0, 12.0, 10.0],
            f"{steps} {EACH}": [5.5, 11.0],
            f"{steps} {SPARSE}": [5.0, 10.1],
            f"{steps} {PLAIN_JOURNAL}": [6.0, 12.0],
            f"{steps} {EACH}: saves": [1.0, 0.5],
            f"{steps} {SPARSE}: saves": [1.0, 1.0],
        }
    )
    assert row(given, f"{steps}, {PLAIN_JOURNAL} / without")["value"] == 1.2
    assert row(given, f"{steps}, {EACH} / without")["value"] == 1.1


def test_the_memory_of_the_agent_is_compared_with_its_fifth_minute():
    name = "agent's memory at the end of the steps / after five minutes"
    assert row(found(**{EARLY: [1e8], LATE: [1.1e8]}), name)["met"] is False
    assert row(found(**{EARLY: [1e8], LATE: [1e8]}), name)["met"] is True


def test_speeds_have_a_lower_limit_as_target():
    figures = Figures()
    limited = Transfers(10**9, 10**9, 10**9, restores=[10.0, 8.0, 16.0], copies=[9.0], streams=[8.0])
    unlimited = Transfers(0, 10**9, 10**9, restores=[1.0], copies=[4.0], tls_streams=[0.5])
    rows.add_peer_rows([limited, unlimited], figures)
    rows.add_upload_rows(Uploads([2.0], [1.0]), figures)
    peer = figures.row(f"{rows.SHARDS}, link of 1 Gbit/s, link's time for the bytes / time")
    assert (peer["value"], peer["target"], peer["met"]) == (0.8, 0.85, False)
    assert figures.row(f"{rows.COPIES}, link of 1 Gbit/s, link's time for the bytes / time")["met"] is True
    fast = figures.row(f"{rows.SHARDS}{rows.UNLIMITED}, speed")
    assert (fast["value"], fast["target"], fast["met"]) == (8.0, 4.0, True)
    assert figures.row(f"{rows.COPIES}{rows.UNLIMITED}, speed")["met"] is False
    assert figures.row(f"{rows.TLS_STREAM}{rows.UNLIMITED}, speed")["target"] is None
    assert figures.row("upload of a generation, speed / boto3 upload_file")["met"] is False
    assert figures.row("upload of a generation")["ratio"] == 0.5
