"""Online dynamic batching (ODB): batches are formed from the lengths that samples have after preprocessing.

See alignment.py for the method, and own_samples.py for the reading. This module exchanges the messages.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from convoy_workloads.data.agreement import check_agreement, check_faults, raise_faults, selection_of
from convoy_workloads.data.alignment import Alignment, Counters, RankFailedError
from convoy_workloads.data.alignment_messages import AlignedStep, Plan, Proposal, unused_samples
from convoy_workloads.data.epoch_order import Reshare
from convoy_workloads.data.exchange import Exchange
from convoy_workloads.data.intake import Intake, Quarantined, SampleFunctions
from convoy_workloads.data.loss_scale import scale_of, scale_outputs
from convoy_workloads.data.online_epoch import Epoch
from convoy_workloads.data.online_options import OnlineOptions
from convoy_workloads.data.own_samples import OwnSamples
from convoy_workloads.data.padding import pad_batch
from convoy_workloads.data.quarantine import Quarantine
from convoy_workloads.data.sample_stream import pinned, source_of
from convoy_workloads.data.saved_state import check_count, check_order, state_of, state_text
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
    - A rank collates the batches of its next steps, at most those of a window, before the first of them. So
      all ranks know of an error of the dataset or of `collate` before they take a step.
    - `state_dict` is a position in the middle of an epoch. A run that loads it uses each of the remaining
      samples once, also with another number of ranks. Preprocessing must give the same lengths again.

    If a rank's loader fails, the rank raises the error and all others raise PeerLost, at the same step.
    All ranks create the loader at the same place of the program, iterate at the same time, and call
    `load_state_dict` together.
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

        Raises TypeError for data without numbered samples; ValueError for a DataLoader with drop_last or
        persistent_workers; DataError for a dataset without samples or, in the mode `quota`, with fewer
        samples than ranks, and if the ranks pass different datasets or options.
        """
        functions = functions or SampleFunctions()
        self.options = options
        self._source, shuffle, collate = source_of(data, options.workers, options.timeout_seconds)
        self._shuffle = options.shuffle if shuffle is None else shuffle
        longest = options.longest or options.tokens
        intake = Intake(functions, longest, options.overlong, options.shortest)
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
        self._quarantine = Quarantine(self._exchange)
        self._own = OwnSamples(
            self._source, intake, functions.collate or collate or pad_batch, self._quarantine
        )
        self.counters = Counters()
        self.left_out = 0
        """Usable samples that no rank used in the last complete epoch; 0 in the mode `join`."""
        self.info: BatchInfo | None = None
        """Description of the newest batch."""
        self._epoch = 0
        self._current: Epoch | None = None
        self._all_quarantined = 0
        self._attached: list[Any] = []

    @property
    def epoch(self) -> int:
        """Number of the epoch in progress, or of the next one."""
        return self._epoch

    @property
    def quarantined(self) -> list[Quarantined]:
        """The samples that no rank used, each once, with the reasons; of all epochs and ranks. At most 10,000
        are listed.
        """
        return self._quarantine.samples

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
                yield self._batch(step)
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
        one, current = self.counters, self._current
        newest = current.alignment.all_quarantined if current is not None else 0
        return {
            "padding_ratio": 1 - one.tokens / one.padded if one.padded else 0.0,
            "align_rounds": one.rounds,
            "split_total": one.splits,
            "overflow_total": one.overflows,
            "quarantined_total": self._all_quarantined + newest,
            "align_wait_seconds": self._exchange.wait_seconds,
        }

    def _start(self, number: int, reshares: list[Reshare] | None = None) -> Epoch:
        """Return an epoch at its start, or after the reshares."""
        alignment = Alignment(self.options.alignment(), self.rank, self.world, number, self.counters)
        current = Epoch(number, alignment, reshares or [])
        self._quarantine.start([0] * self.world)
        self._own.start(self._read(number, self._share(current)))
        return current

    def _share(self, current: Epoch) -> Sequence[int]:
        return current.share(self._source.count, self.options.seed, self._shuffle, self.rank, self.world)

    def _read(self, epoch: int, samples: Sequence[int]) -> Iterator[tuple[int, Any]]:
        first = samples[0] if samples else 0
        # Workers draw other random numbers on each rank and in each epoch, and after each restart.
        seed = zlib.crc32(f"{self.options.seed}/{epoch}/{self.rank}/{first}".encode())
        return zip(samples, self._source.read(samples, self.options.window, seed), strict=False)

    def _align(self, current: Epoch) -> bool:
        """Fill the pool and agree on the next steps. Return False at the end of the epoch."""
        alignment = current.alignment
        if (fault := self._own.fill(alignment)) is not None:
            alignment.fail()
        gathered = self._exchange.gather(alignment.propose().numbers())
        proposals = [Proposal(*row) for row in gathered]
        try:
            alignment.receive_proposals(proposals)
        except RankFailedError as error:
            raise (fault or PeerLost(str(error))) from error
        self._quarantine.share([one.quarantined for one in proposals])
        if alignment.ended:
            quarantined = alignment.all_quarantined + current.quarantined
            self._all_quarantined += alignment.all_quarantined
            self.left_out = self._source.count - alignment.used - quarantined
            return False
        plan = alignment.plan()
        # Collate before the ranks agree, so that no rank starts a step that another cannot take.
        fault = self._own.collate(plan.steps)
        rows = self._exchange.gather([int(fault is not None), *plan.numbers(alignment.plan_length)])
        raise_faults([row[0] for row in rows], fault)
        alignment.receive_plans([Plan.from_numbers(row[1:], len(plan.steps)) for row in rows])
        return True

    def _batch(self, step: AlignedStep) -> Any:
        scale = scale_of(self.options.loss_scaling, step, self.world)
        self.info = BatchInfo(step.samples, step.weight, step.all_samples, step.all_weights, scale)
        batch = self._own.next_batch()
        return pinned(batch) if self._source.pin_memory else batch

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
            state["quarantined_before"] = current.quarantined
        return state_text(state)

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Continue from a position that this or another number of ranks has saved. All ranks call it.

        Raises DataError if the dataset has another number of samples, if a sample has another length than
        before, and in the middle of an epoch if the order of the samples is another. If another rank cannot
        read the samples of the position again, raises PeerLost.
        """
        state = state_of(saved, "OnlineBatches", listed="order")
        check_count(state, self._source.count)
        check_order(state, self.options.seed, self._shuffle)
        self._epoch, self._all_quarantined = state["epoch"], state["all_quarantined"]
        self._quarantine.restore(state["quarantined"])
        aligned = state.get("alignment")
        same = aligned is None or aligned["world"] == self.world
        if same and state["rank"] == self.rank:
            self.counters = Counters(**state["counters"])
        self._current = None
        if aligned is None:
            return
        reshares = [Reshare(tuple(one["read"]), tuple(one["unused"])) for one in state["reshares"]]
        if not same:
            reshares.append(Reshare(tuple(aligned["read"]), unused_samples(aligned)))
        current = self._start(aligned["epoch"], reshares)
        current.steps, current.quarantined = 1, state["quarantined_before"]
        if same:
            check_faults(self._exchange, self._resume(current, aligned))
        else:
            self._all_quarantined += sum(aligned["quarantined"])
            current.quarantined += sum(aligned["quarantined"])
            current.alignment.resume_used(aligned)
        self._current = current

    def _resume(self, current: Epoch, aligned: Mapping[str, Any]) -> Exception | None:
        """Put an epoch where this rank has left it: read the samples of the planned steps and of the pool
        again. Return the error if they cannot be read.
        """
        alignment = current.alignment
        alignment.resume(aligned)
        self._quarantine.start(aligned["quarantined"])
        planned, pool = alignment.resumed_samples()
        try:
            again = self._read(current.number, (*planned, *pool))
            self._own.start(self._read(current.number, self._share(current)[alignment.samples_read :]))
            self._own.restore(again, len(planned), alignment)
            if wrong := alignment.changed_steps():
                raise DataError(
                    f"samples {wrong} have other lengths than before the restart, or exceed the budget: "
                    "their preprocessing must not depend on chance, nor the token budget become smaller"
                )
        except Exception as error:
            return error
        return self._own.collate(alignment.own_steps()[0])
