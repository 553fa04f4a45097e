"""The state of an index in numbers, for status and metrics."""

from __future__ import annotations

from typing import Any

from convoy_workloads.engines.aperon.index import VectorIndex
from convoy_workloads.engines.aperon.state import SegmentView


def describe(index: VectorIndex) -> dict[str, Any]:
    """Return the numbers as JSON."""
    state = index.snapshot().state
    return {
        "records": state.live,
        "sequence": state.sequence,
        "settings": index.settings.as_json(),
        "search": index.search_settings.as_json(),
        "bytes": index.sizes(),
        "memory_rows": sum(len(one.alive) for one in state.memory),
        "segments": [_segment(one) for one in state.segments],
        "kernel": {
            "instruction_set": index.kernel.instruction_set,
            "rejected": {name: one.message for name, one in index.kernel.rejected.items()},
        },
        "damaged_files": [str(one) for one in index.problems],
        "due": index.due(),
    }


def _segment(view: SegmentView) -> dict[str, Any]:
    segment = view.segment
    return {
        "name": segment.name,
        "rows": segment.rows,
        "deleted": segment.rows - view.live,
        "grains": segment.arrays.grains,
        "frame": segment.arrays.frame,
        "dims": segment.arrays.dims,
        "residual": round(segment.residual, 4),
        "fitted_residual": round(segment.fitted_residual, 4),
    }
