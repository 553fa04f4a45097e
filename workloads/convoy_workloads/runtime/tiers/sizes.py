"""An estimate of the memory for a rank's shard, made before the optimizer has its state.

Optimizers allocate their state at the first step. But the memory for the first save must be ready earlier,
because the first access to a new page takes ten times as long as the copy.
"""

from __future__ import annotations

from typing import Any

SPARE = 1 << 20
"""Spare bytes for the index and for values that are not tensors."""
_STATELESS = "SGD"
"""Class name of the optimizer SGD, which keeps one value per parameter with momentum, and none without. All
other optimizers count as keeping two values per parameter, which most of them do.
"""


def estimate_shard_bytes(model: Any, optimizer: Any, world: int) -> int:
    """Return the estimated size of one rank's shard in bytes.

    Replicated tensors are divided evenly among the ranks. Of a sharded tensor, the rank saves the part that
    it holds.
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
