"""How much memory a rank's share of a state will take, before there is a state.

Optimizers make theirs at the first step, and the first save should find its memory ready: the pages of memory
that nobody has touched cost ten times what the copy does.
"""

from __future__ import annotations

from typing import Any

SPARE = 1 << 20
"""Bytes for the index, and for what is no tensor."""
_STATELESS = "SGD"
"""The only optimizer of torch that may keep nothing, or one value, per parameter; most others keep two."""


def estimate_shard_bytes(model: Any, optimizer: Any, world: int) -> int:
    """Bytes of one rank's shard: what is replicated is dealt out, what is sharded stays with its rank."""
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
    """Values that it keeps per parameter."""
    if optimizer is None:
        return 0
    if type(optimizer).__name__ == _STATELESS:
        return int(any(group.get("momentum") for group in optimizer.param_groups))
    return 2
