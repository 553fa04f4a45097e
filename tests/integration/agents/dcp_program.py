"""The program of a rank that saves its state with torch.distributed.checkpoint. Its argument is a JSON
object with the options of `keep` or `train`.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

import convoy
from convoy.dcp import ConvoyReader, ConvoyWriter


def made(step: int, boxes: int = -1, rows: int = 7) -> dict[str, Any]:
    """Return the training state after a step. If `boxes` is at least 0, the large tensor is sharded over
    the ranks along the dimension `boxes`.
    """
    large = torch.arange(rows * 11, dtype=torch.float32).reshape(rows, 11) * step
    if boxes >= 0 and dist.is_initialized():
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        large = distribute_tensor(large, mesh, [Shard(boxes)])
    return {
        "model": {"large": large, "same": torch.full((5,), step, dtype=torch.bfloat16)},
        "count": step,
        "nested": {"pair": (step, 2.5), "text": f"after {step}", "none": None, "raw": bytes([step, 255])},
    }


def described(state: dict[str, Any]) -> str:
    """Return a digest of the whole state. It is the same for every sharding of the state over ranks."""
    large = state["model"]["large"]
    whole = large.full_tensor() if isinstance(large, DTensor) else large
    rest = (state["model"]["same"].tolist(), state["count"], state["nested"])
    return hashlib.sha256(whole.numpy().tobytes() + repr(rest).encode()).hexdigest()[:16]


def keep(wish: dict[str, Any]) -> None:
    """Load the newest saved state. Then save a state for each (step, rows) pair in `wish["steps"]`, and
    print whether the save succeeded.
    """
    with convoy.join() as job:
        state = made(0, wish["boxes"])
        with ConvoyReader(job) as reader:
            if reader.generation is not None:
                dcp.load(state, storage_reader=reader)
        print(f"FOUND {reader.step} {described(state)}", flush=True)
        for step, rows in wish["steps"]:
            while wish.get("wait") and not Path(f"{wish['wait']}-{step}").exists():
                time.sleep(0.02)
            state = made(step, wish["boxes"], rows)
            if step in wish.get("broken", []) and job.rank == 1:
                state["own"] = object()  # this object cannot be serialized, so the save fails on this rank
            writer = ConvoyWriter(job, step)
            try:
                if wish.get("asynchronous"):
                    future: Any = dcp.async_save(state, storage_writer=writer)
                    state["model"]["same"].zero_()
                    future.result()
                else:
                    dcp.save(state, storage_writer=writer)
            except CheckpointException as error:
                print(f"REFUSED {step} {str(error).splitlines()[-1]}", flush=True)
                continue
            print(f"SAVED {step} {writer.settle(wish.get('timeout', 30.0))}", flush=True)
    print("END", flush=True)


def train(total: int) -> None:
    """Train a small model for `total` steps in a `job.steps` loop. Save the state after each step for which
    `job.due` is True.
    """
    with convoy.join() as job:
        torch.manual_seed(1)
        model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Tanh(), torch.nn.Linear(32, 4))
        net = DistributedDataParallel(model)
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)

        def state() -> dict[str, Any]:
            weights, moments = get_state_dict(model, optimizer)
            return {"model": weights, "optimizer": moments}

        if os.environ.get("CONVOY_SOCKET"):
            with ConvoyReader(job) as reader:
                if reader.generation is not None:
                    found = state()
                    dcp.load(found, storage_reader=reader)
                    set_state_dict(
                        model, optimizer, model_state_dict=found["model"], optim_state_dict=found["optimizer"]
                    )
        for step in job.steps(total):
            generator = torch.Generator().manual_seed(1000 * step + job.rank)
            optimizer.zero_grad()
            loss = net(torch.randn(4, 8, generator=generator)).square().mean()
            loss.backward()
            optimizer.step()
            job.report(step, loss=loss)
            if job.due(step):
                dcp.save(state(), storage_writer=ConvoyWriter(job, step))
            print(f"STEP {step}", flush=True)
            if os.environ.get("SLOW"):
                time.sleep(float(os.environ["SLOW"]))
        weights = b"".join(value.numpy().tobytes() for value in model.state_dict().values())
        print(f"BITS {hashlib.sha256(weights).hexdigest()}", flush=True)
    print("END", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    wish = json.loads(sys.argv[1])
    if "total" in wish:
        train(wish["total"])
    else:
        keep(wish)
