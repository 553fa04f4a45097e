"""An estimate of the memory that a rank's share of a state takes, before the state exists.

Optimizers allocate their state at the first step, and the first save should find its memory ready. Touching
new pages costs ten times as much as the copy.
"""

from __future__ import annotations

from typing import Any

SPARE = 1 << 20
"""Bytes for the index and for values that are not tensors."""
_STATELESS = "SGD"
"""The only optimizer of torch that may keep no value, or one, per parameter. Most others keep two."""


def estimate_shard_bytes(model: Any, optimizer: Any, world: int) -> int:
    """Return the bytes of one rank's shard. Replicated tensors are divided among ranks; sharded ones stay
    with their rank.
    """
    own = shared = 0
    for tensor in [*model.parameters(), *model.buffers()]:
        local = getattr(tensor, "_local_tensor", None)
        if local is not None:
            own += local.numel() * local.element_size()
        else:
            shared += tensor.numel() * tensor.element_size()
    trained = 1 + _copies(optimizer)
    return trained * own + -(-trained * shared // world) + SPARE


def _copies(optimizer: Any) -> int:
    """Return the number of values that the optimizer keeps per parameter."""
    if optimizer is None:
        return 0
    if type(optimizer).__name__ == _STATELESS:
        return int(any(group.get("momentum") for group in optimizer.param_groups))
    return 2
