"""Tests that an agent reports the facts of a run."""

from __future__ import annotations

from tests.unit.agents.test_rules import UP, progress_of, run

from convoy_agents.pods.messages import DataFolder, Progress, RunFacts
from convoy_agents.pods.report import to_wire


def test_the_facts_of_a_run_are_reported() -> None:
    facts = RunFacts((DataFolder("/data", 5, 70),), 60_000, 1500, 900, 4, "3.11.7", "2.13.0")
    [report] = to_wire(run(progress_of(0, Progress(5, facts=facts)), state=UP).state).ranks
    found = report.progress.facts
    assert [(one.path, one.files, one.median_bytes) for one in found.folders] == [("/data", 5, 70)]
    assert (found.ms, found.cpu_ms, found.accelerator_ms, found.accelerators) == (60_000, 1500, 900, 4)
    assert (found.python, found.torch) == ("3.11.7", "2.13.0")
    [report] = to_wire(run(progress_of(0, Progress(5)), state=UP).state).ranks
    assert not report.progress.HasField("facts")
