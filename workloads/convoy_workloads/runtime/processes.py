"""The process group of a job, and a second gloo group for Convoy's own collectives."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from convoy_workloads.runtime.rank_context import RankContext
from convoy_workloads.runtime.rendezvous import await_store

_kept: list[Any] = []


def keep_groups() -> None:
    """Keep a reference to the process groups of this process until the process ends.

    Without this reference a DDP module may be the last owner of a group. The module's reducer would then
    wait for gloo's thread while it holds the interpreter's lock. gloo's thread would wait for the same
    lock, so the rank would never end (pytorch#56297). With torch 2.13 this happens in about one of eight
    runs that destroy the group before the module.
    """
    import torch.distributed as dist  # noqa: PLC0415

    if dist.is_available() and dist.is_initialized():
        _kept.extend(group for group in dist.distributed_c10d._world.pg_map if group not in _kept)


def smaller_group(world: int) -> str:
    """Return a warning if this process trains in a group of fewer ranks than the job has; otherwise an
    empty text.

    A program that never forms the job's group trains a separate model in every pod. Without the warning,
    such a job would seem to succeed. Torch must be installed.
    """
    import torch.distributed as dist  # noqa: PLC0415

    size = dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1
    if size >= world:
        return ""
    formed = f"is in a process group of {size}" if size > 1 else "trains alone"
    return (
        f"WARNING: this rank {formed}, but the job has {world} ranks. torch.distributed.init_process_group() "
        "forms their group from the variables RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT"
    )


def all_groups() -> list[Any]:
    """Return the process groups of this process, including the destroyed groups that `keep_groups` has
    kept.
    """
    distributed = sys.modules.get("torch.distributed.distributed_c10d")
    world = getattr(distributed, "_world", None)
    return [*_kept, *(world.pg_map if world is not None else ())]


@dataclass
class Processes:
    """The device and the process groups of this rank. If the rank is alone, it has no group."""

    device: Any
    control: Any = None
    """Gloo group of all ranks that only Convoy uses; None if the rank is alone.

    Because of the separate group, Convoy's collectives never wait for those of the training.
    """
    owned: bool = False

    def control_name(self) -> str:
        """Return torch's name of Convoy's own group; empty if there is none."""
        distributed = sys.modules.get("torch.distributed.distributed_c10d")
        if self.control is None or distributed is None:
            return ""
        return str(distributed._world.pg_names.get(self.control, ""))

    def close(self) -> None:
        """Destroy the training's process group if Convoy formed it."""
        if self.owned:
            import torch.distributed as dist  # noqa: PLC0415

            if dist.is_initialized():
                keep_groups()
                dist.destroy_process_group()
        self.control = None
        self.owned = False


def form(context: RankContext) -> Processes:
    """Choose the device of this rank. If the job has more than one rank, also form the process groups. A
    training group that the program has already formed is kept.

    Without torch there is neither a device nor a group. The ranks then report to the agent, but cannot
    agree with each other.
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
        # Use a longer time limit than the watchdog's. Then the watchdog detects a hang first, and reports the
        # stack of every rank.
        timeout = timedelta(seconds=max(120.0, 2 * context.hang_seconds))
        await_store(context)
        dist.init_process_group("cpu:gloo,cuda:nccl" if cuda else "gloo", timeout=timeout)
    return Processes(device, dist.new_group(backend="gloo"), owned)
