from __future__ import annotations

import json
import signal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from convoy_agents.guard.sweep import finding
from convoy_agents.guard.sweep.finding import MAX_DIGESTS, MAX_FACTS, Outcome
from convoy_agents.guard.sweep.probe import MAX_SAMPLES
from convoy_agents.guard.sweep.process import ChildExit, Stop

GOOD: dict[str, Any] = {"outcome": "Measured", "samples": [1.5, 2]}


def finding_of(output: object) -> finding.Finding:
    return finding.from_exit(ChildExit(0, json.dumps(output).encode(), ""))


def test_a_result_is_read() -> None:
    found = finding_of({**GOOD, "digests": ["a", "a"], "facts": {"cpu": "x"}, "message": "m"})
    assert found == finding.Finding(Outcome.MEASURED, "m", (1.5, 2.0), ("a", "a"), {"cpu": "x"})


@pytest.mark.parametrize(
    ("ended", "outcome"),
    [
        (ChildExit(None, b"", "", Stop.DEADLINE), Outcome.HUNG),
        (ChildExit(None, json.dumps(GOOD).encode(), ""), Outcome.HUNG),
        (ChildExit(-9, b"", "", Stop.DEADLINE), Outcome.TIMED_OUT),
        (ChildExit(-9, b"", "", Stop.DEADLINE, oom=True), Outcome.TIMED_OUT),
        (ChildExit(-9, b"x" * 9, "", Stop.FLOOD), Outcome.GARBAGE),
        (ChildExit(-9, b"", "", oom=True), Outcome.OUT_OF_MEMORY),
        (ChildExit(-9, b"", ""), Outcome.CRASHED),
        # In the next two cases the kernel killed another process of the container, so the outcome is not
        # OutOfMemory.
        (ChildExit(-11, b"", "", oom=True), Outcome.CRASHED),
        (ChildExit(0, json.dumps(GOOD).encode(), "", oom=True), Outcome.MEASURED),
        (ChildExit(-200, b"", ""), Outcome.CRASHED),
        (ChildExit(1, json.dumps(GOOD).encode(), ""), Outcome.FAILED),
        (ChildExit(0, b" \n", ""), Outcome.NO_OUTPUT),
        (ChildExit(0, b"{", ""), Outcome.GARBAGE),
        (ChildExit(0, b"[" * 100_000, ""), Outcome.GARBAGE),
        (ChildExit(0, b"\xff\xfe", ""), Outcome.GARBAGE),
    ],
)
def test_each_exit_has_its_outcome(ended: ChildExit, outcome: Outcome) -> None:
    found = finding.from_exit(ended)
    assert found.outcome is outcome
    assert bool(found.samples) is (outcome is Outcome.MEASURED)
    assert found.message or outcome is Outcome.MEASURED


def test_the_signal_and_the_last_line_of_stderr_are_reported() -> None:
    found = finding.from_exit(ChildExit(-signal.SIGSEGV, b"", "first\nlast words\n"))
    assert found.message == "the probe was killed by SIGSEGV: last words"


@pytest.mark.parametrize(
    "changes",
    [
        {"outcome": "Perfect"},
        {"outcome": None},
        {"outcome": "Hung"},
        {"outcome": "Crashed"},
        {"outcome": "NotAvailable"},
        {"samples": []},
        {"samples": [0]},
        {"samples": [-1.0]},
        {"samples": [float("nan")]},
        {"samples": [float("inf")]},
        {"samples": [True]},
        {"samples": ["1"]},
        {"samples": 1},
        {"samples": [1.0] * (MAX_SAMPLES + 1)},
        {"samples": [10**400]},
        {"digests": [1]},
        {"digests": ["a"] * (MAX_DIGESTS + 1)},
        {"facts": []},
        {"facts": {"a": 1}},
        {"facts": {str(number): "" for number in range(MAX_FACTS + 1)}},
        {"message": 1},
    ],
    ids=str,
)
def test_a_malformed_result_is_garbage(changes: dict[str, Any]) -> None:
    assert finding_of(GOOD).outcome is Outcome.MEASURED
    assert finding_of({**GOOD, **changes}).outcome is Outcome.GARBAGE


@pytest.mark.parametrize("outcome", ["NotAvailable", "Failed", "OutOfMemory"])
def test_a_child_can_report_the_reason_for_a_missing_result(outcome: str) -> None:
    found = finding_of({"outcome": outcome, "message": "m" * 9999})
    assert (found.outcome, len(found.message)) == (Outcome(outcome), 512)


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3)
values = scalars | st.lists(scalars, max_size=3) | st.dictionaries(st.text(max_size=3), scalars, max_size=3)
names = st.sampled_from(["outcome", "samples", "digests", "facts", "message"])


@given(st.dictionaries(names, values) | values)
def test_no_output_of_a_child_raises_an_error(output: object) -> None:
    assert finding_of(output).outcome in set(Outcome)
