"""AdaptiveLoad: bucketed batches whose sizes follow the measured cost of a step.

See bucket_table.py for the sizes and dealing.py for the order. This module exchanges timings and makes
tensors.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import index
from typing import Any

from convoy_workloads.data.agreement import check_agreement, check_faults, selection_of
from convoy_workloads.data.bucket_options import BucketOptions
from convoy_workloads.data.bucket_table import BucketTable, exponent_of
from convoy_workloads.data.dealing import DealtBatch, Step, deal, form_batches
from convoy_workloads.data.epoch_order import epoch_order
from convoy_workloads.data.exchange import Exchange
from convoy_workloads.data.padding import pad_batch
from convoy_workloads.data.saved_state import check_count, state_of, state_text
from convoy_workloads.data.shared_table import decide, first_table, model_numbers, model_of
from convoy_workloads.packing.step_cost import (
    CostModel,
    LinearQuadratic,
    PowerLaw,
    RunningTimings,
    Timing,
    mape,
)
from convoy_workloads.runtime.errors import DataError


@dataclass(frozen=True, slots=True)
class BucketInfo:
    """The newest batch of this rank."""

    tokens: int
    """Tokens of each sample."""
    samples: tuple[int, ...]
    """Numbers of the samples; empty for a filler."""
    all_samples: int
    """Samples of all ranks in this step."""
    scale: float
    """Factor of this rank's mean loss, so that every sample of the step counts the same; 0 for a filler."""
    version: int
    """Version of the table that determined the batch."""


@dataclass
class _Position:
    """The place in an epoch."""

    epoch: int = 0
    read: int = 0
    """Samples of the epoch's order that windows have used."""
    left: list[int] = field(default_factory=list)
    """Samples that were left of earlier windows."""
    steps: list[Step] = field(default_factory=list)
    """The rest of the window's steps."""


class AdaptiveBuckets:
    """Batches of samples of equal size (buckets), with sizes that balance the time of the steps.

    ```python
    batches = AdaptiveBuckets(dataset, bucket_of, BucketOptions(memory_tokens=65_536))
    batches.profile(timings)  # optional: measured steps, for a table from the first batch on
    for batch in batches:
        ...  # forward, backward
        batches.record(seconds)  # this rank's own time of the step, without waiting for others
    ```

    - Every sample of an epoch is used once, so long samples are not used less often.
    - All ranks have the same table. Rank 0 decides it, from the timings of all ranks.
    - If a sample cannot be read or collated, its rank raises the error and all others raise PeerLost, before
      the step. For this the ranks exchange a number in each step.
    - `state_dict` is a position in the middle of a window, with the table and the model. With another number
      of ranks, the rest of the window's samples are dealt anew.
    """

    def __init__(
        self,
        dataset: Any,
        bucket_of: Callable[[int], int],
        options: BucketOptions,
        collate: Callable[[list[Any]], Any] = pad_batch,
        group: Any = None,
        length: Callable[[Any], int] | None = None,
    ) -> None:
        """`bucket_of`: tokens of a sample, by its number; known without reading the sample. `group`: the
        ranks that share the data, if they are not all ranks; a group with gloo. `length`: tokens of a sample
        that was read. With it, a sample that is larger than its bucket is a DataError, because its batch may
        exceed the memory. Without it, nothing compares a sample with `bucket_of`.

        Raises TypeError for data without numbered samples, DataError for a dataset without samples, or if the
        ranks pass different datasets or options, BucketError if no batch fits the longest bucket.
        """
        self.options = options
        if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
            raise TypeError(
                f"{type(dataset).__name__} has no numbered samples: it needs __len__ and __getitem__"
            )
        self._dataset, self._collate, self._length = dataset, collate, length
        self._buckets = [index(bucket_of(number)) for number in range(len(dataset))]
        self._kinds = sorted(set(self._buckets))
        self._exchange = Exchange(options.timeout_seconds, group)
        self.rank, self.world = self._exchange.rank, self._exchange.world
        further = {
            "number of samples": len(dataset),
            "selection of samples": selection_of(dataset),
            "sizes of the samples": self._buckets,
        }
        check_agreement(self._exchange, options, further)
        if not self._buckets:
            raise DataError("the dataset has no samples")
        self._timings = RunningTimings()
        self._model, self.table = first_table(self._kinds, options)
        """The batch size of each bucket."""
        self.info: BucketInfo | None = None
        """Description of the newest batch."""
        self._position = _Position()
        self._steps_since_fit = 0

    @property
    def epoch(self) -> int:
        """Number of the epoch in progress."""
        return self._position.epoch

    def __iter__(self) -> Iterator[Any]:
        """Yield the rest of the epoch's batches."""
        at = self._position
        while True:
            while at.steps:
                yield self._batch(at.steps.pop(0))
            if at.read >= len(self._buckets) and not at.left:
                break
            self._refit()
            self._deal_window()
        self._position = _Position(at.epoch + 1)

    def record(self, seconds: float) -> None:
        """Record this rank's own time of the newest step, without reading and waiting for others. A rank may
        leave steps out. Times that are not positive and finite are left out.
        """
        if self.info is not None and self.info.samples and 0 < seconds < math.inf:
            self._timings.add(Timing(len(self.info.samples), self.info.tokens, seconds))

    def profile(self, timings: Sequence[Timing]) -> None:
        """Use measured steps for the table. All ranks call it before the first batch, each with its own
        timings, equally many.
        """
        for one in timings:
            self._timings.add(one)
        self._decide()

    def metrics(self) -> dict[str, float]:
        """Return the exponent of the cost model at the middle bucket, the relative error of the cost model,
        and the version and two batch sizes of the table.
        """
        middle = self._kinds[len(self._kinds) // 2]
        return {
            "fitted_p": exponent_of(self._model, middle),
            "cost_mape": self._error(),
            "table_version": self.table.version,
            "batch_size_shortest": self.table.sizes[self._kinds[0]],
            "batch_size_longest": self.table.sizes[self._kinds[-1]],
        }

    def _error(self) -> float:
        """Return the mean relative error of the model, for this rank's timings."""
        fixed = isinstance(self._model, PowerLaw) and self._model.scale == 1.0
        return 0.0 if self._model is None or fixed else mape(self._model, self._timings.timings())

    def _refit(self) -> None:
        """Fit the cost again if it is time. All ranks come here at the same step."""
        if self.options.refit_steps and self._steps_since_fit >= self.options.refit_steps:
            self._steps_since_fit = 0
            self._decide()

    def _decide(self) -> None:
        """Use the table that rank 0 makes from the timings of all ranks."""
        own = self._timings.timings()
        self._model, self.table = decide(
            self._exchange, own, self.options, self._model, self.table, self.rank
        )

    def _deal_window(self) -> None:
        at = self._position
        order = epoch_order(len(self._buckets), self.options.seed, at.epoch, self.options.shuffle)
        window = order[at.read : at.read + self.options.window]
        last = at.read + len(window) >= len(order)
        generator = random.Random(f"{self.options.seed}/{at.epoch}/{at.read}")  # noqa: S311
        batches, at.left = form_batches(
            [*at.left, *window], self._buckets, self.table, self.world, last, generator
        )
        at.steps = deal(batches, self.world, self._order_by(), generator)
        at.read += len(window)

    def _order_by(self) -> CostModel | None:
        """Return the model by which a window is sorted. Without a fitted one, attention decides."""
        if self.options.dealing == "none":
            return None
        return self._model or LinearQuadratic(1.0, 1 / (8 * self._kinds[-1]), 0.0)

    def _batch(self, step: Step) -> Any:
        # Count steps, not calls of `record`: all ranks must decide on a new table at the same step.
        self._steps_since_fit += 1
        mine = step[self.rank]
        total = sum(len(one.samples) for one in step)
        scale = len(mine.samples) * self.world / total
        self.info = BucketInfo(mine.tokens, mine.samples, total, scale, self.table.version)
        batch, fault = None, None
        try:
            # A filler is a batch of one sample of its bucket.
            numbers = mine.samples or (self._buckets.index(mine.tokens),)
            batch = self._collate([self._read(one, mine.tokens) for one in numbers])
        except Exception as error:
            fault = error
        # Otherwise a rank whose sample cannot be read would leave the others waiting for its gradients.
        check_faults(self._exchange, fault)
        return batch

    def _read(self, number: int, tokens: int) -> Any:
        sample = self._dataset[number]
        if self._length is not None and (found := self._length(sample)) > tokens:
            raise DataError(
                f"sample {number} has {found} tokens, but bucket_of says {tokens}: its batch could exceed "
                f"memory_tokens={self.options.memory_tokens}"
            )
        return sample

    def state_dict(self) -> dict[str, Any]:
        """Return the position after the newest batch, the table, and the model with its timings, as text."""
        at = self._position
        state: dict[str, Any] = {
            "world": self.world,
            "count": len(self._buckets),
            "kinds": self._kinds,
            "epoch": at.epoch,
            "read": at.read,
            "left": at.left,
            "steps": [[(one.tokens, one.samples) for one in step] for step in at.steps],
            "table": self.table.numbers(),
            "since_fit": self._steps_since_fit,
            "timings": [(one.batch, one.tokens, one.seconds) for one in self._timings.timings()],
            "model": model_numbers(self._model),
        }
        return state_text(state)

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Continue from a position that this or another number of ranks has saved.

        Raises DataError if the dataset has another number of samples or other buckets.
        """
        state = state_of(saved, "AdaptiveBuckets", listed="kinds")
        if state["kinds"] != self._kinds:
            raise DataError(
                f"the checkpoint is of a dataset with the buckets {state['kinds']}, but this one has "
                f"{self._kinds}"
            )
        check_count(state, len(self._buckets))
        at = _Position(state["epoch"], state["read"], list(state["left"]))
        at.steps = [
            tuple(DealtBatch(tokens, tuple(samples)) for tokens, samples in step) for step in state["steps"]
        ]
        if state["world"] != self.world:
            at.left += [sample for step in at.steps for one in step for sample in one.samples]
            at.steps = []
        self._position = at
        self.table = BucketTable.from_numbers(state["table"], self._kinds)
        self._steps_since_fit = state["since_fit"]
        self._timings = RunningTimings()
        for timing in state["timings"]:
            self._timings.add(Timing(*timing))
        self._model = model_of(state["model"])
