"""The traces on a job's page."""

from __future__ import annotations

from convoy_crds.trainingjob import TrainingJob
from convoy_crds.trainingjob_trace import TraceState, TraceStatus
from convoy_operator.dashboard.core.formatting import ranges
from convoy_operator.dashboard.core.job import Fact
from convoy_operator.dashboard.core.rows import Tone

_UNITS = (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))
_TONES = {TraceState.STORED: Tone.GOOD, TraceState.FAILED: Tone.BAD, TraceState.RECORDING: Tone.BUSY}


def facts(job: TrainingJob) -> list[Fact]:
    """Return the values of the job's newest recording; an empty list if it has none."""
    trace = job.status.trace
    if trace is None:
        return []
    found = [
        Fact("Recording", f"{trace.recording} ({trace.state})", _TONES.get(trace.state, Tone.PLAIN)),
        Fact("Origin", _origin(trace)),
        Fact("Steps", f"{trace.first_step:,} to {trace.last_step:,}" if trace.last_step else "-"),
        Fact("Ranks", ranges(trace.ranks) or "-"),
        Fact("Incarnation", str(trace.incarnation) if trace.incarnation else "-"),
        Fact("Files", f"{len(trace.files)} of {len(trace.ranks)}"),
    ]
    if trace.files:
        found += [
            Fact("Size", format_bytes(trace.bytes)),
            Fact("Communication per step", format_bytes(trace.comm_bytes_per_step)),
            Fact("Exposed communication", f"{trace.exposed_communication_ratio:.1%}"),
            Fact("Fetch", f"convoy trace fetch {job.metadata.name} --namespace {job.metadata.namespace}"),
        ]
    return found


def _origin(trace: TraceStatus) -> str:
    slow = trace.straggler
    if slow is None:
        return "spec.trace.steps"
    return f"straggler: rank {slow.rank}" + (f" on {slow.node}" if slow.node else "")


def format_bytes(size: int) -> str:
    """Return a number of bytes with its unit, such as `512 B` or `1.5 MiB`."""
    return next((f"{size / length:.1f} {unit}" for unit, length in _UNITS if size >= length), f"{size} B")
