"""Tests of Trainer's events, sent in Trainer's order: an interrupted training ends with the result of an
uninterrupted one.
"""

from __future__ import annotations

import importlib
import importlib.util
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import convoy
from convoy_workloads.runtime.adapters.trainer import TrainerFollower
from convoy_workloads.runtime.folder.checkpoints import FolderCheckpoints

SAMPLES, EACH = 22, 3
"""Number of samples, and samples per batch. So an epoch has eight batches, of which the last is smaller."""

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


class Crash(Exception):
    """Raised to end a training in the middle of a step."""


class Loader:
    """Stands in for accelerate's DataLoaderShard: it shuffles by epoch and can skip batches."""

    def __init__(self) -> None:
        self.skip_batches = 0
        self.iteration = 0

    def set_epoch(self, epoch: int) -> None:
        self.iteration = epoch

    def __len__(self) -> int:
        return (SAMPLES + EACH - 1) // EACH

    def __iter__(self) -> Iterator[list[int]]:
        torch.randint(1000, ())  # Draw a seed, because torch's iterators draw one for their workers.
        self.set_epoch(self.iteration)
        order = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(self.iteration)).tolist()
        for number in range(len(self)):
            if number >= self.skip_batches:
                yield order[EACH * number : EACH * (number + 1)]
        self.iteration += 1


@dataclass
class State:
    """Stands in for TrainerState, with the fields that a callback may read."""

    max_steps: int
    global_step: int = 0
    epoch: float = 0.0
    total_flos: float = 0.0
    log_history: list[dict[str, float]] = field(default_factory=list)
    best_metric: float | None = None
    best_model_checkpoint: str | None = None


class Run:
    """Stands in for a process that runs a Trainer."""

    def __init__(self, seed: int, each: int) -> None:
        torch.manual_seed(seed)
        random.seed(seed)
        self.model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 1))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.05)
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda step: 1.0 / (1 + step))
        self.seen: list[tuple[int, list[int]]] = []
        updates = -(-len(Loader()) // each)
        self.state = State(max_steps=3 * updates - 1)
        self.args = SimpleNamespace(
            train_batch_size=EACH, gradient_accumulation_steps=each, world_size=1, ignore_data_skip=False
        )

    def train(
        self, follower: TrainerFollower, crash: int = 0, evaluate: Callable[[int], bool] = lambda _: False
    ) -> None:
        """Run Trainer's loop (transformers 4.56 and 5.23) as far as callbacks can observe it."""
        loader = Loader()
        control = SimpleNamespace(should_training_stop=False)
        objects = {
            "model": self.model,
            "optimizer": SimpleNamespace(optimizer=self.optimizer, scaler=None),
            "lr_scheduler": self.scheduler,
            "train_dataloader": loader,
        }

        def set_epoch(event: str, **more: Any) -> None:
            getattr(follower, event)(self.args, self.state, control, **objects, **more)

        losses, logged = 0.0, self.state.global_step
        set_epoch("on_train_begin")
        each = self.args.gradient_accumulation_steps
        for epoch in range(3):
            loader.set_epoch(epoch)
            step, batches = -1, iter(loader)
            for _ in range(-(-len(loader) // each)):
                group = [batch for _, batch in zip(range(each), batches, strict=False)]
                if not group:
                    continue
                for number, batch in enumerate(group):
                    step += 1
                    if not number:
                        set_epoch("on_step_begin")
                    x = torch.tensor([[one, one % 3, one % 5, 1.0] for one in batch]) / SAMPLES
                    loss = self.model(x).square().mean() / len(group)
                    loss.backward()
                    losses += float(loss.detach())
                    self.seen.append((self.state.global_step + 1, batch))
                    if crash and self.state.global_step + 1 == crash:
                        raise Crash
                self.optimizer.step()
                self.scheduler.step()
                self.optimizer.zero_grad()
                self.state.global_step += 1
                self.state.epoch = epoch + (step + 1) / len(loader)
                set_epoch("on_step_end")
                logs = {"loss": losses / (self.state.global_step - logged), "epoch": self.state.epoch}
                losses, logged = 0.0, self.state.global_step
                self.state.log_history.append({**logs, "step": logged})
                set_epoch("on_log", logs=logs)
                if evaluate(logged):
                    torch.rand(7)
                    set_epoch("on_prediction_step")
                    set_epoch("on_evaluate", metrics={"eval_loss": 1.0})
                if self.state.global_step >= self.state.max_steps:
                    control.should_training_stop = True
                    break
            if step < 0:
                control.should_training_stop = True
            set_epoch("on_epoch_end")
            if control.should_training_stop:
                break
        set_epoch("on_log", logs={"train_loss": 0.0})
        set_epoch("on_train_end")

    @property
    def bits(self) -> Any:
        return [value.tolist() for value in self.model.state_dict().values()], self.optimizer.param_groups[0][
            "lr"
        ]


class Settled(TrainerFollower):
    """A follower that waits at the start of a step until the save of the previous step is complete."""

    def on_step_begin(self, *args: Any, **objects: Any) -> None:
        super().on_step_begin(*args, **objects)
        assert self._job._checkpoints is not None
        self._job._checkpoints.settle()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CONVOY_CHECKPOINT_DIR", str(tmp_path / "saved"))
    monkeypatch.setenv("CONVOY_CHECKPOINT_SECONDS", "0.000001")
    (tmp_path / "saved").mkdir()
    # Wait until each save is complete before the next step starts.
    monkeypatch.setattr(FolderCheckpoints, "due", FolderCheckpoints.settle)
    return tmp_path / "saved"


def calm(monkeypatch: pytest.MonkeyPatch, each: int, **more: Any) -> Run:
    run = Run(1, each)
    with monkeypatch.context() as alone:
        alone.delenv("CONVOY_CHECKPOINT_DIR")
        with convoy.join() as job:
            run.train(TrainerFollower(job), **more)
    return run


@pytest.mark.parametrize("crash", [3, 8, 9, 12, 17])
def test_an_interrupted_training_ends_with_the_bits_of_an_undisturbed_training(
    folder: Path, monkeypatch: pytest.MonkeyPatch, crash: int
) -> None:
    def evaluate(step: int) -> bool:
        return step % 4 == 3

    wanted = calm(monkeypatch, 1, evaluate=evaluate)
    first = Run(1, 1)
    with pytest.raises(Crash), convoy.join() as job:
        first.train(TrainerFollower(job), crash, evaluate)
    second = Run(9, 1)
    with convoy.join() as job:
        second.train(TrainerFollower(job), 0, evaluate)
    assert job.restored.step == crash - 1
    assert second.bits == wanted.bits
    assert second.seen == wanted.seen[crash - 1 :]
    assert second.state.epoch == wanted.state.epoch
    losses = [entry["loss"] for entry in wanted.state.log_history]
    assert [entry["loss"] for entry in second.state.log_history] == pytest.approx(losses, rel=1e-6)
    assert [entry["epoch"] for entry in second.state.log_history] == [
        entry["epoch"] for entry in wanted.state.log_history
    ]


def test_a_step_of_several_batches_is_one_step(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = calm(monkeypatch, 2)
    with pytest.raises(Crash), convoy.join() as job:
        Run(1, 2).train(TrainerFollower(job), 7)
    second = Run(9, 2)
    with convoy.join() as job:
        second.train(TrainerFollower(job))
    assert (job.restored.step, second.bits) == (6, wanted.bits)


def test_a_finished_training_makes_no_further_step(folder: Path) -> None:
    first, second = Run(1, 1), Run(9, 1)
    with convoy.join() as job:
        first.train(TrainerFollower(job))
    with convoy.join() as job:
        second.train(TrainerFollower(job))
    assert job.restored.step == first.state.max_steps
    assert (second.bits, second.seen) == (first.bits, [])


def test_an_unsupported_training_is_rejected(folder: Path) -> None:
    run = Run(1, 1)
    with convoy.join() as job:
        follower = TrainerFollower(job)
        run.train(follower)
        with pytest.raises(convoy.DataError, match="one training"):
            Run(1, 1).train(follower)
    resumed = Run(1, 1)
    resumed.state.global_step = 4
    with convoy.join() as job, pytest.raises(convoy.DataError, match="without resume_from_checkpoint"):
        resumed.train(TrainerFollower(job))


def test_a_loader_that_cannot_skip_batches_is_rejected(folder: Path) -> None:
    with pytest.raises(Crash), convoy.join() as job:
        Run(1, 1).train(TrainerFollower(job), 5)
    loader = torch.utils.data.DataLoader(range(22), batch_size=3)  # type: ignore[arg-type]
    with convoy.join() as job, pytest.raises(convoy.DataError, match="a DataLoader cannot skip"):
        second = Run(1, 1)
        TrainerFollower(job).on_train_begin(
            second.args,
            second.state,
            None,
            model=second.model,
            optimizer=second.optimizer,
            lr_scheduler=second.scheduler,
            train_dataloader=loader,
        )


def test_a_missing_transformers_library_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    monkeypatch.delitem(sys.modules, "convoy.hf", raising=False)
    with pytest.raises(ImportError, match="transformers cannot be imported"):
        importlib.import_module("convoy.hf")


@pytest.mark.skipif(importlib.util.find_spec("transformers") is None, reason="transformers is not installed")
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("crash", "each"), [(4, 1), (9, 1), (14, 1), (7, 2)])
def test_the_real_trainer_ends_with_the_bits_of_an_undisturbed_training(
    folder: Path, tmp_path: Path, crash: int, each: int
) -> None:
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

    from convoy.hf import ConvoyCallback

    class Crashing(TrainerCallback):  # type: ignore[misc]
        def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step + 1 == crash:
                raise Crash

    data = [
        {"input_ids": torch.arange(n, n + 8) % 50, "labels": torch.arange(n, n + 8) % 50} for n in range(22)
    ]

    def train(seed: int, job: Any, *more: Any) -> Any:
        torch.manual_seed(seed)
        model = GPT2LMHeadModel(GPT2Config(vocab_size=50, n_positions=8, n_embd=16, n_layer=2, n_head=2))
        arguments = TrainingArguments(
            output_dir=str(tmp_path / "out"),
            per_device_train_batch_size=3,
            gradient_accumulation_steps=each,
            max_steps=20,
            logging_steps=1,
            eval_strategy="steps",
            eval_steps=5,
            save_strategy="no",
            report_to=[],
            seed=5,
            use_cpu=True,
            disable_tqdm=True,
            warmup_steps=3,
        )
        trainer = Trainer(
            model,
            arguments,
            train_dataset=data,
            eval_dataset=data[:5],
            callbacks=[ConvoyCallback(job), *more],
        )
        trainer.train()
        return trainer

    with pytest.MonkeyPatch.context() as alone:
        alone.delenv("CONVOY_CHECKPOINT_DIR")
        with convoy.join() as job:
            wanted = train(1, job)
    with pytest.raises(Crash), convoy.join() as job:
        train(1, job, Crashing())
    with convoy.join() as job:
        found = train(2, job)
    assert job.restored.step == crash - 1
    with convoy.join() as job:
        over = train(3, job)
    assert job.restored.step == over.state.global_step == 20
    for name, value in wanted.model.state_dict().items():
        assert torch.equal(value, found.model.state_dict()[name]), name
        assert torch.equal(value, over.model.state_dict()[name]), name
    assert found.lr_scheduler.state_dict()["last_epoch"] == wanted.lr_scheduler.state_dict()["last_epoch"]

    def logged(trainer: Any) -> list[tuple[float, float, float]]:
        history = trainer.state.log_history
        return [(entry["step"], entry["epoch"], entry["loss"]) for entry in history if "loss" in entry]

    assert [one[:2] for one in logged(found)] == [one[:2] for one in logged(wanted)]
    assert [one[2] for one in logged(found)] == pytest.approx([one[2] for one in logged(wanted)], rel=1e-3)
