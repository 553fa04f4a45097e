"""The translation of Hugging Face Trainer's events into steps of a job. `convoy.hf.ConvoyCallback`
documents its use.

Trainer decides where its data starts before it sends its first event. So a callback that restores a state
must move the data itself. It sets the loader's epoch, which determines the shuffling, and makes the loader
skip batches. accelerate's loaders support both.

A step ends, and may be saved, only when the next step starts. So the saved state includes everything that
happens between two steps, such as an evaluation or the scheduler's step. The random number generators are
saved in the state in which the next step uses them.
"""

from __future__ import annotations

import sys
from typing import Any

from convoy_workloads.runtime.errors import DataError
from convoy_workloads.runtime.exactness import rng_state, set_rng_state
from convoy_workloads.runtime.job import Job
from convoy_workloads.runtime.tiers import values

_SAVED_FIELDS = (
    "epoch",
    "global_step",
    "total_flos",
    "num_input_tokens_seen",
    "log_history",
    "best_metric",
    "best_global_step",
    "best_model_checkpoint",
)
"""The fields of TrainerState that are saved. Trainer creates all other fields from its arguments."""


class Progress:
    """The progress fields of TrainerState, as an object that can be saved and loaded."""

    def __init__(self, state: Any) -> None:
        self._state = state

    def state_dict(self) -> dict[str, Any]:
        """Return all fields in one text. Separate values would become one dcp entry per log line."""
        found = {name: getattr(self._state, name) for name in _SAVED_FIELDS if hasattr(self._state, name)}
        return {"text": values.dumps(found)}

    def load_state_dict(self, found: dict[str, Any]) -> None:
        """Set TrainerState's progress fields to the saved values in `found`."""
        for name, value in values.loads(found["text"]).items():
            if hasattr(self._state, name):
                setattr(self._state, name, value)


class TrainerFollower:
    """Reports and saves the steps of one call of `trainer.train()`."""

    def __init__(self, job: Job[Any]) -> None:
        self._job = job
        self._steps: Any = None
        """The generator that `job.steps` returned; None before and after the training."""
        self._started = False
        self._finished_step = 0
        """Number of a finished step for which `job.checkpoint` has not been called yet; 0 if there is none.
        """
        self._generators: dict[str, Any] | None = None
        """Restored state of the random number generators, kept until the first step starts."""
        self._first_epoch = 0
        """Number of complete epochs in the restored state. `_epoch_fraction` is the completed part of the
        next epoch.
        """
        self._epoch_fraction = 0.0
        self._epoch_set = False
        """True once the loader's epoch has been set in the current epoch."""
        self._skipping: Any = None
        """The loader that skips batches; None if no batches are skipped."""
        self._averaged = False
        """True if Trainer has logged an average loss since the restore. Only the first one is wrong."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **objects: Any) -> None:
        """Restore the model, the optimizer, the scheduler and Trainer's progress, or start fresh.

        Raises DataError if this object has already followed a training, if Trainer resumes from a folder,
        or if the loader cannot skip batches.
        """
        if self._started:
            raise DataError("a ConvoyCallback follows one training: create another one for the next")
        if state.global_step:
            raise DataError(
                "the callback restores the state itself: call train() without resume_from_checkpoint"
            )
        self._started = True
        optimizer = objects["optimizer"]
        extra: dict[str, Any] = {"trainer": Progress(state)}
        if hasattr(objects.get("lr_scheduler"), "load_state_dict"):
            extra["scheduler"] = objects["lr_scheduler"]
        if getattr(optimizer, "scaler", None) is not None:
            extra["scaler"] = optimizer.scaler
        # accelerate wraps the optimizer, but `restore` needs the optimizer inside the wrapper.
        while hasattr(optimizer, "optimizer"):
            optimizer = optimizer.optimizer
        if self._job.restore(model=objects["model"], optimizer=optimizer, extra=extra).step:
            self._generators = rng_state()
            self._seek_data(args, state, objects["train_dataloader"])
        self._steps = self._job.steps(state.max_steps)
        next(self._steps, None)

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Save the state after the previous step if a save is due. If the job was told to stop, save the
        state and raise SystemExit.
        """
        self._close()
        if self._generators is not None:
            set_rng_state(self._generators)
            self._generators = None

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Report the step that Trainer has finished, with its number of samples."""
        state.epoch += self._first_epoch + self._epoch_fraction
        samples = args.train_batch_size * args.gradient_accumulation_steps * args.world_size
        self._job.report(state.global_step, samples=samples)
        self._finished_step = state.global_step

    def on_epoch_end(self, args: Any, state: Any, control: Any, **objects: Any) -> None:
        """Make the loader skip no more batches. Batches are skipped only in the restored epoch, which has
        ended.
        """
        self._epoch_set = False
        if self._skipping is not None:
            self._skipping.skip_batches = 0
            self._skipping, self._epoch_fraction = None, 0.0
            # After skipped batches, the last batches of the epoch may be too few for a step. Trainer counts
            # the skipped batches as if it had trained on them, so it expects more batches and makes no step.
            # Drop the gradients of these last batches.
            objects["model"].zero_grad()

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        """Report the loss. Correct the first loss that Trainer logs after a restore.

        Trainer sums the losses of the steps since the restore, but divides the sum by all steps of the run.
        Callbacks that run after this one see the corrected loss.
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
        """Renew the heartbeat during an evaluation, which makes no steps."""
        if self._steps is not None:
            self._job.report(state.global_step)

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any = None, **_: Any) -> None:
        """Report the loss of the evaluation set as the metric `held_out_loss`."""
        if self._steps is not None and "eval_loss" in (metrics or {}):
            self._job.report(state.global_step, metrics={"held_out_loss": metrics["eval_loss"]})

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Save the job's final state, unless the training was stopped early."""
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
        """Compute the position of the restored run in its data, and make the loader start there."""
        each = args.gradient_accumulation_steps
        finished = state.global_step >= state.max_steps
        try:
            batches = len(loader)
        except TypeError as error:  # A stream has no length, so Trainer treats the whole run as one epoch.
            if finished:
                raise DataError(f"the training ended with step {state.max_steps}") from error
            batches = state.max_steps * each
        self._first_epoch, steps = divmod(state.global_step, max(1, -(-batches // each)))
        if self._first_epoch and hasattr(loader, "set_epoch"):
            self._shift_epochs(loader)
        over = steps * each
        if args.ignore_data_skip:
            over = 0
        self._epoch_fraction = over / batches
        if finished:
            # Skip all batches. Otherwise Trainer would make one more step, although all steps are done.
            over = sys.maxsize
        if not over:
            return
        if not hasattr(loader, "skip_batches"):
            raise DataError(
                f"a {type(loader).__qualname__} cannot skip the batches that were trained on: prepare "
                "it with accelerate, or let the data start again (ignore_data_skip=True)"
            )
        loader.skip_batches = over
        self._skipping = loader

    def _shift_epochs(self, loader: Any) -> None:
        """Make the loader add `_first_epoch` to the epochs that Trainer counts from 0.

        In each epoch `set_epoch` is called twice: by Trainer with Trainer's number, then by the loader with
        the number that is already set. So only the first call of an epoch adds `_first_epoch`.
        """
        set_epoch = loader.set_epoch

        def shifted(epoch: int) -> None:
            set_epoch(epoch if self._epoch_set else self._first_epoch + epoch)
            self._epoch_set = True

        loader.set_epoch = shifted
