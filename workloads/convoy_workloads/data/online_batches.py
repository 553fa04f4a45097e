"""Online dynamic batching (ODB): batches are formed from the lengths that samples have after preprocessing.

See alignment.py for the method. This module reads samples, exchanges messages and makes tensors.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from convoy_workloads.data.agreement import check_agreement, selection_of
from convoy_workloads.data.alignment import Alignment, Counters, RankFailedError
from convoy_workloads.data.alignment_messages import (
    AlignedStep,
    Plan,
    Proposal,
    unused_samples,
)
from convoy_workloads.data.epoch_order import Reshare, epoch_order, remaining, share
from convoy_workloads.data.exchange import Exchange
from convoy_workloads.data.intake import Accepted, Intake, Quarantined, SampleFunctions
from convoy_workloads.data.loss_scale import scale_of, scale_outputs
from convoy_workloads.data.online_options import OnlineOptions
from convoy_workloads.data.padding import pad_batch
from convoy_workloads.data.sample_stream import source_of
from convoy_workloads.runtime.errors import DataError, PeerLost


@dataclass(frozen=True)
class BatchInfo:
    """The newest batch of this rank, and its place in the step of all ranks."""

    samples: tuple[int, ...]
    """Numbers of the samples in the dataset; empty if this rank has none left and the batch is a filler."""
    weight: int
    """Number of loss terms."""
    all_samples: int
    """Samples of all ranks in this step."""
    all_weights: int
    """Loss terms of all ranks in this step."""
    scale: float
    """Factor of this rank's mean loss; 0 for a filler."""


@dataclass
class _Epoch:
    """An epoch in progress."""

    number: int
    alignment: Alignment
    samples: Iterator[tuple[int, Any]]
    """The rest of the share, as numbers and values."""
    values: dict[int, Accepted] = field(default_factory=dict)
    reshares: list[Reshare] = field(default_factory=list)
    steps: int = 0


class OnlineBatches:
    """Batches of a dataset under a token budget, with equally many steps on all ranks.

    ```python
    batches = OnlineBatches(dataset, OnlineOptions(tokens=4096))
    batches.attach(model)  # exact loss scaling, for a loop that takes the mean loss of each batch
    for epoch in range(3):
        for batch in batches:
            ...  # forward, backward, optimizer step
    ```

    - Each sample of an epoch is used exactly once, on one rank. `quarantined` lists those that are not.
    - A batch has at most `tokens` tokens after padding.
    - All ranks take the same number of steps. A rank that has no more samples gets a filler: a batch with
      one of its samples, whose loss counts nothing.
    - Lengths are measured after `__getitem__`. Nothing else of the dataset is read, not even in advance.
    - `state_dict` is a position in the middle of an epoch. A run that loads it uses each of the remaining
      samples once, also with another number of ranks. Preprocessing must give the same lengths again.

    If a rank's loader fails, the rank raises the error and all others raise PeerLost, at the same step.
    All ranks create the loader at the same place of the program, and iterate at the same time.
    """

    def __init__(
        self,
        data: Any,
        options: OnlineOptions,
        functions: SampleFunctions | None = None,
        group: Any = None,
    ) -> None:
        """`data`: a map-style dataset, or a DataLoader with one, whose workers and collate_fn are used.
        `group`: a gloo process group of the ranks that share the data, if they are not all ranks.

        Raises TypeError for data without numbered samples, DataError for a dataset without samples or, in
        the mode `quota`, with fewer samples than ranks, and if the ranks pass different datasets or options.
        """
        functions = functions or SampleFunctions()
        self.options = options
        self._source, shuffle, collate = source_of(data, options.workers, options.timeout_seconds)
        self._shuffle = options.shuffle if shuffle is None else shuffle
        self._collate = functions.collate or collate or pad_batch
        longest = options.longest or options.tokens
        self._intake = Intake(functions, longest, options.overlong, options.shortest)
        self._exchange = Exchange(options.timeout_seconds, group)
        self.rank, self.world = self._exchange.rank, self._exchange.world
        further = {
            "number of samples": self._source.count,
            "selection of samples": selection_of(self._source.dataset),
            "order": self._shuffle,
        }
        check_agreement(self._exchange, options, further)
        if self._source.count < 1:
            raise DataError("the dataset has no samples")
        if options.mode == "quota" and self._source.count < self.world:
            raise DataError(
                f"the dataset has {self._source.count} samples for {self.world} ranks: the mode `quota` "
                "needs one for each rank"
            )
        self.quarantined: list[Quarantined] = []
        """The samples that this rank did not use, with the reasons; of all epochs."""
        self.counters = Counters()
        self.left_out = 0
        """Usable samples that no rank used in the last complete epoch; 0 in the mode `join`."""
        self.info: BatchInfo | None = None
        """Description of the newest batch."""
        self._epoch = 0
        self._current: _Epoch | None = None
        self._filler: Any = None
        self._all_quarantined = 0
        self._attached: list[Any] = []

    @property
    def epoch(self) -> int:
        """Number of the epoch in progress, or of the next one."""
        return self._epoch

    @property
    def scale(self) -> float:
        """Factor of the newest batch's mean loss: `(loss * batches.scale).backward()`."""
        return self.info.scale if self.info is not None else 1.0

    def attach(self, model: Any) -> None:
        """Scale the losses of a training loop without a change of its code: the gradients at the outputs of
        `model`, such as a DistributedDataParallel, are multiplied by the scale of the newest batch. Attaching
        a model again changes nothing.
        """
        if any(model is one for one in self._attached):
            return
        self._attached.append(model)
        model.register_forward_hook(lambda _model, _inputs, outputs: scale_outputs(outputs, self.scale))

    def __iter__(self) -> Iterator[Any]:
        """Yield the batches of an epoch. An iteration that was left early goes on where it stopped."""
        if self._current is None:
            self._current = self._start(self._epoch)
        current = self._current
        while True:
            step = current.alignment.next_step()
            if step is not None:
                current.steps += 1
                yield self._batch(current, step)
            elif not self._align(current):
                break
        self._current, self._epoch = None, self._epoch + 1
        if not current.steps:
            raise DataError(
                f"epoch {current.number} has no batch: all samples are in quarantine, such as "
                f"{self.quarantined[:3]}"
            )

    def metrics(self) -> dict[str, float]:
        """Return what this rank has counted since the start of the training; quarantine: of all ranks."""
        one = self.counters
        return {
            "padding_ratio": 1 - one.tokens / one.padded if one.padded else 0.0,
            "align_rounds": one.rounds,
            "split_total": one.splits,
            "overflow_total": one.overflows,
            "quarantined_total": self._all_quarantined_so_far(),
            "align_wait_seconds": self._exchange.wait_seconds,
        }

    def _all_quarantined_so_far(self) -> int:
        current = self._current
        return self._all_quarantined + (current.alignment.all_quarantined if current is not None else 0)

    def _start(self, number: int, reshares: list[Reshare] | None = None) -> _Epoch:
        """Return an epoch at its start, or after the reshares."""
        alignment = Alignment(self.options.alignment(), self.rank, self.world, number, self.counters)
        reshares = reshares or []
        mine = share(self._order(number, reshares), self.rank, self.world)
        return _Epoch(number, alignment, self._read(number, mine), reshares=reshares)

    def _order(self, number: int, reshares: list[Reshare]) -> list[int]:
        order = epoch_order(self._source.count, self.options.seed, number, self._shuffle)
        return remaining(order, reshares) if reshares else order

    def _read(self, epoch: int, samples: Any) -> Iterator[tuple[int, Any]]:
        first = samples[0] if samples else 0
        # Workers draw other random numbers on each rank and in each epoch, and after each restart.
        seed = zlib.crc32(f"{self.options.seed}/{epoch}/{self.rank}/{first}".encode())
        return zip(samples, self._source.read(samples, self.options.window, seed), strict=False)

    def _align(self, current: _Epoch) -> bool:
        """Fill the pool and agree on the next steps. Return False at the end of the epoch."""
        alignment, fault = current.alignment, None
        try:
            while alignment.wants_sample:
                self._fill(current)
        except Exception as error:
            fault = error
            alignment.fail()
        proposal = alignment.propose()
        gathered = self._exchange.gather(proposal.numbers())
        try:
            alignment.receive_proposals([Proposal(*row) for row in gathered])
        except RankFailedError as error:
            raise (fault or PeerLost(str(error))) from error
        if alignment.ended:
            self._all_quarantined += alignment.all_quarantined
            self.left_out = self._source.count - alignment.used - alignment.all_quarantined
            return False
        plan = alignment.plan()
        rows = self._exchange.gather(plan.numbers(alignment.plan_length))
        alignment.receive_plans([Plan.from_numbers(row, len(plan.steps)) for row in rows])
        return True

    def _fill(self, current: _Epoch) -> None:
        """Read one sample of the share."""
        try:
            number, value = next(current.samples)
        except StopIteration:
            current.alignment.drain()
            return
        accepted = self._intake.accept(number, value)
        if isinstance(accepted, Quarantined):
            self.quarantined.append(accepted)
            current.alignment.skip()
            return
        current.values[number] = accepted
        current.alignment.add(number, accepted.length, accepted.weight)

    def _batch(self, current: _Epoch, step: AlignedStep) -> Any:
        scale = scale_of(self.options.loss_scaling, step, self.world)
        self.info = BatchInfo(step.samples, step.weight, step.all_samples, step.all_weights, scale)
        if not step.samples:
            return self._collate([self._filler_sample()])
        values = [current.values.pop(one).value for one in step.samples]
        # Keep one sample for fillers. A short one is cheap.
        self._filler = values[-1]
        return self._collate(values)

    def _filler_sample(self) -> Any:
        """Return a sample for a batch that counts nothing. A rank that had no sample reads the first usable
        one of the dataset.
        """
        if self._filler is None:
            order = range(self._source.count)
            for number, value in zip(
                order, self._source.read(order, ahead=1, seed=self.options.seed), strict=False
            ):
                accepted = self._intake.accept(number, value)
                if isinstance(accepted, Accepted):
                    self._filler = accepted.value
                    break
        return self._filler

    def state_dict(self) -> dict[str, Any]:
        """Return the position after the newest batch, as text."""
        current = self._current
        state: dict[str, Any] = {
            "rank": self.rank,
            "count": self._source.count,
            "order": [self.options.seed, self._shuffle],
            "epoch": self._epoch,
            "counters": asdict(self.counters),
            "quarantined": [asdict(one) for one in self.quarantined],
            "all_quarantined": self._all_quarantined,
        }
        if current is not None and current.steps:
            state["alignment"] = current.alignment.state()
            state["reshares"] = [asdict(one) for one in current.reshares]
        return {"state": json.dumps(state)}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Continue from a position that this or another number of ranks has saved.

        Raises DataError if the dataset has another number of samples, if a sample has another length than
        before, and in the middle of an epoch if the order of the samples is another.
        """
        try:
            state = json.loads(saved["state"])
            if not isinstance(state["order"], list):
                raise TypeError("order")
        except (ValueError, TypeError, KeyError) as error:
            raise DataError(f"the state is not one of OnlineBatches: {error!r}") from error
        if state["count"] != self._source.count:
            raise DataError(
                f"the checkpoint is of a dataset with {state['count']} samples, but this one has "
                f"{self._source.count}"
            )
        if "alignment" in state and state["order"] != [self.options.seed, self._shuffle]:
            seed, shuffle = state["order"]
            raise DataError(
                f"the checkpoint is in the middle of an epoch with seed={seed} and shuffle={shuffle}, but "
                f"this loader has seed={self.options.seed} and shuffle={self._shuffle}"
            )
        self._epoch, self._all_quarantined = state["epoch"], state["all_quarantined"]
        aligned = state.get("alignment")
        same = aligned is None or aligned["world"] == self.world
        if same and state["rank"] == self.rank:
            self.counters = Counters(**state["counters"])
            self.quarantined = [Quarantined(**one) for one in state["quarantined"]]
        self._current = None
        if aligned is not None:
            reshares = [Reshare(tuple(one["read"]), tuple(one["unused"])) for one in state["reshares"]]
            self._current = self._resumed(aligned, reshares) if same else self._reshared(aligned, reshares)

    def _reshared(self, aligned: Mapping[str, Any], reshares: list[Reshare]) -> _Epoch:
        """Return the rest of an epoch, shared among another number of ranks."""
        reshares.append(Reshare(tuple(aligned["read"]), unused_samples(aligned)))
        self._all_quarantined += sum(aligned["quarantined"])
        current = self._start(aligned["epoch"], reshares)
        current.alignment.resume_used(aligned)
        current.steps = 1
        return current

    def _resumed(self, aligned: Mapping[str, Any], reshares: list[Reshare]) -> _Epoch:
        """Return the epoch where this rank has left it, after reading the samples of the planned steps and
        of the pool again.
        """
        current = self._start(aligned["epoch"], reshares)
        current.steps = 1
        alignment = current.alignment
        alignment.resume(aligned)
        mine = share(self._order(current.number, reshares), self.rank, self.world)
        planned, pool = alignment.resumed_samples()
        for place, (number, value) in enumerate(self._read(current.number, (*planned, *pool))):
            accepted = self._intake.accept(number, value)
            if isinstance(accepted, Quarantined):
                raise DataError(
                    f"sample {number} was usable before the restart, but is {accepted.reason} now"
                )
            current.values[number] = accepted
            alignment.restore_sample(number, accepted.length, accepted.weight, place < len(planned))
        current.samples = self._read(current.number, mine[alignment.samples_read :])
        if wrong := alignment.changed_steps():
            raise DataError(
                f"samples {wrong} have other lengths than before the restart, or exceed the budget: their "
                "preprocessing must not depend on chance, nor the token budget become smaller"
            )
        return current
