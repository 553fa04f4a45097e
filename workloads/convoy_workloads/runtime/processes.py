"""The process group of a job, and a gloo group beside it for Convoy's own exchanges."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from convoy_workloads.runtime.rank_context import RankContext
from convoy_workloads.runtime.rendezvous import await_store

_kept: list[Any] = []


def keep_groups() -> None:
    """Holds on to the process groups of this process until it ends.

    Otherwise a DDP module may be a group's last owner. Its reducer then joins gloo's thread with the
    interpreter's lock held, while that thread, dropping its last collective, waits for the lock: the rank
    never ends (pytorch#56297; with torch 2.13 about one run in eight that destroys its group before its
    module).
    """
    import torch.distributed as dist  # noqa: PLC0415

    if dist.is_available() and dist.is_initialized():
        _kept.extend(group for group in dist.distributed_c10d._world.pg_map if group not in _kept)


def smaller_group(world: int) -> str:
    """Return a warning where this process trains in a group of fewer ranks than the job has; else nothing.

    Needs torch. A program that never forms the job's group trains once in every pod, and reports success.
    """
    import torch.distributed as dist  # noqa: PLC0415

    size = dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1
    if size >= world:
        return ""
    formed = f"is in a process group of {size}" if size > 1 else "trains alone"
    return (
        f"WARNING: this rank {formed}, but the job has {world} ranks. torch.distributed.init_process_group() "
        "forms their group, by the variables RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT"
    )


def all_groups() -> list[Any]:
    """Return the process groups of this process, and those it has destroyed since `keep_groups`."""
    distributed = sys.modules.get("torch.distributed.distributed_c10d")
    world = getattr(distributed, "_world", None)
    return [*_kept, *(world.pg_map if world is not None else ())]


@dataclass
class Processes:
    """Device and groups of this rank. Groups are None when the rank is alone."""

    device: Any
    control: Any = None
    """Gloo group of all ranks, so that agreements never queue behind the training's collectives."""
    owned: bool = False

    def close(self) -> None:
        """Leaves the process group."""
        if self.owned:
            import torch.distributed as dist  # noqa: PLC0415

            if dist.is_initialized():
                keep_groups()
                dist.destroy_process_group()
        self.control = None
        self.owned = False


def form(context: RankContext) -> Processes:
    """Picks the device and, with more than one rank, forms the process group unless the program already has.

    A program without torch has neither device nor group: its ranks report, but agree on nothing.
    """
    try:
        import torch  # noqa: PLC0415
        import torch.distributed as dist  # noqa: PLC0415
    except ImportError:
        return Processes(None)
    cuda = torch.cuda.is_available()
    device = (
        torch.device("cuda", context.local_rank % torch.cuda.device_count()) if cuda else torch.device("cpu")
    )
    if cuda:
        torch.cuda.set_device(device)
    if context.world == 1:
        return Processes(device)
    owned = not dist.is_initialized()
    if owned:
        # Collectives give up after the watchdog would have spoken: its report holds every rank's stack.
        timeout = timedelta(seconds=max(120.0, 2 * context.hang_seconds))
        await_store(context)
        dist.init_process_group("cpu:gloo,cuda:nccl" if cuda else "gloo", timeout=timeout)
    return Processes(device, dist.new_group(backend="gloo"), owned)
