"""One inference on tensors. Only the compute thread changes it."""

from __future__ import annotations

from convoy_workloads.serving.metrics import QUEUE_FULL, Metrics
from convoy_workloads.serving.protocol import Inference, Prediction
from convoy_workloads.serving.work_item import ERROR, INVALID, STOP, Delta, Sink, WorkItem


class TensorWork(WorkItem):
    """One inference. It ends with its first result."""

    __slots__ = ("inference", "rows")

    def __init__(self, inference: Inference, deadline: float, sink: Sink) -> None:
        """`deadline`: monotonic time at which the inference ends at the latest."""
        super().__init__(deadline, (0, sink))
        self.inference = inference
        self.rows = 0
        """Number of rows with computed outputs."""

    @property
    def payload(self) -> Inference:
        """Return the inference."""
        return self.inference

    def accept(self, result: Prediction) -> Delta:
        """End the inference with its result."""
        self.ended = True
        if result.error is None:
            self.rows = self.inference.rows
            return Delta(finish=STOP, outputs=result.outputs)
        reason = ERROR if result.error.status >= 500 else INVALID
        if result.error.status == 429:
            reason = QUEUE_FULL
        return Delta(finish=reason, message=result.error.message, error=result.error)

    def measure(self, metrics: Metrics, now: float) -> None:
        """Record the computed rows."""
        self.first_at = self.last_at = now
        metrics.computed_rows(self.rows)
