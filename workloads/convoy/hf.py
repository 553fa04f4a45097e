"""A callback for Hugging Face's Trainer: `Trainer(..., callbacks=[ConvoyCallback(job)])`.

This module needs transformers. `import convoy` alone does not.
"""

from __future__ import annotations

try:
    from transformers import TrainerCallback
except ImportError as error:
    raise ImportError(
        "convoy.hf needs the package transformers, but transformers cannot be imported: install it"
    ) from error

from convoy_workloads.runtime.adapters.trainer import TrainerFollower

__all__ = ["ConvoyCallback"]


class ConvoyCallback(TrainerFollower, TrainerCallback):  # type: ignore[misc]
    """Restores the state of a Hugging Face training, reports its steps and saves its state. Each call of
    `train()` needs its own callback.

    ```python
    with convoy.join() as job:
        Trainer(model, args, train_dataset=data, callbacks=[ConvoyCallback(job)]).train()
    ```

    When the training starts, the callback restores:

    - the weights, the optimizer, the learning-rate scheduler and the loss scaler of mixed precision,
    - the random number generators of each rank,
    - Trainer's progress: steps, epochs, tokens, log and best metric,
    - the position in the data. The epoch determines the shuffling. The batches that were trained on in this
      epoch are loaded and skipped.

    On the same number of ranks, the run then yields the same bits as an uninterrupted run. There are two
    exceptions: data that draw random numbers while they are loaded, and DistributedDataParallel on three or
    more ranks, which sums the gradients of the first step after a restore in another order.

    The callback does not restore:

    - the internal state of other callbacks, such as the patience of EarlyStoppingCallback,
    - the gradients of an unfinished step,
    - random changes that a loader makes to its samples,
    - the sum of losses, so `train_loss` is too small,
    - the last batches of the restored epoch, if they are too few for a step because
      gradient_accumulation_steps does not divide the epoch.

    The first loss after a restore needs a correction, which this callback makes. Trainer's log and later
    callbacks get the correct loss. Callbacks that run before this one, such as those of `report_to`, get a
    wrong first loss.

    DeepSpeed's engine is not supported.

    At the start of each step the callback decides, by `spec.checkpoint`, whether to save. Set
    `save_strategy="no"` to avoid Trainer's own checkpoints. When Convoy stops the ranks, the callback saves
    and `train()` ends with SystemExit (exit code 75).

    Sources in the package transformers: trainer_callback.py for the events, trainer.py for the state that a
    resume restores.
    """
