"""The conditions under which a restored run yields the same bits as a run that was never interrupted.

DistributedDataParallel (DDP) rebuilds its gradient buckets after the first backward pass, in the order in
which the gradients became ready. The buckets determine the order of floating-point sums over three or more
ranks. A run restored at step 100 would compute step 101 with first-pass buckets, but an uninterrupted run
uses rebuilt buckets. So every start, fresh or restored, first runs two warm-up passes and undoes their
changes.
"""

from __future__ import annotations

import hashlib
import random
import sys
from collections.abc import Callable
from typing import Any

from convoy_workloads.runtime.generation import Record

PASSES = 2
VARYING = "torch may use algorithms on the GPU whose bits vary"


def exact(record: Record, world: int, torch: str, warmed: bool, deterministic: bool) -> bool:
    """Return True if a run of `world` ranks restored from `record` yields the bits of an uninterrupted run.

    `torch`: the installed version; another version may choose other kernels. `warmed`: True if the warm-up
    passes were done. `deterministic`: see `deterministic_on`.
    """
    return record.world == world and record.torch == torch and (warmed or world < 3) and deterministic


def bits_of(record: Record, same: bool, deterministic: bool) -> str:
    """Return in words whether a restored run yields the same bits. `same`: the result of `exact`."""
    saver = f"saved by {record.world} ranks with torch {record.torch}"
    return "bit-exact" if same else f"not bit-exact ({saver if deterministic else VARYING})"


def deterministic_on(device: Any) -> bool:
    """Return True if two runs of the same program compute the same bits on this `torch.device`. On a GPU,
    some kernels add in any order unless the program asks for deterministic algorithms.
    """
    import torch  # noqa: PLC0415

    return device is None or device.type == "cpu" or torch.are_deterministic_algorithms_enabled()


def fingerprint(model: Any, optimizer: Any) -> str:
    """Return the SHA-256, in hex, of this rank's weights, buffers and optimizer state. Equal bits give
    equal fingerprints.
    """
    total = hashlib.sha256()
    moments = optimizer.state_dict()["state"]
    tensors = [value for _, value in sorted(model.state_dict().items())]
    tensors += [moments[index][name] for index in sorted(moments) for name in sorted(moments[index])]
    for tensor in tensors:
        if hasattr(tensor, "detach"):
            total.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return total.hexdigest()


def rng_state() -> dict[str, Any]:
    """Return the states of the random number generators of Python, NumPy and torch.

    NumPy and torch are left out if the program has not loaded them.
    """
    state: dict[str, Any] = {"python": random.getstate()}
    if "numpy" in sys.modules:
        state["numpy"] = sys.modules["numpy"].random.get_state()
    torch = sys.modules.get("torch")
    if torch is not None:
        state["torch"] = torch.get_rng_state()
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            state["cuda"] = torch.cuda.get_rng_state()
    return state


def set_rng_state(state: dict[str, Any]) -> None:
    """Restore the state of the random number generators."""
    random.setstate(state["python"])
    if "numpy" in state and "numpy" in sys.modules:
        sys.modules["numpy"].random.set_state(state["numpy"])
    torch = sys.modules.get("torch")
    if torch is not None and "torch" in state:
        torch.set_rng_state(state["torch"])
        if "cuda" in state and torch.cuda.is_available():
            torch.cuda.set_rng_state(state["cuda"])


def run_warmup_passes(model: Any, one_pass: Callable[[], None], passes: int = PASSES) -> None:
    """Run `one_pass` (forward and backward, without an optimizer step) and undo its changes.

    Afterwards weights, buffers, gradients and generators are as before, but DDP has its final buckets.
    """
    before = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
    generators = rng_state()
    for _ in range(passes):
        one_pass()
        model.zero_grad(set_to_none=True)
    import torch  # noqa: PLC0415

    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            tensor.copy_(before[name])
    set_rng_state(generators)
