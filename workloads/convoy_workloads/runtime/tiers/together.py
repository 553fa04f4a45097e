"""What the ranks find out together, over a gloo group of all of them; alone, each for itself."""

from __future__ import annotations

from typing import Any


def gather(value: Any, group: Any) -> list[Any]:
    """What every rank has, by rank. All ranks of `group` call it; None: alone."""
    if group is None:
        return [value]
    import torch.distributed as dist  # noqa: PLC0415

    found: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(found, value, group=group)
    return found


def all_hold(holds: bool, group: Any) -> bool:
    """Whether it holds on every rank. All ranks of `group` call it; None: alone."""
    if group is None:
        return holds
    import torch  # noqa: PLC0415
    import torch.distributed as dist  # noqa: PLC0415

    flag = torch.tensor([int(not holds)])
    dist.all_reduce(flag, op=dist.ReduceOp.MAX, group=group)
    return not int(flag.item())
