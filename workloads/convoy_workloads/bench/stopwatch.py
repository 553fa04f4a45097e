"""The command `python -m convoy_workloads.bench.stopwatch RESULT MODULE [ARGUMENT...]`, which times a
training program.

The module runs unchanged as `__main__`. Hooks on PyTorch record the time of every optimizer step and the
last loss, so the measurement does not depend on the launcher. Rank 0 writes the result when the module
ends:

- `seconds_per_step`, `processor_seconds_per_step`: means over the steps. The first tenth of the steps is
  left out, because the program warms up in it. Processor time is that of rank 0's process.
- `loss`: loss of the last backward pass.
- `parameters`: SHA-256 of the parameters after the last step. It is equal if and only if all bits are equal.
"""

from __future__ import annotations

import hashlib
import json
import os
import runpy
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

WARM_UP = 10
"""Divisor of the number of steps. The first 1/WARM_UP of the steps is not included in the means."""


class Stopwatch:
    """Records, by hooks on PyTorch, the times of the optimizer steps, the optimizer and the last loss."""

    def __init__(self) -> None:
        self._wall: list[float] = []
        self._processor: list[float] = []
        self._optimizer: torch.optim.Optimizer | None = None
        self._loss: torch.Tensor | None = None

    def install(self) -> None:
        """Install the hooks for every optimizer and every backward pass of this process."""
        backward = torch.Tensor.backward

        def observed(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> None:
            self._loss = tensor.detach()
            backward(tensor, *args, **kwargs)  # type: ignore[no-untyped-call]

        torch.Tensor.backward = observed  # type: ignore[method-assign, assignment]
        register_optimizer_step_post_hook(self._on_step)

    def _on_step(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        self._optimizer = optimizer
        self._wall.append(time.perf_counter())
        self._processor.append(time.process_time())

    def result(self) -> dict[str, Any]:
        """Return the measurements. Raises ValueError if there were fewer than three steps."""
        if self._optimizer is None or self._loss is None or len(self._wall) < 3:
            raise ValueError(f"{len(self._wall)} optimizer steps are too few to time: run at least 3")
        first = len(self._wall) // WARM_UP
        steps = len(self._wall) - 1 - first
        total = hashlib.sha256()
        for group in self._optimizer.param_groups:
            for tensor in group["params"]:
                total.update(tensor.detach().cpu().contiguous().numpy().tobytes())
        return {
            "steps": len(self._wall),
            "seconds_per_step": (self._wall[-1] - self._wall[first]) / steps,
            "processor_seconds_per_step": (self._processor[-1] - self._processor[first]) / steps,
            "loss": float(self._loss),
            "parameters": total.hexdigest(),
        }


def main() -> None:
    """Run the module with the hooks of the stopwatch."""
    result, module, *arguments = sys.argv[1:]
    watch = Stopwatch()
    watch.install()
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
    if os.environ.get("RANK", "0") == "0":
        Path(result).write_text(json.dumps(watch.result()))
    if "TORCHELASTIC_RUN_ID" in os.environ:
        # Exit without destructors, as Convoy's ranks do. Otherwise, in about one of 40 runs, threads of torch
        # abort a process of torchrun while the interpreter ends ("terminate called without an active
        # exception").
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


if __name__ == "__main__":
    main()
