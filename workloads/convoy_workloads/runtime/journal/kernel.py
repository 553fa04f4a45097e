"""A description of the code that computes the optimizer's steps. Other code, another number of threads,
another device or another version of torch may round differently.

Measured with torch 2.13 on a CPU: fused AdamW computes other parameters than the other kernels. SGD in
bfloat16 computes other values with another number of threads, because each thread's share ends in a loop
that is not vectorised.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import torch
from torch.optim.optimizer import _default_to_fused_or_foreach

from convoy_workloads.runtime.journal.allowed import OWN


@dataclass(frozen=True)
class Kernel:
    """A description of the code and device that compute an optimizer's steps. Equal kernels compute equal
    bits from equal inputs.
    """

    optimizer: str
    source: str
    """Digest of the source of an optimizer class that is not torch's; empty for torch's own classes."""
    groups: tuple[str, ...]
    """For each parameter group: `fused`, `foreach` or `single`, or `own` for a class that has none of these
    variants.
    """
    torch: str
    device: str
    """Type and model of the device that computes the steps."""
    threads: int
    """Number of threads; 0 if the device is not a CPU."""

    def to_json(self) -> dict[str, Any]:
        """Return the kernel as the object that a segment stores."""
        return asdict(self)

    @staticmethod
    def from_json(body: Mapping[str, Any]) -> Kernel:
        """Return the Kernel that `to_json` encoded. Raises KeyError, TypeError or ValueError for any other
        object.
        """
        kernel = Kernel(
            body["optimizer"],
            body["source"],
            tuple(body["groups"]),
            body["torch"],
            body["device"],
            body["threads"],
        )
        texts = (kernel.optimizer, kernel.source, kernel.torch, kernel.device, *kernel.groups)
        if type(kernel.threads) is not int or not all(isinstance(one, str) for one in texts):
            raise ValueError("no kernel")
        return kernel

    def difference(self, other: Kernel) -> str:
        """Return how `other` differs from this kernel; empty if they are equal."""
        found = [
            f"{one.name} was {getattr(self, one.name)}, is {getattr(other, one.name)}"
            for one in fields(self)
            if getattr(self, one.name) != getattr(other, one.name)
        ]
        return "; ".join(found)


def kernel_of(optimizer: torch.optim.Optimizer) -> Kernel:
    """Return the Kernel with which torch would compute a step of `optimizer` at this moment."""
    kind: Any = type(optimizer)
    first = next(one for group in optimizer.param_groups for one in group["params"])
    on_cpu = first.device.type == "cpu"
    return Kernel(
        f"{kind.__module__}.{kind.__qualname__}",
        "" if kind in OWN else _source(kind),
        tuple(_resolved(group) for group in optimizer.param_groups),
        str(torch.__version__),
        _device(first.device),
        torch.get_num_threads() if on_cpu else 0,
    )


def _resolved(group: Mapping[str, Any]) -> str:
    if "fused" not in group and "foreach" not in group:
        return "own"
    fused, foreach = group.get("fused"), group.get("foreach")
    if fused is None and foreach is None:
        _, foreach = _default_to_fused_or_foreach(group["params"], False, use_fused=False)
    return "fused" if fused else "foreach" if foreach else "single"


@functools.lru_cache
def _device(device: torch.device) -> str:
    if device.type == "cpu":
        return f"cpu {torch.backends.cpu.get_cpu_capability()}"
    if device.type == "cuda":
        return f"cuda {torch.cuda.get_device_name(device)}"
    return device.type


@functools.lru_cache
def _source(kind: type) -> str:
    try:
        text = inspect.getsource(kind)
    except (OSError, TypeError):
        return "unknown"
    return hashlib.sha256(text.encode()).hexdigest()[:16]
