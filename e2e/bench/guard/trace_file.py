"""Replays one file with a trace, and prints each change of the detector's findings.

`python -m e2e.bench guard --replay FILE.npz [--slow STAGE,REPLICA,FACTOR,STEP]`. The file has the form of
those in tests/data/straggler. With `--slow`, one rank computes FACTOR times as long from step STEP on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from convoy_controllers.guard.detector import advance
from convoy_controllers.guard.findings import Finding
from convoy_controllers.guard.state import initial_state
from convoy_controllers.testing.traces import Trace, read
from convoy_crds.trainingjob_straggler import Proof


@dataclass(frozen=True, slots=True)
class Slowed:
    """A rank to slow down in a trace."""

    stage: int
    replica: int
    factor: float
    step: int
    """First slow step, from 1."""

    @classmethod
    def parse(cls, text: str) -> Slowed:
        """Return the rank of the text `STAGE,REPLICA,FACTOR,STEP`. Raises ValueError if the text has another
        form.
        """
        try:
            stage, replica, factor, step = text.split(",")
            found = cls(int(stage), int(replica), float(factor), int(step))
        except ValueError:
            raise ValueError(f"{text!r} is not STAGE,REPLICA,FACTOR,STEP, for example 0,1,1.2,10") from None
        if not 0 < found.factor < float("inf"):
            raise ValueError(f"FACTOR is {found.factor:g}, but must be a finite number above 0")
        return found


def replay(path: Path, slow: str | None) -> Iterator[str]:
    """Yield a line for each change of the findings, and a summary. Raises ValueError if the file or `slow` is
    invalid.
    """
    trace = read(path)
    slowed = Slowed.parse(slow) if slow else None
    steps, stages, replicas, _, _ = trace.compute.shape
    if slowed is not None:
        for name, value, first, end in (
            ("STAGE", slowed.stage, 0, stages),
            ("REPLICA", slowed.replica, 0, replicas),
            ("STEP", slowed.step, 1, steps + 1),
        ):
            if not first <= value < end:
                raise ValueError(f"{name} is {value}, but the trace has {first} to {end - 1}")
        trace = trace.slowed(slowed.stage, slowed.replica, slowed.factor, slowed.step - 1)
    yield f"{path.name}: {steps} steps, {stages} stages x {replicas} replicas"
    yield from _lines(trace, slowed)


def _lines(trace: Trace, slowed: Slowed | None) -> Iterator[str]:
    state = initial_state(trace.layout)
    shown, first_named, causes = dict[object, Finding](), dict[int, int](), dict[str, int]()
    for table in trace.tables():
        state, report = advance(state, table)
        now: dict[object, Finding] = {
            (one.cause, one.place, one.ranks, one.where): one for one in report.findings
        }
        for what, one in now.items():
            if what not in shown or shown[what].persistent != one.persistent:
                yield f"step {table.first}: {_words(one, trace)}"
        for what in shown.keys() - now.keys():
            yield f"step {table.first}: no longer: {_words(shown[what], trace)}"
        shown = now
        for one in report.findings:
            causes.setdefault(one.cause.value, table.first)
            for rank in one.ranks:
                first_named.setdefault(rank, table.first)
    found = ", ".join(f"{cause} (step {step})" for cause, step in causes.items())
    named = ", ".join(f"{_rank(trace, rank)} (step {step})" for rank, step in first_named.items())
    yield f"causes: {found or 'none'}"
    yield f"named: {named or 'nobody'}"
    if slowed is not None:
        culprit = trace.rank(slowed.stage, slowed.replica)
        at = first_named.get(culprit)
        when = f"named at step {at}" if at is not None else "not named"
        yield f"slowed from step {slowed.step}: {_rank(trace, culprit)}, {when}"


def _words(one: Finding, trace: Trace) -> str:
    who = ", ".join(_rank(trace, rank) for rank in one.ranks) or f"{one.place.value}, no rank to blame"
    lasts = "persistent" if one.persistent else "recent"
    doubt = ", a suspect with few peers" if one.ranks and one.proof is Proof.FEW_PEERS else ""
    return f"{one.cause.value}: {who}, {one.slowdown:.0%} longer since step {one.since}, {lasts}{doubt}"


def _rank(trace: Trace, rank: int) -> str:
    stage, replica = divmod(rank, int(trace.compute.shape[2]))
    return f"rank {rank} (stage {stage}, replica {replica})"
