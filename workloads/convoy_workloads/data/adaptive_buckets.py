"""AdaptiveLoad: bucketed batches whose sizes follow the measured cost of a step.

See bucket_table.py for the sizes and dealing.py for the order. This module exchanges timings and makes
tensors.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import index
from typing import Any

from convoy_workloads.data.agreement import check_agreement, selection_of
from convoy_workloads.data.bucket_table import (
    BucketError,
    BucketTable,
    Rule,
    exponent_of,
    fit_model,
    make_table,
)
from convoy_workloads.data.choices import unknown_choice
from convoy_workloads.data.dealing import Dealing, DealtBatch, Step, deal, form_batches
from convoy_workloads.data.epoch_order import epoch_order
from convoy_workloads.data.exchange import Exchange
from convoy_workloads.data.padding import pad_batch
from convoy_workloads.packing.step_cost import (
    CostModel,
    LinearQuadratic,
    PowerLaw,
    RunningTimings,
    Timing,
    mape,
)
from convoy_workloads.runtime.errors import DataError

NANO = 10**9
TOLERANCE = 0.15
"""Mean relative error of the model above which it is fitted again."""


@dataclass(frozen=True, kw_only=True)
class BucketOptions:
    """The options of `AdaptiveBuckets`. They must be the same on all ranks."""

    memory_tokens: int
    """Maximum tokens of a batch."""
    rule: Rule = "measured"
    """`measured`: cost by the fitted time of a step. `paper`: by B S^p. `equal_tokens`: memory alone."""
    compute: float | None = None
    """Maximum cost of a batch: in seconds for `measured`, in units of S^p for `paper`. None: the cost of one
    sample of the longest bucket.
    """
    exponent: float | None = None
    """Exponent p of the rule `paper`. None: fitted."""
    dealing: Dealing = "window_sorted"
    """`window_sorted`: the ranks of a step get batches of like cost. `none`: at random."""
    window: int = 512
    """Samples of a window. The table may change between windows only."""
    refit_steps: int = 200
    """Minimum steps between two fits of the cost; 0: the first table stays."""
    shuffle: bool = True
    seed: int = 0
    timeout_seconds: float = 300.0
    """Seconds that a rank may need for an exchange."""

    def __post_init__(self) -> None:
        for name, known in {"rule": Rule, "dealing": Dealing}.items():
            if problem := unknown_choice(name, getattr(self, name), known):
                raise BucketError(problem)
        for name in ("memory_tokens", "window"):
            if getattr(self, name) < 1:
                raise BucketError(f"{name}: {getattr(self, name)} is less than 1")
        if self.refit_steps < 0:
            raise BucketError(f"refit_steps: {self.refit_steps} is negative")
        if not self.timeout_seconds > 0:
            raise BucketError(f"timeout_seconds: {self.timeout_seconds} is not positive")
        if self.compute is not None and self.compute <= 0:
            raise BucketError(f"compute: {self.compute} is not positive")
        if self.exponent is not None and not 1 <= self.exponent <= 3:
            raise BucketError(f"exponent: {self.exponent} is not from 1 to 3")


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
    ) -> None:
        """`bucket_of`: tokens of a sample, by its number; known without reading the sample. `group`: the
        ranks that share the data, if they are not all ranks; a group with gloo.

        Raises TypeError for data without numbered samples, DataError for a dataset without samples, or if the
        ranks pass different datasets or options, BucketError if no batch fits the longest bucket.
        """
        self.options = options
        if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
            raise TypeError(
                f"{type(dataset).__name__} has no numbered samples: it needs __len__ and __getitem__"
            )
        self._dataset, self._collate = dataset, collate
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
        self._model = fit_model(options.rule, [], options.exponent)
        self.table = make_table(self._kinds, options.memory_tokens, self._model, self._limit())
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
        """Return the model's exponent at the middle bucket and its error, and the state of the table."""
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

    def _limit(self) -> float | None:
        """Return the compute limit in the unit of the model."""
        limit = self.options.compute
        if limit is not None and isinstance(self._model, PowerLaw):
            return limit * self._model.scale
        return limit

    def _refit(self) -> None:
        """Fit the cost again if it is time. All ranks come here at the same step."""
        if self.options.refit_steps and self._steps_since_fit >= self.options.refit_steps:
            self._steps_since_fit = 0
            self._decide()

    def _decide(self) -> None:
        """Gather the timings of all ranks, and use the table that rank 0 makes from them."""
        own = self._timings.timings()
        counts = self._exchange.gather([len(own)])
        width = max(count for (count,) in counts)
        rows = [(one.batch, one.tokens, round(one.seconds * NANO)) for one in own]
        rows += [(0, 0, 0)] * (width - len(rows))
        gathered = self._exchange.gather([value for row in rows for value in row])
        everything = [
            Timing(numbers[at], numbers[at + 1], numbers[at + 2] / NANO)
            for numbers in gathered
            for at in range(0, len(numbers), 3)
            if numbers[at]
        ]
        model = fit_model(self.options.rule, everything, self.options.exponent)
        if model is not None and (self._model is None or mape(self._model, everything) > TOLERANCE):
            self._model = model
        made = make_table(self._kinds, self.options.memory_tokens, self._model, self._limit())
        version = self.table.version + (made.sizes != self.table.sizes)
        numbers = self._exchange.gather(BucketTable(version, made.sizes).numbers())
        self.table = BucketTable.from_numbers(numbers[0], self._kinds)

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
        return self._collate([self._dataset[one] for one in mine.samples or (self._filler(mine),)])

    def _filler(self, batch: DealtBatch) -> int:
        return self._buckets.index(batch.tokens)

    def state_dict(self) -> dict[str, Any]:
        """Return the position after the newest batch, the table, and the model with its timings, as text."""
        at, model = self._position, self._model
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
            "power": (model.scale, model.exponent) if isinstance(model, PowerLaw) else None,
            "mixed": (
                (model.linear, model.quadratic, model.fixed) if isinstance(model, LinearQuadratic) else None
            ),
        }
        return {"state": json.dumps(state)}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Continue from a position that this or another number of ranks has saved.

        Raises DataError if the dataset has another number of samples or other buckets.
        """
        try:
            state = json.loads(saved["state"])
            if not isinstance(state["kinds"], list):
                raise TypeError("kinds")
        except (ValueError, TypeError, KeyError) as error:
            raise DataError(f"the state is not one of AdaptiveBuckets: {error!r}") from error
        if state["kinds"] != self._kinds:
            raise DataError(
                f"the checkpoint is of a dataset with the buckets {state['kinds']}, but this one has "
                f"{self._kinds}"
            )
        if state["count"] != len(self._buckets):
            raise DataError(
                f"the checkpoint is of a dataset with {state['count']} samples, but this one has "
                f"{len(self._buckets)}"
            )
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
        if state["power"] is not None:
            self._model = PowerLaw(*state["power"])
        elif state["mixed"] is not None:
            self._model = LinearQuadratic(*state["mixed"])
