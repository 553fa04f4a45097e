"""For programs that train with Hugging Face's Trainer: `Trainer(..., callbacks=[ConvoyCallback(job)])`.

Needs transformers, which `import convoy` alone does not.
"""

from __future__ import annotations

try:
    from transformers import TrainerCallback
except ImportError as error:
    raise ImportError(
        "convoy.hf is for programs that train with Hugging Face's Trainer: transformers cannot be imported"
    ) from error

from convoy_workloads.runtime.adapters.trainer import TrainerFollower

__all__ = ["ConvoyCallback"]


class ConvoyCallback(TrainerFollower, TrainerCallback):  # type: ignore[misc]
    """Restores, reports and saves a training of Trainer; each call of `train()` takes its own.

    ```python
    with convoy.join() as job:
        Trainer(model, args, train_dataset=data, callbacks=[ConvoyCallback(job)]).train()
    ```

    Restored as the training begins: the weights, the optimizer, the learning rate's scheduler, the loss
    scaler of mixed precision, each rank's generators of random numbers, and Trainer's count (steps, epochs,
    tokens, log, best metric). The data go on where they were: the epoch decides how they are shuffled, and
    those batches of it that were trained on are loaded and passed over. On the same number of ranks, with
    data that draw no random numbers as they are loaded, the run then goes on with the same bits as one that
    was never interrupted; with DistributedDataParallel on three or more ranks it does not, since their sums
    take another order at first.

    Not restored: the inner state of other callbacks, such as the patience of EarlyStoppingCallback; gradients
    of a step that was not finished; random changes that a loader makes to its samples; the sum of losses, so
    `train_loss` is too small. Batches at the end of the restored epoch that are too few for a step, where
    gradient_accumulation_steps does not divide an epoch, are left out. The first loss after a restore is
    right in Trainer's log, but not for callbacks that are told before this one, such as those of `report_to`.
    DeepSpeed's engine is not supported.

    Whether to save is decided when a step begins, as `spec.checkpoint` wants it; `save_strategy="no"` spares
    Trainer's own checkpoints. Asked to leave, it saves, and `train()` ends with SystemExit (exit code 75).

    Sources: transformers, trainer_callback.py for the events and trainer.py for what a resumption takes.
    """
