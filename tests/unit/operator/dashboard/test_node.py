"""Tests of the content of a node's page."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from tests.unit.operator.dashboard.builders import NOW, ago, health, pod, texts, training

from convoy_controllers.cached import Pod
from convoy_crds.hardwareclass import HardwareClass
from convoy_crds.healthsweep import HealthSweep
from convoy_crds.nodehealth import NodeHealth
from convoy_crds.trainingjob import TrainingJob
from convoy_operator.dashboard.core import charts, distribution, node
from convoy_operator.dashboard.core.formatting import clock
from convoy_operator.dashboard.core.objects import parser_of


def hardware_class() -> HardwareClass:
    def row(name: str, level: float, when: str) -> dict[str, Any]:
        return {"name": name, "at": when, "levels": [level * 0.9, level, level * 1.1]}

    rows = [row(f"hw{number}", 100.0 + number, ago(days=3)) for number in range(4)]
    return HardwareClass.model_validate(
        {
            "metadata": {"name": "c"},
            "status": {
                "metrics": [
                    {
                        "name": "gemm",
                        "unit": "TFLOP/s",
                        "median": 100.0,
                        "reference": rows,
                        "recent": [row("hw1", 80.0, ago(days=1))],
                    },
                    {
                        "name": "jitter",
                        "unit": "us",
                        "higherIsBetter": False,
                        "median": 10.0,
                        "recent": [
                            row("hw1/0", 12.0, ago(days=1)),
                            row("hw1/1", 13.0, ago(days=1)),
                            row("hw2/0", 10.0, ago(days=1)),
                        ],
                    },
                    {"name": "digest", "recent": [{"name": "hw1", "at": ago(days=1), "digest": "abc"}]},
                    {"name": "other", "median": 5.0, "recent": [row("hw2", 5.0, ago(days=1))]},
                ]
            },
        }
    )


def test_measurements_are_compared_with_the_newest_of_the_class() -> None:
    one = hardware_class()
    assert distribution.class_of("hw1", [one]) is one
    assert distribution.class_of("hw9", [one]) is None
    gemm, jitter = distribution.strips("hw1", one)
    assert (gemm.own, sorted(gemm.others), gemm.nodes) == ((80.0,), [100.0, 102.0, 103.0], 4)
    assert (gemm.difference, gemm.worse) == (pytest.approx(-0.2), pytest.approx(0.2))
    assert (jitter.own, jitter.own_value, jitter.worse) == ((120.0, 130.0), 12.5, pytest.approx(0.25))
    assert texts(distribution.rows([gemm, jitter])) == [
        ["gemm", "80 TFLOP/s", "100 TFLOP/s", "-20.0% worse", "4"],
        ["jitter", "12.5 us", "10 us", "+25.0% worse", "2"],
    ]
    series = charts.strips([gemm, jitter])["series"]
    assert series[1]["data"] == [[80.0, 0], [120.0, 1], [130.0, 1]]


def test_an_unproven_delay_is_a_note() -> None:
    hint = {"job": "team/gpt", "cause": "Compute", "at": ago(minutes=5), "slowdown": 1.2}
    model = NodeHealth.model_validate({"metadata": {"name": "hw"}, "status": {"noticed": hint}})
    (note,) = node.notes(model, NOW)
    assert note.startswith("Noticed 5m ago: team/gpt was 20% slower on this node (Compute).")


def test_the_sweeps_of_hardware_newest_first() -> None:
    def sweep(name: str, **verdict: Any) -> Any:
        return parser_of(HealthSweep)(
            {
                "metadata": {"name": name, "uid": name, "resourceVersion": "1"},
                "spec": {"nodes": ["n1"]},
                "status": {"startTime": ago(days=9), "nodes": [{"node": "n1", **verdict}]},
            }
        )

    finding = {"name": "gemm", "verdict": "Fail", "value": 512.0, "reference": 742.0, "unit": "TFLOP/s"}
    found = node.sweep_rows(
        [
            sweep("old", hardware="hw1", verdict="Pass", at=ago(days=5)),
            sweep("new", hardware="hw1", verdict="Fail", at=ago(days=1), evidence=[finding]),
            sweep("others", hardware="hw2", verdict="Fail", at=ago(hours=1)),
            sweep("begun", message="waits"),
        ],
        "n1",
        "hw1",
        NOW,
    )
    assert [row.key for row in found] == ["new", "old", "begun"]
    assert texts(found)[0] == ["new", "Fail", "L0", "24h ago", "gemm 512 TFLOP/s against 742"]
    assert texts(found)[2][1] == "running"


def test_state_changes_and_evidence_of_a_node() -> None:
    model = NodeHealth.model_validate(
        {
            "metadata": {"name": "hw"},
            "spec": {"condemned": {"reason": "RMA", "user": "ada"}},
            "status": {
                "history": [
                    {
                        "at": ago(hours=3),
                        "before": "Unverified",
                        "after": "Qualified",
                        "reason": "SweepPassed",
                    },
                    {
                        "at": ago(hours=1),
                        "before": "Qualified",
                        "after": "Suspect",
                        "reason": "SlowerThanPeers",
                        "message": "m",
                    },
                ],
                "evidence": [
                    {
                        "kind": "Online",
                        "source": "team/gpt",
                        "cause": "Thermal",
                        "since": ago(hours=1),
                        "seen": ago(minutes=1),
                        "loss": 3400,
                        "slowdown": 1.23,
                        "message": "hot",
                    },
                    {
                        "kind": "Online",
                        "source": "team/old",
                        "since": ago(days=2),
                        "seen": ago(days=1),
                        "loss": 5,
                        "forgiven": 5,
                    },
                    {
                        "kind": "Sweep",
                        "source": "sweep-1",
                        "since": ago(days=2),
                        "seen": ago(days=1),
                        "message": "slow",
                    },
                ],
            },
        }
    )
    turns = texts(node.history_rows(model, NOW))
    assert [row[1] for row in turns] == ["Qualified → Suspect", "Unverified → Qualified"]
    found = node.evidence_rows(model, NOW)
    assert texts(found)[0] == ["team/gpt", "Online", "Thermal", "23%", "3,400 GPU-s", "60s ago", "hot"]
    assert texts(found)[1][-1].startswith("forgiven")
    assert (found[0].cells[0].href, found[2].cells[0].href) == ("/jobs/team/gpt", "")
    assert list(node.notes(model, NOW)) == ["Condemned by ada: RMA"]


def test_the_first_entry_of_a_node_has_one_state() -> None:
    first = {"before": "Unverified", "after": "Unverified", "at": ago(hours=1), "reason": "NewHardware"}
    assert texts(node.history_rows(health("Unverified", history=[first]), NOW))[0][1] == "Unverified"


@pytest.mark.parametrize(("begun", "end"), [(1, 71), (71, 1), (72, None)])
def test_an_exemption_is_noted_while_it_is_valid(begun: int, end: int | None) -> None:
    until = (NOW + timedelta(hours=100)).isoformat()
    model = NodeHealth.model_validate(
        {
            "metadata": {"name": "hw"},
            "spec": {"exempt": {"user": "ada", "reason": "tests", "until": until}},
            "status": {"exemption": {"since": ago(hours=begun), "until": until, "before": "Qualified"}},
        }
    )
    notes = [] if end is None else [f"Exempt until {clock(NOW + timedelta(hours=end))}, by ada: tests"]
    assert list(node.notes(model, NOW)) == notes


def test_only_visible_jobs_of_a_node_are_listed() -> None:
    body = {
        "metadata": {"name": "gpt", "namespace": "team", "uid": "u", "resourceVersion": "1"},
        "spec": training().to_dict()["spec"],
        "status": {"phase": "Running", "reason": "Training"},
    }
    seen = [parser_of(TrainingJob)(body)]
    pods = [pod("gpt-w-0"), pod("gpt-w-1"), Pod("secret", 1, "hidden", pod("x").view)]
    assert texts(node.job_rows(pods, seen)) == [["team/gpt", "Running", "2", "Training"]]
