"""The events of Hugging Face's Trainer as steps of a job. `convoy.hf.ConvoyCallback` says what that gives.

Trainer decides where its data begin before its first event, so a callback that restores then has to take the
data there itself: by the epoch it tells the loader, whose shuffling follows from it, and by batches that the
loader passes over. accelerate's loaders can do both.

A step is closed, and perhaps saved, when the next one begins: what comes between, such as an evaluation or
the step of the scheduler, belongs to the state then, and the generators are as the next step will find them.
"""

from __future__ import annotations

import sys
from typing import Any

from convoy_workloads.runtime.errors import DataError
from convoy_workloads.runtime.exactness import rng_state, set_rng_state
from convoy_workloads.runtime.job import Job
from convoy_workloads.runtime.tiers import values

_KEPT = (
    "epoch",
    "global_step",
    "total_flos",
    "num_input_tokens_seen",
    "log_history",
    "best_metric",
    "best_global_step",
    "best_model_checkpoint",
)
"""Of TrainerState; the rest is made anew from the arguments, as Trainer itself does when it resumes."""


class Progress:
    """What TrainerState knows of a run, as an object that is saved and loaded into."""

    def __init__(self, state: Any) -> None:
        self._state = state

    def state_dict(self) -> dict[str, Any]:
        """One text: dcp would make an entry of each line of the log."""
        found = {name: getattr(self._state, name) for name in _KEPT if hasattr(self._state, name)}
        return {"text": values.dumps(found)}

    def load_state_dict(self, found: dict[str, Any]) -> None:
        """Puts it back."""
        for name, value in values.loads(found["text"]).items():
            if hasattr(self._state, name):
                setattr(self._state, name, value)


class TrainerFollower:
    """Follows one call of `trainer.train()`."""

    def __init__(self, job: Job[Any]) -> None:
        self._job = job
        self._steps: Any = None
        """Of the job, a generator; None before the training and after it."""
        self._started = False
        self._finished_step = 0
        """The step that is done and not closed."""
        self._generators: dict[str, Any] | None = None
        """Of the restored state, until the first step finds them."""
        self._first_epoch = 0
        """Whole epochs that the restored state has behind it, and `_part` of the next."""
        self._epoch_fraction = 0.0
        self._epoch_set = False
        """Whether the loader knows which epoch it is."""
        self._skipping: Any = None
        """The loader, while it passes over batches."""
        self._averaged = False
        """Whether Trainer has logged a loss since the restore."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **objects: Any) -> None:
        """Restores model, optimizer, scheduler and Trainer's count, or begins anew. DataError for a second
        training, for one that resumes from a folder, and for a loader that cannot pass over batches.
        """
        if self._started:
            raise DataError("a ConvoyCallback follows one training: make another for the next")
        if state.global_step:
            raise DataError("the callback restores what was saved: train() without resume_from_checkpoint")
        self._started = True
        optimizer = objects["optimizer"]
        extra: dict[str, Any] = {"trainer": Progress(state)}
        if hasattr(objects.get("lr_scheduler"), "load_state_dict"):
            extra["scheduler"] = objects["lr_scheduler"]
        if getattr(optimizer, "scaler", None) is not None:
            extra["scaler"] = optimizer.scaler
        while hasattr(optimizer, "optimizer"):  # accelerate wraps it
            optimizer = optimizer.optimizer
        if self._job.restore(model=objects["model"], optimizer=optimizer, extra=extra).step:
            self._generators = rng_state()
            self._seek_data(args, state, objects["train_dataloader"])
        self._steps = self._job.steps(state.max_steps)
        next(self._steps, None)

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Closes the step before; leaves, saved, when the job is asked to (SystemExit)."""
        self._close()
        if self._generators is not None:
            set_rng_state(self._generators)
            self._generators = None

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Tells how far the training is."""
        state.epoch += self._first_epoch + self._epoch_fraction
        samples = args.train_batch_size * args.gradient_accumulation_steps * args.world_size
        self._job.report(state.global_step, samples=samples)
        self._finished_step = state.global_step

    def on_epoch_end(self, args: Any, state: Any, control: Any, **objects: Any) -> None:
        """From here on no batch is passed over."""
        self._epoch_set = False
        if self._skipping is not None:
            self._skipping.skip_batches = 0
            self._skipping, self._epoch_fraction = None, 0.0
            # Of batches that are too few for a step: Trainer has not seen the epoch's begin and expects more.
            objects["model"].zero_grad()

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        """Passes the loss on. The first after a restore Trainer has divided by all steps of the run, of which
        only those since are in it: put right for those who are told later.
        """
        restored, step = self._job.restored.step, state.global_step
        if self._steps is None or "loss" not in (logs or {}) or step <= restored:
            return
        if restored and not self._averaged:
            logs["loss"] *= step / (step - restored)
            if state.log_history and "loss" in state.log_history[-1]:
                state.log_history[-1]["loss"] = logs["loss"]
        self._averaged = True
        self._job.report(step, loss=logs["loss"])

    def on_prediction_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """An evaluation makes no steps: a sign of life."""
        if self._steps is not None:
            self._job.report(state.global_step)

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any = None, **_: Any) -> None:
        """Reports the loss of the evaluation set as the metric `held_out_loss`."""
        if self._steps is not None and "eval_loss" in (metrics or {}):
            self._job.report(state.global_step, metrics={"held_out_loss": metrics["eval_loss"]})

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Saves what the job ends with, unless the training was stopped early."""
        self._close()
        if self._steps is not None:
            self._steps.close()
            self._steps = None

    def _close(self) -> None:
        if self._finished_step and self._steps is not None:
            self._job.checkpoint(self._finished_step)
            next(self._steps, None)
        self._finished_step = 0

    def _seek_data(self, args: Any, state: Any, loader: Any) -> None:
        """Where the restored run is in its data, and has the loader begin there."""
        each = args.gradient_accumulation_steps
        finished = state.global_step >= state.max_steps
        try:
            batches = len(loader)
        except TypeError as error:  # a stream: Trainer takes the whole run for one epoch
            if finished:
                raise DataError(f"the training was over with step {state.max_steps}") from error
            batches = state.max_steps * each
        self._first_epoch, steps = divmod(state.global_step, max(1, -(-batches // each)))
        if self._first_epoch and hasattr(loader, "set_epoch"):
            self._shift_epochs(loader)
        over = steps * each
        if args.ignore_data_skip:
            over = 0
        self._epoch_fraction = over / batches
        if finished:
            over = sys.maxsize  # Trainer would make one step more, whatever its count says
        if not over:
            return
        if not hasattr(loader, "skip_batches"):
            raise DataError(
                f"a {type(loader).__qualname__} cannot pass over the batches that were trained on: prepare "
                "it with accelerate, or let the data begin anew (ignore_data_skip=True)"
            )
        loader.skip_batches = over
        self._skipping = loader

    def _shift_epochs(self, loader: Any) -> None:
        """Has the loader take the epochs that Trainer counts from 0 for those from `_first` on.

        In each epoch Trainer tells it first; then it tells itself what it was told.
        """
        set_epoch = loader.set_epoch

        def shifted(epoch: int) -> None:
            set_epoch(epoch if self._epoch_set else self._first_epoch + epoch)
            self._epoch_set = True

        loader.set_epoch = shifted
