"""Tests of casgd's rows in docs/bench/engines_training.json, from made-up results."""

from __future__ import annotations

from typing import Any

from convoy_workloads.bench.figures import Figures
from convoy_workloads.engines.casgd import rows
from convoy_workloads.engines.casgd.bench import FULL
from convoy_workloads.optim.block_size import message_bytes


def results(auto_seconds: float, loss: float = 0.5, extra_calls: int = 0) -> dict[str, list[dict[str, Any]]]:
    found = {}
    for name, variant in rows.VARIANTS.items():
        s = 16 if variant["s"] == "auto" else int(variant["s"])
        calls = FULL["iterations"] // s
        one = {
            "seconds": {1: 1.0, 16: auto_seconds}.get(s, 0.3),
            "s": s,
            "calls": calls + extra_calls,
            "bytes": calls * message_bytes(s, FULL["batch"], 4),
            "loss": loss if name == rows.AUTO else 0.5,
        }
        found[name] = [dict(one) for _ in range(5)]
    return found


def met(**given: Any) -> dict[str, bool]:
    found = Figures()
    rows._times(found, "loopback", results(**given))
    return {row["metric"]: row["met"] for row in found.rows() if row["target"] is not None}


def test_the_targets_are_met_or_missed() -> None:
    good = met(auto_seconds=0.2)
    assert len(good) == 7 and all(good.values()), good
    slow = met(auto_seconds=0.3)
    assert [name for name, one in slow.items() if not one] == [
        "casgd, loopback: s auto, times faster than SGD"
    ]
    off = met(auto_seconds=0.2, loss=0.51)
    assert [name for name, one in off.items() if not one] == [
        "casgd, loopback: largest difference of the loss from SGD"
    ]
    more = met(auto_seconds=0.2, extra_calls=1)
    assert sum(not one for one in more.values()) == 2, "a collective too many in each of two rows"


def test_a_strong_recurrence_in_bf16_misses_its_control() -> None:
    found = Figures()
    rows._ablation(found, "linear", [{"fp32": 0.0, "mixed": 0.003, "recurrence": 0.001}] * 5)
    control = found.row("casgd, linear: negative control, recurrence in bf16")
    assert control["met"] is False
    assert found.row("casgd, linear: difference of the loss, mixed")["met"] is True
