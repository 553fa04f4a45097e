"""Tests of the times that torch itself measures for a step, with two real ranks: work, waiting, and the
causes of waiting.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from tests.unit.workloads import rank_processes
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset

from convoy_workloads.runtime.telemetry import torch_hooks
from convoy_workloads.runtime.telemetry.step_recorder import StepRecorder

SLOW = 0.2
"""Seconds by which each pass takes longer on rank 1."""
LOADING = 0.1
"""Seconds that rank 0 waits for the input of each pass."""
TOGETHER = 0.4
"""Seconds by which rank 1 is late at the first collective of `together`."""
NUMBERS = 32 * 1024
"""Number of 4-byte values in a collective that is large enough to be reported."""
STEPS = 4


class Slow(torch.autograd.Function):
    """A pass that takes a fixed time in each direction."""

    @staticmethod
    def forward(context: Any, inputs: torch.Tensor, seconds: float) -> torch.Tensor:
        context.seconds = seconds
        time.sleep(seconds)
        return inputs.clone()

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        time.sleep(context.seconds)
        return gradients[0], None


class Model(nn.Module):
    """A model whose forward and backward passes are slow on rank 1."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        self._slow = SLOW * rank
        self.first, self.second = nn.Linear(64, 64), nn.Linear(64, 64)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.second(Slow.apply(self.first(inputs), self._slow))  # type: ignore[no-untyped-call]


class Inputs(IterableDataset[torch.Tensor]):
    """Input that is late on rank 0."""

    def __init__(self, rank: int) -> None:
        self._late = LOADING * (1 - rank)

    def __iter__(self) -> Iterator[torch.Tensor]:
        while True:
            time.sleep(self._late)
            yield torch.ones(8, 64)


def together(rank: int, lanes: Any) -> None:
    """Run the program's own collectives. Rank 1 arrives late at the first reduction.

    Only the first reduction and the gather are reported. All others are too small, asynchronous, sparse or
    coalesced.
    """
    dist.barrier()
    time.sleep(TOGETHER * rank)
    dist.all_reduce(torch.ones(NUMBERS))
    dist.all_gather([torch.zeros(NUMBERS) for _ in range(2)], torch.ones(NUMBERS), group=lanes)
    dist.all_reduce(torch.ones(4))
    dist.all_reduce(torch.ones(2 * NUMBERS), async_op=True).wait()
    sparse = torch.sparse_coo_tensor(torch.tensor([[0]]), torch.ones(1), (NUMBERS,))
    dist.all_reduce(sparse)
    with dist.distributed_c10d._coalescing_manager():
        dist.all_reduce(torch.ones(4 * NUMBERS))


def exchange(rank: int) -> None:
    """Send a message to the other rank, and receive one."""
    ours, theirs = torch.ones(1), torch.zeros(1)
    peer = 1 - rank
    messages = [dist.P2POp(dist.isend, ours, peer), dist.P2POp(dist.irecv, theirs, peer)]
    for work in dist.batch_isend_irecv(messages):
        work.wait()


def train(rank: int, folder: Path, passes: int, out: Any) -> None:
    torch.set_num_threads(1)
    os.environ.update(RANK=str(rank), WORLD_SIZE="2")
    reported: list[dict[str, Any]] = []
    recorder = torch_hooks.install()
    recorder.send = reported.append
    assert torch_hooks.install() is recorder
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2, timeout=timedelta(seconds=60)
    )
    lanes = dist.new_group([0, 1], group_desc="mesh_tp")
    model = DistributedDataParallel(Model(rank))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    batches = iter(DataLoader(Inputs(rank), batch_size=None))
    for number in range(1, STEPS + 1):
        for micro in range(passes):
            inputs = next(batches)
            model.require_backward_grad_sync = micro == passes - 1
            model(inputs).square().mean().backward()
        optimizer.step()
        gc.collect()
        optimizer.zero_grad()
        together(rank, lanes)
        if number > 2:
            exchange(rank)
        dist.barrier()
        recorder.step(number)
    dist.destroy_process_group()
    out.put((rank, reported))


def shares(folder: Path, passes: int) -> dict[int, dict[str, Any]]:
    """Run two ranks. Return for each rank the mean seconds of each activity, and of each micro-batch as a
    list.
    """
    context = rank_processes.context()
    out: Any = context.Queue()
    ranks = [context.Process(target=train, args=(rank, folder, passes, out)) for rank in (0, 1)]
    for one in ranks:
        one.start()
    try:
        reported = dict(out.get(timeout=120) for _ in ranks)
    finally:
        for one in ranks:
            one.join(60)
            one.kill()
    # The wrapper measures from its second step on, and a step is reported when the next step ends.
    return {rank: mean(windows) for rank, windows in reported.items()}


def mean(windows: list[dict[str, Any]]) -> dict[str, Any]:
    steps = sum(one["last"] - one["first"] + 1 for one in windows)
    assert steps >= 2
    found: dict[str, Any] = {
        name: sum(one.get(name, 0.0) for one in windows) / steps
        for name in ("wall", "compute", "data", "wait", "optimizer")
    }
    micros = [one["micro"] for one in windows if "micro" in one]
    found["collectives"] = {
        one["kind"]: one for window in windows[-1:] for one in window.get("collectives", ())
    }
    found["exchanges"] = {one["first"]: one.get("exchanges", False) for one in windows}
    found["micro"] = [sum(column) / steps for column in zip(*micros, strict=True)]
    return found


@pytest.fixture(scope="module")
def one_pass(tmp_path_factory: pytest.TempPathFactory) -> dict[int, dict[str, Any]]:
    """The mean seconds of each activity by rank, for steps with one pass."""
    return shares(tmp_path_factory.mktemp("one-pass"), passes=1)


def test_a_slow_rank_has_compute_time_and_its_peer_has_wait_time(one_pass: dict[int, dict[str, Any]]) -> None:
    found = one_pass
    assert found[1]["compute"] >= 2 * SLOW
    assert found[0]["compute"] < SLOW
    assert found[1]["data"] < LOADING <= found[0]["data"]
    assert found[0]["wait"] > found[1]["wait"]
    for rank in (0, 1):
        known = sum(found[rank][name] for name in ("compute", "data", "wait", "optimizer"))
        assert known <= found[rank]["wall"] * 1.001
        assert found[rank]["micro"] == []


def test_messages_to_single_ranks_are_noted(one_pass: dict[int, dict[str, Any]]) -> None:
    assert [one_pass[rank]["exchanges"] for rank in (0, 1)] == [{2: False, 3: True}] * 2


@pytest.mark.parametrize(("kind", "noted"), [(12, True), (13, True), (14, True), (1, False)])
def test_work_of_a_message_is_noted(kind: int, noted: bool) -> None:
    class Work:
        def _get_op_type(self) -> int:
            return kind

        def wait(self) -> bool:
            return True

    recorder = StepRecorder()
    recorder.send = lambda _: None
    Work.wait = torch_hooks._timed_wait(Work.wait, recorder)  # type: ignore[method-assign]
    assert Work().wait()
    assert recorder._open.spent.exchanges is noted


def test_each_communicator_is_reported(one_pass: dict[int, dict[str, Any]]) -> None:
    found = one_pass
    for rank in (0, 1):
        reported = found[rank]["collectives"]
        assert {kind: (one["members"], one["bytes"]) for kind, one in reported.items()} == {
            "world": ("0-1", 4 * NUMBERS),
            "tp": ("0-1", 2 * 4 * NUMBERS),
        }
        assert reported["world"]["count"] == reported["tp"]["count"] >= 1
    world = [found[rank]["collectives"]["world"]["seconds"] for rank in (0, 1)]
    assert world[1] < TOGETHER / 2 < world[0], "who comes last waits for nobody"


def test_each_of_several_passes_is_measured(tmp_path: Path) -> None:
    found = shares(tmp_path, passes=2)
    assert all(one >= 2 * SLOW for one in found[1]["micro"])
    assert len(found[1]["micro"]) == 2
    assert (
        sum(found[1]["micro"]) == found[1]["compute"]
        or abs(sum(found[1]["micro"]) - found[1]["compute"]) < 1e-4
    )
    assert found[0]["compute"] < 2 * SLOW
    assert found[0]["data"] >= 2 * LOADING


def test_collectives_of_sharded_models_are_measured(tmp_path: Path) -> None:
    context = rank_processes.context()
    out: Any = context.Queue()
    ranks = [context.Process(target=sharded, args=(rank, tmp_path, out)) for rank in (0, 1)]
    for one in ranks:
        one.start()
    try:
        found = [out.get(timeout=120) for _ in ranks]
    finally:
        for one in ranks:
            one.join(60)
            one.kill()
    weights = 4 * 256 * 256
    assert found == [[{"kind": "world", "members": "0-1", "bytes": weights, "count": 2}]] * 2


def sharded(rank: int, folder: Path, out: Any) -> None:
    """Run a step of sharded data parallelism: gather a layer before the forward pass, and scatter its
    gradients after the backward pass.
    """
    os.environ.update(RANK=str(rank), WORLD_SIZE="2")
    reported: list[dict[str, Any]] = []
    recorder = torch_hooks.install()
    recorder.send = reported.append
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2, timeout=timedelta(seconds=60)
    )
    model = nn.Linear(256, 256, bias=False)
    fully_shard(model, mesh=dist.init_device_mesh("cpu", (2,)))
    for number in (1, 2):
        recorder.step(number)
        model(torch.ones(2, 256)).sum().backward()
    recorder.step(3)
    dist.destroy_process_group()
    (last,) = [one for one in reported if one["first"] == 2]
    out.put([{key: one[key] for key in ("kind", "members", "bytes", "count")} for one in last["collectives"]])


def test_derived_work_classes_keep_torchs_own_wait() -> None:
    """If a derived class inherited the wrapper of `wait`, C++ would take the wrapper for an override and
    call it endlessly.
    """
    context = rank_processes.context()
    out: Any = context.Queue()
    one = context.Process(target=derived, args=(out,))
    one.start()
    try:
        assert out.get(timeout=120) == (True, "mine")
    finally:
        one.join(60)
        one.kill()


def test_a_measured_collective_can_be_compiled(tmp_path: Path) -> None:
    context = rank_processes.context()
    out: Any = context.Queue()
    one = context.Process(target=compiled, args=(tmp_path, out))
    one.start()
    try:
        assert out.get(timeout=120) == [2.0, 2.0]
    finally:
        one.join(60)
        one.kill()


def compiled(folder: Path, out: Any) -> None:
    torch_hooks.install().send = lambda _: None
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=0, world_size=1)

    @torch.compile(backend="eager", fullgraph=True)
    def reduced(values: torch.Tensor) -> torch.Tensor:
        values = values * 2
        dist.all_reduce(values)
        return values

    out.put(reduced(torch.ones(2)).tolist())
    dist.destroy_process_group()


def derived(out: Any) -> None:
    class Before(dist.Work):
        pass

    torch_hooks.install()

    class After(dist.Work):
        pass

    class Own(dist.Work):
        def wait(self, *_: Any) -> str:  # type: ignore[override]
            return "mine"

    native = vars(Before)["wait"]
    out.put((native is vars(After)["wait"] and native is not vars(dist.Work)["wait"], Own().wait()))
