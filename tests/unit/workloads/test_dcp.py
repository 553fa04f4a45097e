"""Tests of saves and loads through torch.distributed.checkpoint, with a stand-in for the agent."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner

import convoy
from convoy.dcp import ConvoyReader, ConvoyWriter, NotSaved, StepAbandoned
from convoy_workloads.runtime.frames import Message
from convoy_workloads.runtime.generation import Generation
from convoy_workloads.runtime.rank_context import RankContext
from convoy_workloads.runtime.tiers import planning, shard
from convoy_workloads.runtime.tiers.checkpoints import MemoryCheckpoints

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


def file(data: bytes) -> int:
    fd = os.memfd_create("shard")
    os.write(fd, data)
    return fd


@dataclass
class Agent:
    """Stands in for the agent and for SaveStatus. It keeps everything that rank 0 seals, and always has a
    free buffer.
    """

    limit: int = 1 << 30
    buffers: list[int] = field(default_factory=list)
    saved: list[tuple[int, bytes]] = field(default_factory=list)
    questions: list[Message] = field(default_factory=list)
    shards: dict[str, bytes] = field(default_factory=dict)
    """Shards by name that a restore offers; if empty, the last sealed shard is offered."""
    turn: int = 0
    interval: float = 0.0
    abandoned_steps: set[int] = field(default_factory=set)
    """Steps that the agent reports as abandoned."""
    finished_writes: int = 0
    """Number of buffers whose write was finished or aborted."""
    copies: int | None = None
    releases: int = 0

    def request(self, question: Message, seconds: float = 0.0) -> tuple[Message, list[int]]:
        self.questions.append(question)
        answer: tuple[Message, list[int]] = getattr(self, f"_{question['type']}")(question)
        return answer

    def _reserve(self, question: Message) -> tuple[Message, list[int]]:
        if 2 * question["size"] > self.limit:
            return {"type": "refused", "why": "7 more bytes are needed"}, []
        self.buffers = self.buffers or [os.memfd_create("buffer"), os.memfd_create("buffer")]
        for fd in self.buffers:
            os.ftruncate(fd, max(question["size"], os.fstat(fd).st_size))
        return {"type": "buffers", "names": ["0-0", "0-1"], "copies": 0}, [os.dup(fd) for fd in self.buffers]

    def _seal(self, question: Message) -> tuple[Message, list[int]]:
        fd = self.buffers[int(question["buffer"][-1])]
        self.saved.append((question["step"], os.pread(fd, question["length"], 0)))
        return {"type": "sealed", "seconds": 0.0}, []

    def _abandon(self, question: Message) -> tuple[Message, list[int]]:
        return {"type": "noted"}, []

    def _restore(self, question: Message) -> tuple[Message, list[int]]:
        if self.saved and not self.shards:
            self.shards = {"0": self.saved[-1][1]}
        found = [1, self.saved[-1][0] if self.saved else 9] if self.shards else None
        answer = {"generation": found, "world": len(self.shards), "torch": "2", "shards": list(self.shards)}
        return {"type": "restore", **answer, "message": "", "lost": False}, []

    def _shard(self, question: Message) -> tuple[Message, list[int]]:
        data = self.shards[question["shard"]]
        return {"type": "shard", "lengths": [len(data)]}, [file(data)]

    def _restored(self, question: Message) -> tuple[Message, list[int]]:
        return {"type": "done"}, []

    # The methods of SaveStatus.

    @property
    def buffer(self) -> str:
        return f"0-{self.turn}"

    def start(self) -> None: ...

    def start_write(self, buffer: str, generation: Generation) -> None:
        self.turn = 1 - self.turn

    def finish_write(self) -> None:
        self.finished_writes += 1

    def abandoned(self, generation: Generation) -> bool:
        return generation.step in self.abandoned_steps

    def wait_buffer(self, seconds: float) -> bool:
        return True

    def wait_reached(self, generation: Generation, tier: str, seconds: float) -> bool:
        return True


def joined(agent: Agent, incarnation: int = 2) -> Any:
    """Return a job whose checkpoints are kept by `agent`."""
    job = convoy.join()
    context = RankContext(incarnation=incarnation, socket="/nowhere", tiers=frozenset({"local"}))
    stand_in: Any = agent
    memory = MemoryCheckpoints(context, client=stand_in, status=stand_in)
    job._checkpoints = memory
    return job


@pytest.fixture
def agent() -> Iterator[Agent]:
    agent = Agent()
    yield agent
    for fd in agent.buffers:
        os.close(fd)


@pytest.fixture
def job(agent: Agent) -> Any:
    """A job that started at step 0."""
    job = joined(agent)
    ConvoyReader(job).close()
    return job


def state(seed: int) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(seed)
    return {
        "model": {
            "weight": torch.randn(6, 4, generator=generator),
            "half": torch.randn(5, generator=generator).bfloat16(),
            "scalar": torch.tensor(seed),
            "mask": torch.tensor([True, False, bool(seed % 2)]),
            "nothing": torch.empty(0, 3),
        },
        "optimizer": {"param_groups": [{"lr": 0.1 * seed, "betas": (0.9, 0.95)}]},
        "text": f"after {seed}",
        "raw": bytes([seed, 255]),
        "none": None,
    }


def flat(found: Any) -> Any:
    if isinstance(found, torch.Tensor):
        return str(found.dtype), tuple(found.shape), found.tolist()
    if isinstance(found, dict):
        return {key: flat(value) for key, value in found.items()}
    return [flat(one) for one in found] if isinstance(found, list) else found


def save(job: Any, step: int, found: dict[str, Any], **more: Any) -> ConvoyWriter:
    writer = ConvoyWriter(job, step)
    dcp.save(found, storage_writer=writer, **more)
    assert writer.settle()
    return writer


def test_a_saved_state_is_restored_with_its_values(agent: Agent, job: Any) -> None:
    save(job, 3, state(3))
    save(job, 4, state(4))
    assert [step for step, _ in agent.saved] == [3, 4]
    assert agent.questions[-1] | {"buffer": ""} == {
        "type": "seal",
        "buffer": "",
        "step": 4,
        "length": len(agent.saved[-1][1]),
        "extends": None,
        "world": 1,
        "torch": str(torch.__version__),
        "plan": "by the program",
        "last": False,
    }
    again = joined(agent, 3)
    found = state(0)
    with ConvoyReader(again) as reader:
        assert (reader.generation, reader.step, again.restored.step) == (Generation(1, 4), 4, 4)
        dcp.load(found, storage_reader=reader)
        dcp.load(found, storage_reader=reader)
    assert flat(found) == flat(state(4))
    assert agent.questions[-2]["type"] == "restored"


def test_an_asynchronous_save_has_the_state_at_its_start(agent: Agent, job: Any) -> None:
    changing = {"w": torch.ones(1000)}
    future = dcp.async_save(changing, storage_writer=ConvoyWriter(job, 1))
    changing["w"].zero_()
    future.result()  # type: ignore[union-attr]
    job.memory.settle()
    with ConvoyReader(joined(agent, 3)) as reader:
        dcp.load(changing, storage_reader=reader)
    assert changing["w"].tolist() == [1.0] * 1000


def test_one_rank_reads_boxes_of_several_ranks(agent: Agent) -> None:
    whole = torch.arange(24, dtype=torch.float32).reshape(6, 4)
    for rank, (start, rows) in enumerate(((0, 4), (4, 2))):
        layout = shard.lay_out([("w", ((start, 0), (rows, 4)), (6, 4), torch.float32)], 0)
        target = bytearray(layout.size)
        texts = {"n": json.dumps(5)} if rank else {}
        shard.write(memoryview(target), layout, [whole[start : start + rows]], texts, planning.facts(9, 2))
        agent.shards[str(rank)] = bytes(target)
    found = {"w": torch.zeros(6, 4), "n": 0}
    with ConvoyReader(joined(agent)) as reader:
        dcp.load(found, storage_reader=reader)
    assert torch.equal(found["w"], whole)  # type: ignore[arg-type]
    assert found["n"] == 5


def test_no_pickle_is_stored(agent: Agent, job: Any) -> None:
    save(job, 1, state(1))
    found = shard.read(memoryview(agent.saved[0][1]))
    assert set(found.values) == {
        "optimizer.param_groups.0.lr",
        "optimizer.param_groups.0.betas",
        "text",
        "raw",
        "none",
    }
    assert all(json.loads(text) is None or text for text in found.values.values())
    index = agent.saved[0][1][: found.parts[0].at]
    assert b"\x80\x02" not in index and b"ctorch" not in index


def test_an_unchanged_tensor_keeps_its_position(agent: Agent, job: Any) -> None:
    save(job, 1, {"w": torch.ones(5000), "log": "x"})
    save(job, 2, {"w": torch.ones(5000), "log": "x" * 9000})
    first, second = (shard.read(memoryview(data)) for _, data in agent.saved)
    assert first.parts == second.parts
    save(job, 3, {"w": torch.ones(5000), "log": "x" * 200_000})
    assert shard.read(memoryview(agent.saved[2][1])).parts != first.parts


def test_a_save_that_does_not_fit_is_rejected_and_a_smaller_save_works(agent: Agent, job: Any) -> None:
    agent.limit = 4 << 20
    with pytest.raises(CheckpointException, match="7 more bytes are needed"):
        save(job, 1, {"w": torch.ones(1 << 20)})
    assert not agent.saved
    save(job, 2, {"w": torch.ones(1 << 10)})
    assert [step for step, _ in agent.saved] == [2]


@pytest.mark.parametrize(
    ("found", "planner", "named"),
    [
        ({"a": {"b": object()}}, None, r"a\.b: the value is a builtins\.object"),
        (
            {"a": 1},
            type("Own", (DefaultSavePlanner,), {"transform_object": lambda *_: b""})(),
            "a: Own encodes a value that is not a tensor",
        ),
    ],
)
def test_a_value_without_an_exact_encoding_is_named(
    agent: Agent, job: Any, found: dict[str, Any], planner: Any, named: str
) -> None:
    with pytest.raises(CheckpointException, match=named):
        save(job, 1, found, planner=planner)
    job.memory.settle()
    assert not agent.saved
    assert agent.questions[-1] == {"type": "abandon", "step": 1}, "others may have saved it"


def test_steps_must_increase(agent: Agent, job: Any) -> None:
    save(job, 2, {"n": 1})
    with pytest.raises(CheckpointException, match="step 2 is not beyond step 2"):
        save(job, 2, {"n": 1})
    job.memory.settle()
    assert agent.questions[-1]["type"] == "seal", "the one that stands is not abandoned"
    again = joined(agent, 3)
    ConvoyReader(again).close()
    with pytest.raises(ValueError, match="step 2 is not beyond step 2"):
        ConvoyWriter(again, 2)


def test_a_step_that_this_rank_could_not_save_is_not_saved_again(agent: Agent, job: Any) -> None:
    with pytest.raises(CheckpointException, match=r"builtins\.object"):
        save(job, 1, {"n": object()})
    with pytest.raises(CheckpointException, match=r"StepAbandoned.*step 1 was given up"):
        save(job, 1, {"n": 1})
    assert not agent.saved
    with pytest.raises(StepAbandoned):
        job.memory.planned.put((), (), {"n": "1"}, 1)
    save(job, 2, {"n": 1})
    assert [step for step, _ in agent.saved] == [2]


def test_a_step_that_another_rank_could_not_save_is_not_saved_again(agent: Agent, job: Any) -> None:
    save(job, 1, {"n": 1})
    agent.abandoned_steps.add(1)
    with pytest.raises(CheckpointException, match=r"StepAbandoned.*step 1 was given up"):
        save(job, 1, {"n": 1})
    save(job, 2, {"n": 1})
    assert [step for step, _ in agent.saved] == [1, 2]


def test_all_ranks_save_together(job: Any) -> None:
    job.world = 2
    with pytest.raises(CheckpointException, match="all ranks of the job save together"):
        save(job, 1, {"n": 1}, no_dist=True)
    with pytest.raises(NotSaved, match="all ranks of the job save together"):
        save(job, 1, {"n": 1}, use_collectives=False)


def test_a_writer_stays_in_its_process(job: Any) -> None:
    with pytest.raises(TypeError, match=r"AsyncCheckpointerType\.THREAD"):
        pickle.dumps(ConvoyWriter(job, 1))


def test_the_last_step_goes_to_the_store(agent: Agent, job: Any) -> None:
    for step in job.steps(2):
        assert job.due(step) == (step == 2)
        if job.due(step):
            save(job, step, {"n": step})
    assert [(one["step"], one["last"]) for one in agent.questions if one["type"] == "seal"] == [(2, True)]


def test_the_checkpoint_to_resume_is_chosen_once_before_the_first_save(agent: Agent) -> None:
    job = joined(agent)
    with pytest.raises(convoy.DataError, match=r"ConvoyReader.* before the first save"):
        ConvoyWriter(job, 1)
    reader = ConvoyReader(job)
    with pytest.raises(convoy.DataError, match="chosen before"):
        ConvoyReader(job)
    with pytest.raises(CheckpointException, match="nothing is saved"):
        dcp.load({"n": 1}, storage_reader=reader)
    save(job, 1, {"n": 1})
    reader.close()
    with pytest.raises(CheckpointException, match="closed"):
        dcp.load({"n": 1}, storage_reader=reader)


def test_an_error_without_an_agent_names_the_required_field() -> None:
    job = convoy.join()
    for make in (lambda: ConvoyReader(job), lambda: ConvoyWriter(job, 1)):
        with pytest.raises(convoy.DataError, match=r"spec\.checkpoint\.tiers\.local"):
            make()
    assert not any(job.due(step) for step in job.steps(2))
